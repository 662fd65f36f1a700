"""The promises of a cluster, one class each; each knows the ledger and judges one thing.

A checker overrides the hooks of the facts that it judges; `Checkers` calls only those. It raises
`BrokenPromiseError` with its own name. Hooks are called by observer.py (what replicas are), by
workload.py (what clients were told) and by the end of a run.
"""

from typing import ClassVar

from sim.batches import Entry
from sim.keyed import Sent, opened, records_of
from sim.ledger import Acknowledged, GroupFacts, Keyed

from dmq.raft.quorum import NOTHING, majority
from dmq.raft.view import position_of
from dmq.types import Mark, Position, Voter

Hard = tuple[int, Voter | None]
"""Epoch, and the vote in it."""


class BrokenPromiseError(Exception):
    """A promise was broken; the message begins with the checker's name."""


class Checker:
    """Every hook, doing nothing."""

    name: ClassVar[str] = ""

    def led(
        self, group: GroupFacts, voter: Voter, epoch: int, voters: tuple[Voter, ...], unclean: bool
    ) -> None:
        """A replica leads an epoch, by a clean election or not."""

    def stood(self, group: GroupFacts, voter: Voter, epoch: int, mark: Mark) -> None:
        """A replica leads an epoch; `mark` was the last of its log when it was elected."""

    def epoch_moved(self, group: GroupFacts, voter: Voter, old: int, new: int) -> None:
        """A replica's epoch, in one life of its process."""

    def commit_moved(self, group: GroupFacts, voter: Voter, old: Position, new: Position) -> None:
        """A replica's commit point, in one life of its process."""

    def leader_committed(
        self,
        group: GroupFacts,
        voter: Voter,
        commit: Position,
        sets: tuple[tuple[Voter, ...], ...],
        excused: dict[Voter, Position],
    ) -> None:
        """A leader moved its commit point, by one of these sets of voters.

        `excused`: what voters of an async group had when they lost power, as long as the leader
        can't know of that: their acknowledgements count, for they give no vote until they are well.
        """

    def has_committed(self, group: GroupFacts, voter: Voter, entry: Entry) -> None:
        """A replica holds this batch below its commit point."""

    def first_committed(self, group: GroupFacts, entry: Entry) -> None:
        """A batch is committed, and nobody was seen to have it committed before."""

    def has_mark(self, group: GroupFacts, voter: Voter, mark: Mark) -> None:
        """A replica holds this mark at or below its commit point."""

    def voted(self, group: GroupFacts, voter: Voter, epoch: int, candidate: Voter) -> None:
        """A vote is durable."""

    def restarted(
        self, group: GroupFacts, voter: Voter, end: Position, hard: Hard, *, is_exact: bool
    ) -> None:
        """A log was recovered; `is_exact`: no turn was under way when its process ended."""

    def healed(self, group: GroupFacts, voter: Voter, end: Position, had: Position) -> None:
        """A voter that had `had` when it lost power counts as well again, with what it has now."""

    def acknowledged(self, group: GroupFacts, ack: Acknowledged) -> None:
        """A producer was told success, `acks=all`."""

    def denied(self, group: GroupFacts, number: int) -> None:
        """A producer was told that its records are not in the log and will never be."""

    def shown(
        self, group: GroupFacts, reader: str, position: int, entries: list[Entry], high: int
    ) -> None:
        """A reader at `position` was given these batches and this high watermark."""

    def leased(self, group: GroupFacts, voter: Voter, epoch: int, high: int) -> None:
        """A leader may answer by its lease; clocks run as they should."""

    def latest_told(self, group: GroupFacts, voter: Voter, latest: int, floor: int) -> None:
        """A client that asked when all below `floor` was committed was told where the log ends; clocks
        run as they should."""

    def sent_back(self, group: GroupFacts, voter: Voter, position: int) -> None:
        """A reader at `position` was told that the log ends before it; clocks run as they should."""

    def settled(
        self, group: GroupFacts, voter: Voter, entries: list[Entry], log_start: int, end: Position
    ) -> None:
        """All faults are over: a replica's whole log."""

    def doubted(self, voter: Voter, what: str, is_rotten: bool) -> None:
        """A broker takes its journal or a log for damaged, or does not start; `is_rotten`: rightly so."""

    def holds(
        self,
        group: GroupFacts,
        voter: Voter,
        offsets: range,
        entries: list[Entry],
        now: int,
        is_all: bool,
    ) -> None:
        """All that a replica of a compacted topic has of these offsets, which are committed;
        `is_all`: they begin where its log does."""

    def fail(self, message: str) -> None:
        raise BrokenPromiseError(f"{self.name}: {message}")


