"""The promises of coordinators, one class each; each judges one thing and raises `BrokenPromiseError`.

A checker overrides the hooks of the facts that it judges. Facts come from chronicle.py (what the logs
say) and from clients (what they were told, at the broker that told them). Logs with flipped bits are
excused where their reader may have missed something, topics that gave records up uncleanly altogether.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from sim.batches import Entry
from sim.checkers import BrokenPromiseError
from sim.coordination.chronicle import Chronicle, Key, Name, Part, Txn

from dmq.errors import ErrorCode
from dmq.machines.groups.consumer_protocol import read_assignment
from dmq.machines.groups.facts import ClassicGroupValue, CurrentAssignment, Held, Partitions
from dmq.machines.transactions.facts import PREPARED, Transaction, TxnState

if TYPE_CHECKING:
    from sim.coordination.world import CoordinatorWorld
    from sim.metadata import Topic


LEARNERS = ("wipe", "change_members", "rot_journal", "rot_segment")
"""Faults after which a replica begins with what others have left of the log."""


class Promise:
    """Every hook, doing nothing."""

    name: ClassVar[str] = ""

    def __init__(self, world: "CoordinatorWorld") -> None:
        self.world = world
        self.chronicle: Chronicle = world.chronicle

    # ---- what the logs say

    def appended(self, topic: "Topic", entry: Entry) -> None:
        """A batch of a producer with an id is committed."""

    def decided(self, part: Part, topic: "Topic", is_commit: bool) -> None:
        """A marker decided a part of a transaction."""

    def moved(self, name: str, before: Transaction | None, after: Transaction | None) -> None:
        """A coordinator wrote down where a transactional id stands."""

    def generation(self, group: str, value: ClassicGroupValue, members: dict[str, bytes]) -> None:
        """A coordinator wrote down a generation of a classic group."""

    def forgotten(self, key: Key) -> None:
        """A coordinator forgot an offset."""

    def consumers(self, group: str) -> None:
        """A batch of a coordinator is committed, with what members of a consumer group have."""

    # ---- what clients were told

    def initialised(self, name: str, given: Name, floor: Name | None, is_newcomer: bool) -> None:
        """A producer was given a name; `floor`: the newest that anybody had when it asked."""

    def ended(self, txn: Txn, is_commit: bool, answer: Name) -> None:
        """A producer was told that its transaction is committed, or aborted."""

    def refused(self, topic: "Topic", number: int, code: ErrorCode | None) -> None:
        """An idempotent producer that keeps its order was refused for good."""

    def refused_behind(self, topic: "Topic", number: int) -> None:
        """Behind a batch that was refused for now one heard that a batch is missing before it."""

    def read(self, topic: "Topic", reader: str, entries: list[Entry], seen: list[Entry]) -> None:
        """A reader of committed transactions was given `entries`, of which it shows `seen`."""

    def offset_told(self, key: Key, value: int) -> None:
        """A committed offset was acknowledged."""

    def offset_shown(self, key: Key, value: int, floor: int) -> None:
        """An offset was fetched; `floor`: the newest acknowledged place when it was asked for."""

    def synced(self, group: str, generation: int, member: str, assignment: bytes) -> None:
        """A classic member was told what it has."""

    def beat(self, group: str, member: str, epoch: int, partitions: Partitions) -> None:
        """A member of the consumer protocol was told what it has."""

    def settled(self) -> None:
        """All faults are over, and all clients have come to an end."""

    def fail(self, message: str) -> None:
        raise BrokenPromiseError(f"{self.name}: {message}")


class TransactionsAreAtomic(Promise):
    """All of a transaction is committed, or nothing; and only if its producer asked for it."""

    name = "a transaction is visible as a whole or not at all"

    def decided(self, part: Part, topic: "Topic", is_commit: bool) -> None:
        txn = part.txn
        if txn.fate is None:
            txn.fate = is_commit
        elif txn.fate is not is_commit:
            self.fail(
                f"{topic} has part {part.number} of {txn} with {is_commit}, others {txn.fate}"
            )
        if is_commit and txn.wish is not True:
            self.fail(f"{txn} was committed, and nobody asked for that")

    def settled(self) -> None:
        for txn in self.chronicle.txns:
            if txn.fate is True:
                for number, topic in txn.batches.items():
                    if not self._is_there(number, topic):
                        self.fail(f"{txn} is committed, but {number} is not in {topic}")
                for value in txn.offsets:
                    if value not in self.chronicle.counts and not self._is_blind():
                        self.fail(f"{txn} is committed, but offset {value} does not count")

    def _is_there(self, number: int, topic: "Topic") -> bool:
        if topic.is_deleted or self.chronicle.is_blind(topic):
            return True
        return self.chronicle.decided.get(number) is True

    def _is_blind(self) -> bool:
        return self.chronicle.is_blind(self.world.offsets_topic)


class AnswersAreTrue(Promise):
    """What a coordinator said of a transaction's end is what becomes of it, however often it is
    asked, and whoever coordinates then."""

    name = "the end of a transaction is what its producer was told"

    def ended(self, txn: Txn, is_commit: bool, answer: Name) -> None:
        txn.told[is_commit] = None
        txn.answers[answer] = None
        if len(txn.told) > 1:
            self.fail(f"{txn} was told to be committed and aborted")
        if len(txn.answers) > 1:
            self.fail(f"{txn} was told to go on as each of {[*txn.answers]}")
        if txn.fate is not None and txn.fate is not is_commit:
            self.fail(f"{txn} was told {is_commit}, but is {txn.fate}")
        newest = self.chronicle.told_epochs.get(txn.transactional_id)
        if newest is None or answer[1] > newest[1]:
            self.chronicle.told_epochs[txn.transactional_id] = answer

    def decided(self, part: Part, topic: "Topic", is_commit: bool) -> None:
        if part.txn.told and is_commit not in part.txn.told:
            self.fail(f"{part.txn} was told to be {[*part.txn.told]}, but is {is_commit}")

    def settled(self) -> None:
        for txn in self.chronicle.txns:
            parts = [t for t in txn.batches.values() if not self._is_excused(t)]
            is_lost = txn.fate is None and (parts or txn.offsets)
            if True in txn.told and is_lost and not self._is_excused(self.world.offsets_topic):
                self.fail(f"{txn} was told to be committed, and nothing of it is")

    def _is_excused(self, topic: "Topic") -> bool:
        return topic.is_deleted or self.chronicle.is_blind(topic)


class TransactionsEnd(Promise):
    """Whatever happens to producers and coordinators, nothing stays open."""

    name = "no transaction stays open"

    def settled(self) -> None:
        for name, producers in self.chronicle.open.items():
            topic = self.world.metadata.topics[name]
            if producers and not topic.is_deleted and not self.chronicle.is_blind(topic):
                self.fail(f"{topic} has open transactions: {producers}")


class NothingAbortedIsRead(Promise):
    """Readers of committed transactions see all that is committed, and nothing else."""

    name = "no aborted or undecided read"

    def read(self, topic: "Topic", reader: str, entries: list[Entry], seen: list[Entry]) -> None:
        if self.chronicle.is_blind(topic):
            return
        for entry in entries:
            stamp = entry.stamp
            if stamp is None or not stamp.is_transactional or stamp.is_control:
                continue
            is_committed = self.chronicle.decided.get(entry.number)
            if is_committed is None:
                self.fail(f"{reader} was given {entry} of {topic}, which is not decided")
            if is_committed is not (entry in seen):
                what = "sees" if entry in seen else "does not see"
                self.fail(f"{reader} {what} {entry} of {topic}; committed: {is_committed}")


class WritesOnceAndInOrder(Promise):
    """A producer's batches lie in the log without gaps, and nobody writes who was replaced."""

    name = "no lost or duplicated record with idempotence"

    def __init__(self, world: "CoordinatorWorld") -> None:
        super().__init__(world)
        self._last: dict[tuple[str, int], tuple[int, int, int]] = {}
        """Epoch, sequence, and the end of the batch that had them."""
        self._has_learners = any(fault in world.mix.faults for fault in LEARNERS)

    def appended(self, topic: "Topic", entry: Entry) -> None:
        stamp = entry.stamp
        assert stamp is not None
        at = topic.name, stamp.producer_id
        epoch, last, end = self._last.get(at, (-1, -1, 0))
        if self.chronicle.is_blind(topic):
            return
        # Else retention took it, and a replica that came later has no snapshot of its producer.
        is_known = end > topic.facts.log_start or not self._has_learners
        if stamp.producer_epoch < epoch and is_known:
            self.fail(f"{topic} has {entry} after epoch {epoch} of the same producer")
        if stamp.producer_epoch > epoch:
            last = -1
        if stamp.sequence >= 0:
            if stamp.sequence != last + 1 and (is_known or not end):
                self.fail(f"{topic} has {entry} after sequence {last}")
            last = stamp.sequence + entry.end - entry.base - 1
        self._last[at] = stamp.producer_epoch, last, entry.end

    def refused(self, topic: "Topic", number: int, code: ErrorCode | None) -> None:
        is_excused = topic.is_deleted or self.chronicle.is_blind(topic) or topic.facts.log_start
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_excused:
            self.fail(f"{number} was refused by {topic}, though all before it are there")

    def refused_behind(self, topic: "Topic", number: int) -> None:
        """librdkafka would take a new epoch, and write again what it has in flight in all partitions."""
        is_excused = topic.is_deleted or self.chronicle.is_blind(topic) or topic.facts.log_start
        if not is_excused:
            self.fail(
                f"{number} was told by {topic} that one before it is missing, which was refused"
            )


