"""What the logs of a simulated cluster say once it is committed, in their order: the source of truth.

Reads each committed batch once: which producers wrote what, which transactions were decided how, what
groups and offsets the coordinators wrote down. It draws no conclusions; checkers.py does, and is told
of each fact. What clients meant (which batches are one transaction) they say here before they send.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from sim.batches import Entry
from sim.ledger import GroupFacts

from dmq.broker.group_records import GroupCodec
from dmq.broker.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from dmq.broker.transaction_records import TransactionRecords
from dmq.machines.groups.facts import (
    ClassicGroupFact,
    CurrentAssignment,
    CurrentFact,
    Fact,
    OffsetFact,
)
from dmq.machines.machine import Record as MachineRecord
from dmq.machines.transactions.facts import Transaction
from dmq.records import Record, iterate, read_header

if TYPE_CHECKING:
    from sim.coordination.world import CoordinatorWorld
    from sim.metadata import Topic

COMMIT = b"\0\1"
"""The type that the key of a marker has."""
Key = tuple[str, str]
"""A group and a topic: where an offset is kept."""
Name = tuple[int, int]
"""A producer id and an epoch."""


@dataclass(slots=True, eq=False)
class Txn:
    """A transaction as its client means it."""

    number: int
    transactional_id: str
    producer_id: int
    epoch: int
    batches: dict[int, "Topic"] = field(default_factory=dict)
    """Numbers of what was sent, and where to."""
    offsets: dict[int, Key] = field(default_factory=dict)
    is_complete: bool = False
    """All that was sent was acknowledged."""
    wish: bool | None = None
    """Its client asked for a commit, or for an abort."""
    told: dict[bool, None] = field(default_factory=dict)
    """What a coordinator said that it is."""
    answers: dict[Name, None] = field(default_factory=dict)
    fate: bool | None = None
    """What the first marker said."""
    is_fenced: bool = False

    def __repr__(self) -> str:
        return f"{self.transactional_id}#{self.number} ({self.producer_id}, {self.epoch})"


class Part(NamedTuple):
    """Something that a marker decides."""

    txn: Txn
    number: int
    """Of the batch, or the offset."""
    place: int
    """In the log."""
    key: Key | None = None


class Chronicle:
    """See the module."""

    def __init__(self, world: "CoordinatorWorld") -> None:
        self._world = world
        self._groups = GroupCodec()
        self._transactions = TransactionRecords()
        self._topics: dict[UUID, Topic] = {}
        self.txns: list[Txn] = []
        self._of_batch: dict[int, Txn] = {}
        self._of_offset: dict[int, Txn] = {}
        self.told_epochs: dict[str, Name] = {}
        """The newest name that anybody was told, by transactional id."""
        self.open: dict[str, dict[int, list[Part]]] = {}
        """By topic and producer: what no marker has decided yet."""
        self.decided: dict[int, bool] = {}
        """Batches by number: whether their transaction was committed where they lie."""
        self.written: dict[int, int] = {}
        """Offsets by value: their place in the log."""
        self.counts: dict[int, None] = {}
        """Offsets that count: not, or no longer, in an open transaction."""
        self.acknowledged: dict[Key, int] = {}
        """The newest place of which everybody may know."""
        self.states: dict[str, Transaction] = {}
        self.generations: dict[tuple[str, int], dict[str, bytes]] = {}
        self.current: dict[str, dict[str, CurrentAssignment]] = {}
        self.beats: dict[tuple[str, str, int], list[CurrentAssignment]] = {}
        self._touched: dict[str, None] = {}
        self._markers: dict[tuple[str, int, int], None] = {}

    # ---- what clients mean

    def sent(self, txn: Txn, topic: "Topic", number: int) -> None:
        self._know(txn)
        txn.batches[number] = topic
        self._of_batch[number] = txn

    def sent_offset(self, txn: Txn, group: str, topic: "Topic", value: int) -> None:
        self._know(txn)
        txn.offsets[value] = (group, topic.name)
        self._of_offset[value] = txn

    def _know(self, txn: Txn) -> None:
        if not txn.batches and not txn.offsets:
            self.txns.append(txn)

    def transaction_of(self, number: int) -> Txn | None:
        return self._of_batch.get(number)

    # ---- what the logs say

    def committed(self, facts: GroupFacts, entry: Entry) -> None:
        """A batch is committed, and was not known to be."""
        topic = self._topic_of(facts)
        stamp = entry.stamp
        if stamp is not None:
            self._world.promises.tell("appended", topic, entry)
            if stamp.is_control:
                self._decide(topic, stamp.producer_id, is_commit(entry))
                marker = topic.name, *stamp[:2]
                self._world.reached["marker written again"] += marker in self._markers
                self._markers[marker] = None
            elif stamp.is_transactional and not topic.is_internal:
                txn = self._of_batch[entry.number]
                self._open(topic, stamp.producer_id, Part(txn, entry.number, entry.base))
        if topic.is_internal and not (stamp is not None and stamp.is_control):
            producer_id = stamp.producer_id if stamp is not None else -1
            self._touched.clear()
            for record in records_of(entry):
                self._record(topic, record, producer_id)
            for group in self._touched:
                self._world.promises.tell("consumers", group)

    def _topic_of(self, facts: GroupFacts) -> "Topic":
        if facts.topic_id not in self._topics:
            for topic in self._world.metadata.topics.values():
                self._topics[topic.topic_id] = topic
        return self._topics[facts.topic_id]

    def _open(self, topic: "Topic", producer_id: int, part: Part) -> None:
        self.open.setdefault(topic.name, {}).setdefault(producer_id, []).append(part)

    def _decide(self, topic: "Topic", producer_id: int, commit: bool) -> None:
        parts = self.open.get(topic.name, {}).pop(producer_id, [])
        for part in parts:
            if part.key is None:
                self.decided[part.number] = commit
            elif commit:
                self._world.reached["offset in a transaction"] += 1
                self.counts[part.number] = None
                self._everybody_knows(part.key, part.place)
            self._world.promises.tell("decided", part, topic, commit)

    def _everybody_knows(self, key: Key, place: int) -> None:
        self.acknowledged[key] = max(place, self.acknowledged.get(key, -1))

    def acknowledge(self, key: Key, value: int) -> None:
        """A client was told that its offset counts."""
        self._everybody_knows(key, self.written[value])

    def _record(self, topic: "Topic", record: Record, producer_id: int) -> None:
        raw = MachineRecord(record.key or b"", record.value)
        if topic.name == TRANSACTIONS_TOPIC:
            name, transaction = self._transactions.decode(raw)
            before = self.states.get(name)
            self._world.promises.tell("moved", name, before, transaction)
            if transaction is not None:
                self.states[name] = transaction
            return
        assert topic.name == OFFSETS_TOPIC
        fact = self._groups.decode(raw)
        if isinstance(fact, OffsetFact):
            self._offset(topic, fact, record.offset, producer_id)
        elif fact is not None:
            self._group(fact)

    def _offset(self, topic: "Topic", fact: OffsetFact, place: int, producer_id: int) -> None:
        key = fact.key.group_id, fact.key.topic
        if fact.value is None:
            self._world.promises.tell("forgotten", key)
            self.acknowledged.pop(key, None)
            return
        value = fact.value.offset
        self.written[value] = place
        if producer_id < 0:
            self.counts[value] = None
        else:
            self._open(topic, producer_id, Part(self._of_offset[value], value, place, key))

    def _group(self, fact: Fact) -> None:
        if isinstance(fact, ClassicGroupFact):
            if fact.value is not None:
                members = {each.member_id: each.assignment for each in fact.value.members}
                self._world.promises.tell("generation", fact.group_id, fact.value, members)
                if any(members.values()):
                    self.generations[fact.group_id, fact.value.generation] = members
        elif isinstance(fact, CurrentFact):
            self._touched[fact.group_id] = None
            group = self.current.setdefault(fact.group_id, {})
            if fact.value is None:
                group.pop(fact.member_id, None)
            else:
                group[fact.member_id] = fact.value
                beat = fact.group_id, fact.member_id, fact.value.member_epoch
                self.beats.setdefault(beat, []).append(fact.value)

    def is_blind(self, topic: "Topic") -> bool:
        """Whether something may be committed there that could not be read: bits of it flipped."""
        return topic.facts.was_rotten or topic.facts.is_forfeited


def is_commit(entry: Entry) -> bool:
    """What a marker says."""
    (record,) = records_of(entry)
    return (record.key or b"")[2:4] == COMMIT


def records_of(entry: Entry) -> list[Record]:
    """What a coordinator wrote."""
    if entry.content is None:
        return []
    return list(iterate(entry.content, 0, read_header(entry.content)))