class NothingIsRottenByItself(Checker):
    """Whoever takes a torn write for a rotten one gives up its name, and with it what it promised."""

    name = "a disk is doubted only when it is bad"

    def doubted(self, voter: Voter, what: str, is_rotten: bool) -> None:
        if not is_rotten:
            self.fail(f"{voter}: {what}, but no bit was flipped and nothing was full or failed")


class OneLeaderPerEpoch(Checker):
    name = "one leader per epoch"

    def led(
        self, group: GroupFacts, voter: Voter, epoch: int, voters: tuple[Voter, ...], unclean: bool
    ) -> None:
        if group.leaders.setdefault(epoch, voter) != voter:
            self.fail(f"epoch {epoch} is led by {group.leaders[epoch]} and by {voter}")


class LeadersHaveDurableVotes(Checker):
    """Of a majority of the voters that they know; so nobody who forgot its vote counts."""

    name = "leaders have durable votes"

    def led(
        self, group: GroupFacts, voter: Voter, epoch: int, voters: tuple[Voter, ...], unclean: bool
    ) -> None:
        votes = group.votes.get(epoch, {})
        # Who went on to a later epoch in the same turn can't vote in this one again either.
        given = [
            v
            for v in voters
            if votes.get(v) == voter or (v not in votes and group.hard.get(v, (0, None))[0] > epoch)
        ]
        if not unclean and len(given) < majority(len(voters)):
            self.fail(f"{voter} leads epoch {epoch} with the votes of {given}, of {voters}")


class LeadersKnowTheVoters(Checker):
    """A committed change of voters is never lost, not even with the tails of async logs: who was
    elected had it, or a further one. Else the group that it was leads beside the one that it is.

    Votes may arrive late, when their givers are in a later epoch long since: such a leader finds no
    majority, and is none of this."""

    name = "nobody is elected by voters that were replaced"

    def has_mark(self, group: GroupFacts, voter: Voter, mark: Mark) -> None:
        known = group.voters_since
        if known is None or (mark[:2] > known[:2] and mark.voters != known.voters):
            group.voters_since = mark

    def stood(self, group: GroupFacts, voter: Voter, epoch: int, mark: Mark) -> None:
        known = group.voters_since
        if known is None or mark[:2] >= known[:2] or mark.voters == known.voters:
            return
        left = [v for v in mark.voters if group.hard.get(v, (0, None))[0] <= epoch]
        if len(left) >= majority(len(mark.voters)):
            self.fail(f"{voter} leads epoch {epoch} with {mark}, but {known} is committed")


class VotesOnce(Checker):
    name = "one vote per epoch"

    def voted(self, group: GroupFacts, voter: Voter, epoch: int, candidate: Voter) -> None:
        before = group.votes.setdefault(epoch, {}).setdefault(voter, candidate)
        if before != candidate:
            self.fail(f"{voter} voted for {before} and {candidate} in epoch {epoch}")


class NothingGoesBack(Checker):
    name = "epochs and high watermarks never go back"

    def epoch_moved(self, group: GroupFacts, voter: Voter, old: int, new: int) -> None:
        if new < old:
            self.fail(f"{voter}: epoch {old}, then {new}")

    def commit_moved(self, group: GroupFacts, voter: Voter, old: Position, new: Position) -> None:
        # A learner follows a leader that came back without what it had committed alone, unsynced.
        if (new < old or new.offset < old.offset) and not group.is_forfeited:
            self.fail(f"{voter}: commit {old}, then {new}")


class SurvivesRestarts(Checker):
    """What was durable under a name is there when the name comes back."""

    name = "a broker with an empty disk is never its predecessor"

    def restarted(
        self, group: GroupFacts, voter: Voter, end: Position, hard: Hard, *, is_exact: bool
    ) -> None:
        known = group.hard.get(voter)
        if known is not None:
            # A vote of the turn that was under way may have survived; none may be forgotten.
            is_kept = hard[0] > known[0] or (hard[0] == known[0] and known[1] in (None, hard[1]))
            if not is_kept:
                self.fail(f"{voter} had epoch and vote {known} durably and came back with {hard}")
        had = group.durable.get(voter)
        if had is not None and end < had and is_exact and not group.is_async:
            self.fail(f"{voter} had {had} durably and came back with {end}")