class NamesAreNewer(Promise):
    """A coordinator knows all names that it or its predecessors gave out: ids stay, epochs grow."""

    name = "a producer's name is newer than all that were given out before"

    def initialised(self, name: str, given: Name, floor: Name | None, is_newcomer: bool) -> None:
        if floor is not None:
            is_newer = given[1] > floor[1] if is_newcomer else given[1] >= floor[1]
            if given[0] != floor[0] or not is_newer:
                self.fail(f"{name} was given {given}, {floor} was before")
        newest = self.chronicle.told_epochs.get(name)
        if newest is None or given[1] > newest[1]:
            self.chronicle.told_epochs[name] = given


class DecisionsStand(Promise):
    """Once a coordinator has written down how a transaction ends, that is how it ends."""

    name = "a decided transaction stays as it was decided"

    def moved(self, name: str, before: Transaction | None, after: Transaction | None) -> None:
        if before is None or self.chronicle.is_blind(self.world.transactions_topic):
            return
        if after is None:
            self.fail(f"{name} was forgotten")
            return
        if before.state in PREPARED:
            wanted = (
                TxnState.COMPLETE_COMMIT
                if before.state is TxnState.PREPARE_COMMIT
                else TxnState.COMPLETE_ABORT
            )
            if after.state is not wanted:
                self.fail(f"{name} was {before.state.label}, then {after.state.label}")
        if after.producer_epoch < before.producer_epoch:
            self.fail(f"{name} went from epoch {before.producer_epoch} to {after.producer_epoch}")


