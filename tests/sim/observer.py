"""Looks at every replica of a broker after every event, and tells the checkers what changed.

Looking is the inner loop of a simulation, so it compares a few fields and calls a checker only when one
of them moved. It reads the core's state directly: nothing that it needs is a fact that production code
should have to offer.
"""

from typing import TYPE_CHECKING

from sim.batches import Entry, RottenBatchError, read_log
from sim.checkers import BrokenPromiseError, Checkers
from sim.keyed import FILLER, RECORDS_MAX
from sim.ledger import GroupFacts

from dmq.broker.multiraft.replica import Replica
from dmq.errors import StorageError
from dmq.raft.core import RaftCore
from dmq.raft.marks import Marks
from dmq.raft.quorum import NOTHING
from dmq.raft.state import State
from dmq.raft.view import position_of
from dmq.storage.items import Damage
from dmq.storage.log import Log
from dmq.types import Mark, Position, Voter

if TYPE_CHECKING:
    from sim.metadata import Topic
    from sim.world import World


class Watched:
    """One replica in one life of its process."""

    __slots__ = (
        "checked",
        "commit",
        "core",
        "damage",
        "epoch",
        "facts",
        "is_damaged",
        "is_recovering",
        "led",
        "life",
        "log",
        "marks",
        "replica",
        "state",
        "topic",
        "unclean",
        "voter",
        "voters",
    )

    def __init__(self, topic: "Topic", replica: Replica) -> None:
        self.topic = topic
        self.facts = topic.facts
        self.replica = replica
        self.core: RaftCore = replica.core
        self.log: Log = replica.log
        self.state: State = replica.core._state
        self._begin()

    def _begin(self) -> None:
        state = self.state
        self.voter = state.me
        self.epoch = state.epoch
        self.commit = state.log.commit
        self.checked = 0
        self.marks: Marks | None = None
        self.voters = state.voters
        self.led = -1
        self.unclean = 0
        self.is_recovering = state.is_recovering
        self.is_damaged = state.is_damaged
        self.life = self.log.life
        self.damage: dict[Damage, None] = {}
        """All that the replica found since its log was whole."""

    def begin_again(self) -> None:
        """The replica has another log."""
        self.core, self.log = self.replica.core, self.replica.log
        self.state = self.core._state
        self.facts.tombstones.pop(self.voter, None)
        self._begin()

    def look_through(self) -> None:
        """What was looked at before may be there no more: it is compacted, or was reset."""
        self.checked = 0
        if self.log.life != self.life:
            self.facts.tombstones.pop(self.voter, None)