class CommitsAreDurable(Checker):
    """A leader's commit point is on the disks of a majority: nothing is promised too early."""

    name = "commits are durable on a majority"

    def leader_committed(
        self,
        group: GroupFacts,
        voter: Voter,
        commit: Position,
        sets: tuple[tuple[Voter, ...], ...],
        excused: dict[Voter, Position],
    ) -> None:
        if group.is_forfeited:
            return
        for voters in sets:
            ends = [max(group.durable.get(v, NOTHING), excused.get(v, NOTHING)) for v in voters]
            if sum(end >= commit for end in ends) >= majority(len(voters)):
                return
        durable = {v: group.durable.get(v) for v in sets[-1]}
        self.fail(f"{voter} committed {commit}, but durable are {durable}")


class ReplicasAgree(Checker):
    name = "replicas agree on every record"

    def has_committed(self, group: GroupFacts, voter: Voter, entry: Entry) -> None:
        if group.is_forfeited:
            return
        if entry.end not in group.entries:
            self._first(group, voter, entry)
        elif not group.agrees(entry):
            self.fail(f"{voter} has {entry}, elsewhere it is {group.entries[entry.end]}")

    def _first(self, group: GroupFacts, voter: Voter, entry: Entry) -> None:
        # What only a damaged replica had committed was not looked at when it was trimmed.
        if entry.base != group.noted and not (group.was_rotten and entry.base > group.noted):
            self.fail(f"{voter} committed {entry}, but the log ends at {group.noted}")
        known = group.by_number.get(entry.number)
        # A producer whose batches retention took is a new one to the next leader.
        if known is not None and known.end > group.log_start:
            self.fail(f"{voter}: attempt {entry.number} is at {group.by_number[entry.number]} too")
        group.entries[entry.end] = entry
        group.by_number[entry.number] = entry
        group.noted = entry.end

    def has_mark(self, group: GroupFacts, voter: Voter, mark: Mark) -> None:
        if group.is_forfeited:
            return
        known = group.marks.setdefault(mark[:2], mark)
        if known != mark:
            self.fail(f"{voter} has {mark}, elsewhere it is {known}")

    def settled(
        self, group: GroupFacts, voter: Voter, entries: list[Entry], log_start: int, end: Position
    ) -> None:
        if group.is_forfeited:
            return
        for entry in entries:
            if not group.agrees(entry):
                self.fail(f"{voter} holds {entry}, which was never committed")
        if end.offset != group.high:
            self.fail(f"{voter} ends at {end}, committed is {group.high}")


class NothingAcknowledgedIsLost(Checker):
    name = "no acknowledged record is lost"

    def acknowledged(self, group: GroupFacts, ack: Acknowledged) -> None:
        if group.is_forfeited:
            return
        entry = group.by_number.get(ack.number)
        if entry is None and group.was_rotten:
            pass  # Its leader could not be read; the end will show.
        elif entry is None or entry.base != ack.base:
            self.fail(f"{ack} was acknowledged; committed is {entry}")
        group.acknowledged.append(ack)

    def settled(
        self, group: GroupFacts, voter: Voter, entries: list[Entry], log_start: int, end: Position
    ) -> None:
        if group.is_forfeited or group.is_compacted:
            return
        held = {entry.number for entry in entries}
        for ack in group.acknowledged:
            entry = group.by_number.get(ack.number)
            stop = entry.end if entry is not None else ack.base + 1
            if ack.number not in held and stop > log_start:
                self.fail(f"{voter} lost {ack}")


class AcknowledgedIsOnEnoughDisks(Checker):
    """Where `min.insync.replicas` wants more than the majority that makes a commit."""

    name = "acknowledged records are on min.insync.replicas disks"

    def acknowledged(self, group: GroupFacts, ack: Acknowledged) -> None:
        entry = group.by_number.get(ack.number)
        if entry is None or group.is_forfeited or group.is_async:
            return
        least = min([group.min_insync, *map(len, group.configurations())])
        have = [
            voter
            for voter, end in group.durable.items()
            if end.epoch >= entry.epoch and end.offset >= entry.end
        ]
        if len(have) < least:
            self.fail(f"{entry} was acknowledged with {least} wanted, but it is on {have}")