class CommittedOffsetsStay(Promise):
    """An acknowledged offset is there until a newer one takes its place."""

    name = "committed offsets never go back by themselves"

    def offset_told(self, key: Key, value: int) -> None:
        if value not in self.chronicle.counts:
            if not self._is_blind():
                self.fail(f"{key} was told that {value} is committed")
            return
        self.chronicle.acknowledge(key, value)

    def offset_shown(self, key: Key, value: int, floor: int) -> None:
        topic = self.world.metadata.topics[key[1]]
        if topic.is_deleted or self._is_blind():
            return
        if value < 0:
            if floor >= 0:
                self.fail(f"{key} has no offset, but {floor} was acknowledged")
        elif value not in self.chronicle.counts:
            self.fail(f"{key} shows {value}, which is not committed")
        elif self.chronicle.written[value] < floor:
            place = self.chronicle.written[value]
            self.fail(f"{key} shows {value} of {place}, {floor} was acknowledged before")

    def forgotten(self, key: Key) -> None:
        if not self.world.metadata.topics[key[1]].is_deleted and not self._is_blind():
            self.fail(f"{key} was forgotten")

    def _is_blind(self) -> bool:
        return self.chronicle.is_blind(self.world.offsets_topic)


class OneOwner(Promise):
    """No partition belongs to two members of one generation or epoch, and members are told what
    the coordinator wrote down: the next one knows it too."""

    name = "no partition is owned by two members"

    def generation(self, group: str, value: ClassicGroupValue, members: dict[str, bytes]) -> None:
        if value.protocol_type != "consumer" or not any(members.values()):
            return
        known = self.chronicle.generations.get((group, value.generation))
        if known is not None and not self._is_blind():
            for member, assignment in members.items():
                if known.get(member, assignment) != assignment and known[member]:
                    self.fail(f"{group}: generation {value.generation} was assigned twice")
        owners: dict[tuple[str, int], str] = {}
        for member, assignment in members.items():
            for topic, indexes in read_assignment(assignment) if assignment else ():
                for index in indexes:
                    if owners.setdefault((topic, index), member) != member:
                        self.fail(f"{group}: {topic} belongs to {member} and others")

    def synced(self, group: str, generation: int, member: str, assignment: bytes) -> None:
        if self._is_blind() or not assignment:
            return
        known = self.chronicle.generations.get((group, generation))
        if known is None:
            if group in self.chronicle.current:
                return  # A classic member of a consumer group: `consumers` looks after those.
            self.fail(
                f"{group}: {member} was told of generation {generation}, which is not written"
            )
            return
        if known.get(member) != assignment and group not in self.chronicle.current:
            self.fail(f"{group}: {member} was told what generation {generation} does not say")

    def consumers(self, group: str) -> None:
        if self._is_blind():
            return
        owners: dict[tuple[object, int], str] = {}
        for member, value in self.chronicle.current.get(group, {}).items():
            for place in (*_places(value.assigned), *_places(value.pending_revocation)):
                if owners.setdefault(place, member) != member:
                    self.fail(f"{group}: {place} belongs to {member} and {owners[place]}")

    def beat(self, group: str, member: str, epoch: int, partitions: Partitions) -> None:
        if self._is_blind():
            return
        told = {(topic, index) for topic, indexes in partitions for index in indexes}
        known: list[CurrentAssignment] = self.chronicle.beats.get((group, member, epoch), [])
        if not any(set(_places(value.assigned)) == told for value in known):
            self.fail(f"{group}: {member} was told {told} in epoch {epoch}; written is {known}")

    def _is_blind(self) -> bool:
        return self.chronicle.is_blind(self.world.offsets_topic)


def _places(held: Held) -> list[tuple[object, int]]:
    return [(topic, index) for topic, indexes, _ in held for index in indexes]


ALL: tuple[type[Promise], ...] = (
    TransactionsAreAtomic,
    AnswersAreTrue,
    TransactionsEnd,
    NothingAbortedIsRead,
    WritesOnceAndInOrder,
    NamesAreNewer,
    DecisionsStand,
    CommittedOffsetsStay,
    OneOwner,
)


class Promises:
    """Calls every checker that cares."""

    def __init__(self, world: "CoordinatorWorld") -> None:
        made = [kind(world) for kind in ALL]
        self._hooks: dict[str, list[Any]] = {
            hook: [
                getattr(promise, hook)
                for promise in made
                if getattr(type(promise), hook) is not getattr(Promise, hook)
            ]
            for hook in vars(Promise)
            if not hook.startswith("_") and hook not in ("name", "fail")
        }

    def tell(self, hook: str, *facts: Any) -> None:
        for check in self._hooks[hook]:
            check(*facts)