class Observer:
    """See the module."""

    def __init__(self, world: "World", checkers: Checkers) -> None:
        self._world = world
        self._checkers = checkers
        self._reached = world.reached

    def look(self, watched: Watched) -> None:
        """Called after every input of its broker."""
        if watched.log.life != watched.life or watched.replica.core is not watched.core:
            self._begin_again(watched)
        state = watched.state
        log = state.log
        if state.epoch != watched.epoch:
            for check in self._checkers.epoch_moved:
                check(watched.facts, watched.voter, watched.epoch, state.epoch)
            watched.epoch = state.epoch
        if state.leading is not None:
            self._look_at_leader(watched)
        voters = watched.voters
        if log.marks is not watched.marks:
            self._marks_changed(watched)
        if log.commit != watched.commit:
            self._commit_moved(watched, voters)
        elif watched.checked < log.commit.offset:
            self._check_entries(watched)
        if state.is_recovering != watched.is_recovering or watched.facts.shaken:
            self._health_changed(watched)
        if state.is_damaged or watched.is_damaged:
            self._look_at_damage(watched)

    def _begin_again(self, watched: Watched) -> None:
        """Its log was reset, or is another one."""
        if watched.replica.core is not watched.core:
            watched.begin_again()
            self._reached["began again"] += 1
        elif watched.facts.is_compacted:
            watched.look_through()
        watched.life = watched.log.life

    def _look_at_leader(self, watched: Watched) -> None:
        epoch = watched.state.epoch
        if watched.led != epoch:
            self._led(watched)
        elif watched.facts.newest_led > epoch:
            self._world.brokers[watched.voter.node].check_lease(watched.topic)

    def _health_changed(self, watched: Watched) -> None:
        if watched.is_recovering and not watched.state.is_recovering:
            self._reached["recovering voter healed"] += 1
            self._healed(watched)
            if not watched.is_damaged:
                self._whole_again(watched)
        watched.is_recovering = watched.state.is_recovering
        if not watched.is_recovering and watched.voter in watched.facts.shaken:
            del watched.facts.shaken[watched.voter]
            watched.facts.mending[watched.voter] = None

    def _healed(self, watched: Watched) -> None:
        had = watched.facts.shaken.get(watched.voter)
        if had is not None and watched.state.leading is None:
            for check in self._checkers.healed:
                check(watched.facts, watched.voter, watched.state.log.durable, had)

    def _look_at_damage(self, watched: Watched) -> None:
        was_damaged, watched.is_damaged = watched.is_damaged, watched.state.is_damaged
        watched.damage.update(dict.fromkeys(watched.log.damage))
        if not was_damaged:
            self._reached["damage found"] += 1
            broker = self._world.brokers[watched.voter.node]
            is_rotten = watched.voter in watched.facts.damaged or broker.was_rotten
            for check in self._checkers.doubted:
                check(watched.voter, f"{watched.topic} is damaged: {watched.log.damage}", is_rotten)
        elif not watched.is_damaged:
            self._reached["damaged replica repaired"] += 1
            self._whole_again(watched)

    def _whole_again(self, watched: Watched) -> None:
        """As far as the replica knows: of two flipped bits it may have met one, or none."""
        disk, directory = self._world.brokers[watched.voter.node].disk, watched.log.directory
        for segment, start, _ in watched.damage:
            disk.mended(f"{directory}/{segment:020d}.log", start)
        watched.damage = {}
        if not disk.has_flips(directory):
            watched.facts.damaged.pop(watched.voter, None)
            # What it committed while its bytes were bad nobody may have told of yet.
            watched.checked = 0
            self._check_entries(watched)

    def _led(self, watched: Watched) -> None:
        state = watched.state
        watched.led = state.epoch
        is_unclean = state.unclean_elections > watched.unclean
        watched.unclean = state.unclean_elections
        self._world.say("leads", watched.voter.node, watched.topic, state.epoch)
        self._world.elections += 1
        if is_unclean:
            self._reached["unclean quorum"] += 1
        elif watched.is_recovering:
            self._reached["recovering replica elected"] += 1
        if watched.voter not in state.voters:
            self._reached["learner elected"] += 1
        for check in self._checkers.led:
            check(watched.facts, watched.voter, state.epoch, state.voters, is_unclean)
        before = [mark for mark in state.log.marks if mark.epoch < state.epoch]
        for check in self._checkers.stood if before else ():
            check(watched.facts, watched.voter, state.epoch, before[-1])
        watched.facts.newest_led = max(watched.facts.newest_led, state.epoch)
        for broker in self._world.brokers.values():
            broker.check_lease(watched.topic)  # Of those that led before, nobody may have one.

    def _marks_changed(self, watched: Watched) -> None:
        before, marks = watched.marks, watched.state.log.marks
        watched.marks, watched.voters = marks, watched.state.voters
        if not marks.items:
            return
        watched.facts.marks_of[watched.voter] = marks
        self._check_marks(watched, NOTHING)  # What is kept must be what it was.
        if before is None or not before.items:
            return
        old, new = before.items, marks.items
        if old[-1] not in new:
            self._note_cut(old, new)
        elif len(new) > 2:
            a, b, c = new[-3:]
            if a.offset == b.offset == c.offset and a.epoch < b.epoch < c.epoch:
                self._reached["two empty epochs in a row"] += 1
        if new[-1].voters != old[-1].voters and len(new[-1].voters) > len(old[-1].voters):
            self._reached["learner promoted"] += 1

    def _note_cut(self, old: tuple[Mark, ...], new: tuple[Mark, ...]) -> None:
        common = [mark for mark in old if mark in new]
        if not common:
            self._reached["reset"] += 1
            return
        self._reached["cut of a mark"] += 1
        if common[-1].voters != old[-1].voters:
            self._reached["configuration rolled back"] += 1

    def _commit_moved(self, watched: Watched, voters_before: tuple[Voter, ...]) -> None:
        state, facts, voter = watched.state, watched.facts, watched.voter
        old, new = watched.commit, state.log.commit
        watched.commit = new
        facts.high = max(facts.high, new.offset)
        facts.log_start = max(facts.log_start, state.log.log_start)
        for check in self._checkers.commit_moved:
            check(facts, voter, old, new)
        if state.leading is not None:
            # What it committed may have let it change the voters in the same moment.
            excused = self._excused(watched)
            for check in self._checkers.leader_committed:
                check(facts, voter, new, (voters_before, state.voters), excused)
        self._check_marks(watched, old)
        self._check_entries(watched)

    def _excused(self, watched: Watched) -> dict[Voter, Position]:
        """Shaken voters whose new life this leader's group has not been told of."""
        shaken, leading = watched.facts.shaken, watched.state.leading
        if not shaken or leading is None:
            return {}
        brokers = self._world.brokers
        links = brokers[watched.voter.node].node.links
        found = {}
        for voter, had in shaken.items():
            other, link = brokers[voter.node], links.by_peer.get(voter)
            progress = leading.followers.get(voter)
            is_told = (
                other.is_up
                and link is not None
                and progress is not None
                and progress.session == link.session
                and link.hello.incarnation == other.node.hello.incarnation
            )
            if not is_told:
                found[voter] = had
        return found

    def _check_marks(self, watched: Watched, above: Position) -> None:
        commit = watched.state.log.commit
        for mark in watched.state.log.marks.items:
            if above < position_of(mark) <= commit:
                for check in self._checkers.has_mark:
                    check(watched.facts, watched.voter, mark)

    def _check_entries(self, watched: Watched) -> None:
        """Compare what became committed, as far as its bytes are in the files already."""
        log = watched.log
        stop = min(watched.commit.offset, log.readable_end)
        start = max(watched.checked, log.log_start)
        facts, voter = watched.facts, watched.voter
        stop = _whole(facts, stop)
        if start < stop and not log.damage:
            may_rot = voter in facts.damaged
            try:
                entries = read_log(log, start, stop, keeps=facts.is_compacted)
            except (RottenBatchError, StorageError) as error:
                if not may_rot:
                    raise BrokenPromiseError(f"{voter} {watched.topic}: {error}") from error
                entries = []
            if may_rot:
                entries = _trusted(watched, entries)
            for entry in _with_number(facts, entries):
                is_new = entry.end not in watched.facts.entries
                for check in self._checkers.has_committed:
                    check(watched.facts, watched.voter, entry)
                if is_new and not watched.facts.is_forfeited:
                    for check in self._checkers.first_committed:
                        check(watched.facts, entry)
            self._world.ledger.committed += len(entries)
            if facts.is_compacted and not may_rot:
                self.check_compacted(watched, start, stop, entries)
        watched.checked = max(watched.checked, stop)

    def check_compacted(
        self, watched: Watched, start: int, stop: int, entries: list[Entry]
    ) -> None:
        """All that a replica of a compacted topic has of this range."""
        facts, is_all = watched.facts, start == watched.log.log_start
        if facts.is_forfeited:
            return
        _check_edges(watched, entries)
        for check in self._checkers.holds:
            check(facts, watched.voter, range(start, stop), entries, self._world.clock.now, is_all)
        sent = _with_number(facts, entries)
        if not is_all and sum(entry.end - entry.base for entry in sent) < stop - start:
            self._reached["compacted log sent to a follower"] += 1

    def durable(self, watched: Watched, *, is_synced: bool) -> None:
        """The turn that was begun is on disk; without a sync, an async log's bytes are written."""
        facts, voter, log = watched.facts, watched.voter, watched.log
        begun = log._begun
        if is_synced or log.is_async:
            # The memory of a log that could not be repaired counts: it gives no other vote.
            had = facts.durable.get(voter) if watched.replica.memory else None
            facts.durable[voter] = begun.end if had is None else max(had, begun.end)
        if is_synced:
            epoch, vote = hard = (begun.epoch, begun.vote)
            if facts.hard.get(voter) != hard:
                facts.hard[voter] = hard
                if vote is not None:
                    for check in self._checkers.voted:
                        check(facts, voter, epoch, vote)

    def ended(self, watched: Watched, *, is_noting: bool) -> None:
        """Its process ends; `is_noting`: the disk does not know yet all that a flush is to note."""
        if not is_noting:
            watched.facts.mending.pop(watched.voter, None)

    def restarted(self, watched: Watched, *, is_exact: bool) -> None:
        """Its log was recovered under the name that it had before, or a new one."""
        facts, voter, log = watched.facts, watched.voter, watched.log
        if voter in facts.mending:
            del facts.mending[voter]
            if log.is_recovering:
                facts.shake(voter)
        for check in self._checkers.restarted:
            check(
                facts,
                voter,
                log.end,
                (log.epoch, log.vote),
                is_exact=is_exact and not watched.replica.memory,
            )
        if not watched.replica.memory:
            facts.durable[voter] = log.end
        facts.hard[voter] = (log.epoch, log.vote)
        if log.vote is not None:
            for check in self._checkers.voted:
                check(facts, voter, log.epoch, log.vote)


