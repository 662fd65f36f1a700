"""What really happened, as nobody inside the cluster can know it: the checkers' source of truth.

Facts come from looking at the disks and at every replica after every event: what was really synced
where, who voted for whom durably, what the first replica to commit an offset had there. It draws no
conclusions; checkers.py does. Kept per group and voter: what a disk held when it was wiped stands for
good under the name that it had, because nobody may use that name again.
"""

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from sim.batches import Entry
from sim.keyed import FILLER

from dmq.raft.marks import Marks
from dmq.raft.quorum import NOTHING
from dmq.types import Mark, Position, Voter


class Keyed(NamedTuple):
    """A committed record of a compacted topic."""

    key: bytes
    is_tombstone: bool
    at: int
    """When it was seen to be committed."""


class Acknowledged(NamedTuple):
    """A produce request that was answered with success and `acks=all`."""

    number: int
    base: int
    at: int


@dataclass(slots=True)
class GroupFacts:
    """One partition's history."""

    topic_id: UUID
    is_async: bool
    first_voters: tuple[Voter, ...] = ()
    min_insync: int = 1
    is_compacted: bool = False
    tombstones_ms: int = 0
    """Tombstones of a compacted topic stay at least so long."""
    keyed: dict[int, Keyed] = field(default_factory=dict)
    """Committed records of a compacted topic, by offset."""
    newest: dict[bytes, int] = field(default_factory=dict)
    """Key -> the last committed record that has it."""
    tombstones: dict[Voter, dict[int, bytes]] = field(default_factory=dict)
    """Those that each replica had when its log was last looked through, with their keys."""
    entries: dict[int, Entry] = field(default_factory=dict)
    """Committed batches, by the offset behind them: a log may begin in the middle of one."""
    by_number: dict[int, Entry] = field(default_factory=dict)
    high: int = 0
    """The greatest offset that any replica ever had as its high watermark."""
    noted: int = 0
    """The end of the committed batches that were looked at."""
    log_start: int = 0
    marks: dict[tuple[int, int], Mark] = field(default_factory=dict)
    voters_since: Mark | None = None
    """The committed mark that brought the present voters, or the first that was seen with them."""
    leaders: dict[int, Voter] = field(default_factory=dict)
    newest_led: int = -1
    """The greatest epoch that anybody has led."""
    votes: dict[int, dict[Voter, Voter]] = field(default_factory=dict)
    durable: dict[Voter, Position] = field(default_factory=dict)
    """What is on the disk of each, whether it runs or not."""
    hard: dict[Voter, tuple[int, Voter | None]] = field(default_factory=dict)
    marks_of: dict[Voter, Marks] = field(default_factory=dict)
    """The marks of each log that is left, committed or not; of those that are down, as last seen."""
    acknowledged: list[Acknowledged] = field(default_factory=list)
    shaken: dict[Voter, Position] = field(default_factory=dict)
    """Voters of an async group that lost power and were not well since; what they had before."""
    mending: dict[Voter, None] = field(default_factory=dict)
    """Those that are well again, while a note that says so may still be on its way to their disk: a
    process that ends before it is there has to begin with its healing again."""
    damaged: dict[Voter, None] = field(default_factory=dict)
    """Voters with flipped bits in their log, until it is whole again: a replica that counts as well
    may have one where nobody has looked yet."""
    was_rotten: bool = False
    is_forfeited: bool = False
    """An unclean election, allowed by the rules, gave up what a majority had promised."""

    def shake(self, voter: Voter) -> None:
        """This voter of an async group lost power, and with it anything that was not synced."""
        had = max(self.durable.get(voter, NOTHING), self.shaken.get(voter, NOTHING))
        self.shaken[voter] = had
        self.tombstones.pop(voter, None)

    def agrees(self, entry: Entry) -> bool:
        """Whether this batch is the committed one, or what a log's start has left of it."""
        known = self.entries.get(entry.end)
        if known is None or known[2:4] != entry[2:4]:
            return self.is_compacted and entry.number == FILLER
        return known.base == entry.base or (
            known.base < entry.base and entry.base <= self.log_start
        )

    def configurations(self) -> list[tuple[Voter, ...]]:
        """Sets of voters that may be in force: of the newest committed mark and of all above it."""
        newest = max(self.marks, default=(-1, -1))
        there = max(
            (mark[:2] for marks in self.marks_of.values() for mark in marks), default=newest
        )
        newest = min(newest, there)  # What all voters of an async group lost is in force nowhere.
        found: dict[tuple[Voter, ...], None] = {}
        if newest < (1, 0):
            found[self.first_voters] = None  # Some may not even know yet that they are voters.
        for marks in self.marks_of.values():
            for mark in marks:
                if mark[:2] >= newest:
                    found[mark.voters] = None
        return [*found]


class Ledger:
    """All groups' facts."""

    def __init__(self) -> None:
        self.groups: dict[UUID, GroupFacts] = {}
        self.acknowledged = 0
        self.shown = 0
        self.committed = 0

    def add(
        self,
        topic_id: UUID,
        is_async: bool,
        voters: tuple[Voter, ...],
        min_insync: int,
        *,
        is_compacted: bool = False,
    ) -> GroupFacts:
        facts = GroupFacts(topic_id, is_async, voters, min_insync, is_compacted)
        self.groups[topic_id] = facts
        return facts