class DenialsAreDefinite(Checker):
    """An error that says "not written" must never turn out to be wrong."""

    name = "definite errors are definite"

    def __init__(self) -> None:
        self._denied: dict[int, None] = {}

    def denied(self, group: GroupFacts, number: int) -> None:
        self._denied[number] = None
        if number in group.by_number and not group.is_forfeited:
            self.fail(f"attempt {number} was denied and is at {group.by_number[number]}")

    def has_committed(self, group: GroupFacts, voter: Voter, entry: Entry) -> None:
        if entry.number in self._denied and not group.is_forfeited:
            self.fail(f"attempt {entry.number} was denied and committed at {entry.base}")


class NothingUncommittedIsShown(Checker):
    name = "nothing above the commit point is shown"

    def shown(
        self, group: GroupFacts, reader: str, position: int, entries: list[Entry], high: int
    ) -> None:
        if group.is_forfeited:
            return
        if high > group.high:
            self.fail(f"{reader} was told high watermark {high}, committed is {group.high}")
        for entry in entries:
            if not group.agrees(entry):
                self.fail(f"{reader} saw {entry}; committed is {group.entries.get(entry.end)}")


class LeasesAreTrue(Checker):
    """Nobody else leads, and nobody has committed what the reader would not see."""

    name = "a read by lease is the newest"

    def leased(self, group: GroupFacts, voter: Voter, epoch: int, high: int) -> None:
        newest = max(group.leaders, default=epoch)
        if newest > epoch:
            self.fail(f"{voter} has a lease in epoch {epoch}, but {newest} has a leader")
        if high < group.high and not group.is_forfeited:
            self.fail(f"{voter} would answer {high} by its lease, committed is {group.high}")


class LatestIsTheNewest(Checker):
    """Whoever learns of a record and then asks where the log ends is not told that it ends before."""

    name = "the latest offset is the newest"

    def latest_told(self, group: GroupFacts, voter: Voter, latest: int, floor: int) -> None:
        if latest < floor and not group.is_forfeited:
            self.fail(f"{voter} told that the log ends at {latest}, committed was {floor}")


class ReadersAreNotSentBack(Checker):
    """A client that is told so begins anew, or goes on at the end and misses what lies between."""

    name = "no reader of what was committed is told that the log ends before"

    def sent_back(self, group: GroupFacts, voter: Voter, position: int) -> None:
        if position <= group.high and not group.is_forfeited:
            self.fail(f"{voter} told a reader at {position} so, committed is {group.high}")


class ReadersSeeEachRecordOnce(Checker):
    name = "each consumer sees each record once and in order"

    def shown(
        self, group: GroupFacts, reader: str, position: int, entries: list[Entry], high: int
    ) -> None:
        at = position
        for entry in entries:
            # Only the first batch may begin below: readers skip what they have had.
            if group.is_compacted and at <= entry.base:
                pass  # What lies between is missing; `CompactionTakesOnlyTheOld` asks why.
            elif not entry.base <= at < entry.end or (entry.base != at and at != position):
                self.fail(f"{reader} at {at} was given {entry}")
            at = entry.end