def _check_edges(watched: Watched, entries: list[Entry]) -> None:
    """A log can be cut at each of its marks, and begins where one of them is: between batches."""
    edges = {mark.offset for mark in watched.log.marks}
    for entry in entries:
        across = edges.intersection(range(entry.base + 1, entry.end))
        if across:
            raise BrokenPromiseError(f"{watched.voter}: {entry} lies across marks at {across}")


def _with_number(facts: GroupFacts, entries: list[Entry]) -> list[Entry]:
    """Those that somebody sent."""
    if not facts.is_compacted:
        return entries
    return [entry for entry in entries if entry.number != FILLER]


def _trusted(watched: Watched, entries: list[Entry]) -> list[Entry]:
    """Of a log with a flipped bit: offset and epoch of a batch lie outside its CRC."""
    facts, marks = watched.facts, watched.log.marks
    found, noted = [], facts.noted
    for entry in entries:
        if facts.agrees(entry):
            found.append(entry)
        elif entry.base == noted and marks.epoch_at(entry.base) == entry.epoch:
            found.append(entry)
            noted = entry.end
    return found


def _whole(facts: GroupFacts, stop: int) -> int:
    """The end of the last batch that lies whole below `stop`: a log start, and with it the commit point
    of who follows, may lie amid a batch. Matters only where compaction leaves gaps."""
    if not facts.is_compacted:
        return stop
    for end in range(stop + 1, stop + RECORDS_MAX):
        entry = facts.entries.get(end)
        if entry is not None and entry.base < stop:
            return entry.base
    return stop