class CompactionTakesOnlyTheOld(Checker):
    """A record is missing only if a later one with its key is committed, or if it is a tombstone whose
    time is over. What is left is what was sent. A tombstone stays as long as what it deletes."""

    name = "compaction takes only what was replaced"

    def first_committed(self, group: GroupFacts, entry: Entry) -> None:
        if not group.is_compacted:
            return
        for offset, sent in enumerate(records_of(entry.number), entry.base):
            # Of batches that were committed before it was seen; it matters for tombstones only.
            group.keyed[offset] = Keyed(sent.key, sent.value is None, -1)
            group.newest[sent.key] = max(offset, group.newest.get(sent.key, -1))

    def holds(
        self,
        group: GroupFacts,
        voter: Voter,
        offsets: range,
        entries: list[Entry],
        now: int,
        is_all: bool,
    ) -> None:
        self._date(group, offsets, now)
        held = self._judge(group, str(voter), offsets, entries, now)
        tombstones = group.tombstones.setdefault(voter, {})
        if is_all:
            for offset in [o for o in tombstones if o in offsets and o not in held]:
                key = tombstones.pop(offset)
                kept = [o for o, sent in held.items() if sent.key == key]
                if kept and max(kept) < offset:
                    self.fail(f"{voter} took the tombstone {offset} of {key!r} and left {kept}")
        tombstones.update({o: sent.key for o, sent in held.items() if sent.value is None})

    def shown(
        self, group: GroupFacts, reader: str, position: int, entries: list[Entry], high: int
    ) -> None:
        if group.is_compacted and entries and not group.is_forfeited:
            self._judge(group, reader, range(position, entries[-1].end), entries, None)

    def _date(self, group: GroupFacts, offsets: range, now: int) -> None:
        for offset in offsets:
            known = group.keyed.get(offset)
            if known is not None and known.at < 0:
                group.keyed[offset] = known._replace(at=now)

    def _judge(
        self, group: GroupFacts, who: str, offsets: range, entries: list[Entry], now: int | None
    ) -> dict[int, Sent]:
        """What is there, by offset, if nothing is wrong with it or with what is not there."""
        held: dict[int, Sent] = {}
        for entry in entries:
            there = opened(entry)
            if there:
                self._compare(group, who, entry, there)
                held.update(there)
        for offset in offsets:
            known = group.keyed.get(offset)
            if offset in held or known is None or group.newest[known.key] > offset:
                continue
            is_over = now is None or now - known.at >= group.tombstones_ms
            if not (known.is_tombstone and is_over):
                self.fail(f"{who} lacks {offset}, the newest committed of {known.key!r}")
        return held

    def _compare(self, group: GroupFacts, who: str, entry: Entry, there: dict[int, Sent]) -> None:
        known = group.entries.get(entry.end)
        if known is None:
            return
        sent = dict(enumerate(records_of(known.number), known.base))
        for offset, record in there.items():
            if sent.get(offset) != record:
                self.fail(f"{who} has {record} at {offset}; sent was {sent.get(offset)}")


class HealedVotersHaveAll(Checker):
    """Who votes again has all that it can ever have acknowledged, or what came in its place."""

    name = "a voter that lost its tail is well only when it has it again"

    def healed(self, group: GroupFacts, voter: Voter, end: Position, had: Position) -> None:
        if end < had:
            self.fail(f"{voter} had {had}, and is well with {end}")


class UncleanOnlyWhenNecessary(Checker):
    """Records may be given up only if too few voters remember all that they acknowledged.

    Of the voters that the elected one knows: `LeadersKnowTheVoters` says that these are in force.
    """

    name = "an unclean election needs a majority that lost power"

    def led(
        self, group: GroupFacts, voter: Voter, epoch: int, voters: tuple[Voter, ...], unclean: bool
    ) -> None:
        if not unclean:
            return
        well = [v for v in voters if v not in group.shaken]
        if not group.is_async or len(well) >= majority(len(voters)):
            self.fail(f"{voter} was elected uncleanly in epoch {epoch}, but {well} are well")
        group.is_forfeited = True


ALL: tuple[type[Checker], ...] = (
    NothingIsRottenByItself,
    OneLeaderPerEpoch,
    UncleanOnlyWhenNecessary,
    HealedVotersHaveAll,
    LeadersHaveDurableVotes,
    LeadersKnowTheVoters,
    VotesOnce,
    NothingGoesBack,
    SurvivesRestarts,
    CommitsAreDurable,
    ReplicasAgree,
    NothingAcknowledgedIsLost,
    AcknowledgedIsOnEnoughDisks,
    DenialsAreDefinite,
    NothingUncommittedIsShown,
    LeasesAreTrue,
    LatestIsTheNewest,
    ReadersAreNotSentBack,
    ReadersSeeEachRecordOnce,
    CompactionTakesOnlyTheOld,
)
HOOKS = [
    name for name in vars(Checker) if not name.startswith("_") and name not in ("name", "fail")
]


class Checkers:
    """Calls every checker that cares: one attribute per hook, a tuple of bound methods each."""

    def __init__(self, kinds: tuple[type[Checker], ...] = ALL) -> None:
        self.all = [kind() for kind in kinds]
        for hook in HOOKS:
            base = getattr(Checker, hook)
            bound = [getattr(c, hook) for c in self.all if getattr(type(c), hook) is not base]
            setattr(self, hook, tuple(bound))


__all__ = ["ALL", "BrokenPromiseError", "Checker", "Checkers", "position_of"]
