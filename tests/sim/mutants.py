"""Rules broken on purpose, one at a time, as patches of the production code: each must be noticed.

A mutant has a mix that makes its kind of trouble likely, and the number of seeds within which a checker,
or an assertion of the product, must have fired. `python -m tests.sim --mutants` runs all.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch
from uuid import UUID

from sim.network import Weather
from sim.outcome import Outcome, run_seed
from sim.swarm import FAULTS, OF_COMPACTION, Compacting, Mix, draw

from dmq.broker.compaction import Compaction
from dmq.broker.multiraft import driven
from dmq.broker.multiraft.frames import GroupKey, Heartbeat
from dmq.broker.multiraft.links import Link, PeerLinks
from dmq.broker.multiraft.newest import Reads
from dmq.broker.multiraft.node import GroupNode
from dmq.broker.multiraft.registry import Registry
from dmq.broker.multiraft.repair import Repairs
from dmq.broker.multiraft.replica import Replica
from dmq.broker.multiraft.talk import Talk
from dmq.broker.multiraft.turn import GroupTurn
from dmq.errors import ErrorCode
from dmq.raft import candidate, changing, core, follower, leader, voting
from dmq.raft.facts import Facts
from dmq.raft.leading import durable_end, leading_of
from dmq.raft.marks import Marks
from dmq.raft.progress import Progress
from dmq.raft.quorum import NOTHING, majority_has
from dmq.raft.state import State
from dmq.raft.view import LogView
from dmq.storage import compaction_run, items, meta, recovery, replay
from dmq.storage.files import Files
from dmq.storage.log import Log
from dmq.storage.meta import Meta
from dmq.storage.restore import RecoveredLog
from dmq.storage.turn import Turn
from dmq.types import Position, Voter

Patch = tuple[Any, str, Any]
NOTICED = ("BrokenPromiseError", "AssertionError")
"""A checker of the simulator, or an assertion of the product."""


@dataclass(frozen=True)
class Mutant:
    """What is broken, where it shows, and how soon."""

    breaks: str
    patches: tuple[Patch, ...]
    mix: Callable[[int], Mix]
    within: int
    """So many seeds must be enough."""
    first: int = 0
    """Where to begin: a seed that is known to show it, as long as the story stays as it is."""


# --- worlds in which they show --------------------------------------------------------------------


def _world(names: str, **changes: Any) -> Callable[[int], Mix]:
    """The seed's own mix, with these faults only, often."""
    known = FAULTS | OF_COMPACTION
    faults = {name: known[name] for name in names.split()}

    def mix(seed: int) -> Mix:
        drawn = draw(seed)
        settings = {
            "brokers": 3,
            "replication_factor": 3,
            "topics": 1,
            "async_rate": 0.0,
            "faults": faults,
            "fault_every_ms": 150,
            "trouble_max": 1,
            "compaction": None,
            "follower_reads": min(drawn.follower_reads, 0.3),
        }
        return replace(drawn, **{**settings, **changes})

    return mix


_LOSSY = Weather(delay_ms=(0, 10), is_datagram=True, lost=0.02, doubled=0.1, late=0.3)
_CRASHES = _world("power_cut kill split isolate cut_one_way reset_link trim rotate")
_POWER = _world("power_cut_all power_cut crash_in_write trim", trouble_max=99)
_MEMBERS = _world("change_members split isolate kill transfer rotate", brokers=5)
_ROTATION = _world("rotate", acks_all_rate=0.3)
"""Deposed leaders with long tails meet voters of shorter, newer logs."""
_EMPTY = _world("rotate", produce_every_ms=5000, fetch_every_ms=30)
"""So little is produced that most epochs have no record."""
_SLOW = _world("rotate transfer reset_link split", sync_ms=(5, 60), acks_all_rate=0.3, window=4)
"""Much happens while a sync is under way, and followers keep up all the same."""
_DATAGRAMS = _world("kill split isolate cut_one_way", weather=_LOSSY)
_WIPES = _world("wipe kill split", brokers=4)
_FULL = _world("disk_full rotate kill reset_link", acks_all_rate=0.5)
_DEMANDING = _world("split isolate slow_link", min_insync=3)
_LEASES = _world("transfer cut_one_way slow_link rotate", fetch_every_ms=10, produce_every_ms=300)
"""Little is written: who has lost its leadership learns of it late, and is asked much."""
_READERS = _world("isolate cut_one_way pause", fetch_every_ms=10, follower_reads=1.0)
"""Readers go from one replica to the other, and meet leaders that don't know yet that they are not."""
_MOVES = _world("change_members split isolate kill", brokers=4, fault_every_ms=100)
_COMPACTED = _world(
    "power_cut kill crash_in_compaction split isolate rotate",
    compaction=Compacting(backoff_ms=50, work_ms=(0, 50)),
    segment_bytes=600,
)
_ALONE = _world(
    "rotate split isolate",
    compaction=Compacting(backoff_ms=50, work_ms=(0, 5)),
    segment_bytes=600,
    acks_all_rate=0.3,
)
"""Leaders that are cut off go on appending, and compact meanwhile."""
_UNSYNCED = _world("power_cut kill split isolate", async_rate=1.0)
_ROT = _world("rot_segment kill split", fetch_every_ms=20)
_FORGETFUL = _world("rot_journal isolate kill change_members", fetch_every_ms=20)


# --- patches --------------------------------------------------------------------------------------


def _ack_unsynced(s: State, now: int) -> list[Any]:
    s.log.durable = max(s.log.durable, s.verified)
    return _DURABLE(s, now)


def _count_learners(s: State, now: int) -> None:
    replicas = [s.me, *leading_of(s).followers]
    end = majority_has([durable_end(s, replica) for replica in replicas])
    if leader.may_commit(s, end) and s.log.commit_to(end):
        changing.take_next_step(s, now)


def _commit_one_less(durable_ends: Any) -> Position:
    ends = sorted(durable_ends, reverse=True)
    return ends[max(0, len(ends) // 2 - 1)]


def _vote_twice(s: State, *asked: Any) -> Any:
    refusal = _REFUSAL(s, *asked)
    return None if refusal is voting.Refusal.VOTED else refusal


def _vote_by_record(log: LogView) -> Position:
    marks = [m for m in log.marks if m.offset < log.end.offset]
    return Position(marks[-1].epoch if marks else -1, 0, log.end.offset)


def _always_cut(self: LogView, prev: Position, marks: Any, end: Position, unclean: int) -> bool:
    if self.has(end) and self.commit <= end < self.end:
        self.cut(end)
    return _JOIN(self, prev, marks, end, unclean)


def _trust_the_sync(self: LogView, stable: Position) -> bool:
    before, self.durable = self.durable, max(self.durable, min(stable, self.end))
    return self.durable > before


def _stable_is_begun(self: Log) -> bool:
    before, self.stable_end = self.stable_end, self._begun.end
    return self.stable_end != before


def _has_by_offset(self: LogView, p: Position) -> bool:
    return bool(self.marks.items) and p.offset <= self.end.offset


def _cut_keeps_voters(self: Marks, p: Position) -> Marks:
    kept = [m for m in self.items if m[:2] <= p[:2]]
    return Marks((*kept[:-1], kept[-1]._replace(voters=self.last.voters)))


def _forget_nothing(self: Progress, session: int, start: Position, now: int) -> None:
    self.session = session
    self.probe(start, now)


def _hear_anything(self: PeerLinks, peer: Voter, session: int, now: int) -> Any:
    link = self.by_peer.get(peer)
    return _HEARD(self, peer, link.session if link is not None else 0, now)


def _hard_without_vote(hard: items.Hard) -> bytes:
    return _ENCODE_HARD(hard._replace(vote=None))


_names: dict[int, UUID] = {}


def _same_name(files: Files) -> Meta:
    """The first directory id that this broker's dice gave out, for ever."""
    made = _FORMAT(files)
    number = getattr(files, "owner", 0)
    made = Meta(_names.setdefault(number, made.directory_id))
    meta.save(files, made)
    return made


def _well_again(self: RecoveredLog, host: Any) -> Log:
    log = _MAKE_LOG(self, host)
    log.is_recovering = False
    return log


def _read_to_the_end(self: Replica, *args: Any, **options: Any) -> Any:
    high, self.high_watermark = self.high_watermark, self.log.end_offset
    try:
        return _READ(self, *args, **options)
    finally:
        self.high_watermark = high


def _renew_from_receipt(self: PeerLinks, link: Link, echo: int) -> None:
    link.lease_at = link.heard_at


def _renew_always(self: Talk, link: Link, beat: Heartbeat, now: int) -> None:
    self._links.renew_lease(link, beat.echo)
    _ON_HEARTBEAT(self, link, beat, now)


def _ignore_digests(self: Talk, link: Link, beat: Heartbeat, now: int) -> None:
    _ON_HEARTBEAT(self, link, beat, now)
    link.mismatches = 0


def _leave_nothing(self: Registry, key: GroupKey) -> None:
    log = self.unclaimed.pop(key, None)
    if log is not None:
        self._store.drop(log)


def _vote_below_a_former_stay(s: State, end: Position, is_settled: bool, now: int) -> bool:
    return not s.has_lost_tail or s.may_recovering_vote(end, now, is_settled=is_settled)


def _join_over_marks(
    self: Any, batch: Any, *, original: Any = compaction_run._Output._widen
) -> None:
    self._edges = frozenset()
    original(self, batch)


def _all_are_ready(self: GroupNode, turn: GroupTurn, now: int) -> None:
    dirty, self._dirty = self._dirty, {}
    for replica in dirty:
        replica.core.ready(now)
        turn.replicas.append(replica)


def _take_the_newest(self: Any, records: Any, keeps_tombstones: bool) -> list[Any]:
    kept = _KEPT(self, records, keeps_tombstones)
    return [record for record in kept if record[0] != self._last_offsets.get(record[1])]


def _clean_to_the_end(self: Compaction, partition: Any, config: Any, limit: int, now: int) -> Any:
    return _CHOOSE(self, partition, config, partition.log.flushed_base, now)


def _swap_newest_first(self: Compaction, now: int, result: Any) -> None:
    _BEGIN_SWAPS(self, now, dataclasses.replace(result, swaps=result.swaps[::-1]))


def _swap_unsaid(self: Log, turn: Any, swap: items.Swap) -> None:
    """The files change places, and the journal is not told."""
    with patch.object(items, "encode_swap", lambda swap: b""):
        _BEGIN_SWAP(self, turn, swap)


def _read_no_further(self: Replica, offset: int, *args: Any, **kwargs: Any) -> Any:
    return [] if offset >= 30 else _READ(self, offset, *args, **kwargs)


def _take_torn_for_rotten(found: Any, *args: Any) -> None:
    _JUDGE(found, *args)
    if found.report.torn is not None:
        found.report.rotten = "a record that is torn"


_JUDGE = replay._judge
_IN_SYNC = leader._is_in_sync
_KEPT = compaction_run._Cleaning._kept
_CHOOSE = Compaction._choose
_BEGIN_SWAPS = Compaction._begin_swaps
_BEGIN_SWAP = Log._begin_swap
_HEARD = PeerLinks.heard
_ON_HEARTBEAT = Talk.on_heartbeat
_DURABLE = follower.durable
_REFUSAL = voting._refusal
_JOIN = LogView.join
_ENCODE_HARD = items.encode_hard
_FORMAT = recovery.format_directory
_MAKE_LOG = RecoveredLog.make_log
_READ = Replica.read

READS_AT_ONCE: tuple[Patch, ...] = (
    (Reads, "is_newest", lambda self, replica, asked_at: replica.core.is_leader),
)
"""Who leads as far as it knows answers all reads; shown by a scenario with coordinators, too."""

MUTANTS: dict[str, Mutant] = {
    "ack_before_sync": Mutant(
        "a follower acknowledges what is only in its page cache",
        ((follower, "durable", _ack_unsynced),),
        _CRASHES,
        5,
    ),
    "turns_without_sync": Mutant(
        "a turn ends before it is synced",
        ((Turn, "needs_sync", property(lambda self: False)),),
        _POWER,
        5,
    ),
    "commit_by_a_minority": Mutant(
        "one voter too few makes a commit",
        ((leader, "majority_has", _commit_one_less),),
        _CRASHES,
        5,
    ),
    "count_learners": Mutant(
        "learners count in commits", ((leader, "advance_commit", _count_learners),), _MEMBERS, 30
    ),
    "vote_not_durable": Mutant(
        "the vote is not part of the hard state",
        ((items, "encode_hard", _hard_without_vote),),
        _POWER,
        30,
    ),
    "vote_twice": Mutant(
        "a vote is given twice in an epoch",
        ((voting, "_refusal", _vote_twice),),
        _CRASHES,
        60,
        first=8,
    ),
    "vote_by_offset": Mutant(
        "a shorter log of a newer epoch is refused, a longer old one elected",
        ((voting, "is_up_to_date", lambda theirs, own: theirs.offset >= own.offset),),
        _ROTATION,
        20,
    ),
    "vote_by_record": Mutant(
        "votes look at the last record's epoch and ignore marks",
        ((voting, "election_end", _vote_by_record), (candidate, "election_end", _vote_by_record)),
        _EMPTY,
        20,
    ),
    "match_by_offset": Mutant(
        "logs are compared by offset only", ((LogView, "has", _has_by_offset),), _CRASHES, 60
    ),
    "always_cut": Mutant(
        "an old append cuts what came after it",
        ((LogView, "join", _always_cut),),
        _DATAGRAMS,
        30,
        first=1,
    ),
    "ack_unchecked": Mutant(
        "what was cut during a sync is acknowledged when it returns",
        ((LogView, "turn_ends", _trust_the_sync), (Log, "_move_stable", _stable_is_begun)),
        _SLOW,
        30,
    ),
    "no_rollback": Mutant(
        "a cut change of voters stays in force", ((Marks, "cut", _cut_keeps_voters),), _MEMBERS, 60
    ),
    "heal_to_the_commit": Mutant(
        "a voter that lost its tail is well when it has what is committed",
        ((follower, "healing_end", lambda leader_end, s: s.log.commit),),
        _UNSYNCED,
        20,
        first=2,
    ),
    "wiped_keeps_name": Mutant(
        "an empty disk comes back under its old name",
        ((recovery, "format_directory", _same_name),),
        _WIPES,
        10,
    ),
    "recovering_votes": Mutant(
        "an async log that lost its tail counts as well",
        ((RecoveredLog, "make_log", _well_again),),
        _UNSYNCED,
        60,
        first=7,
    ),
    "shows_the_end": Mutant(
        "reads go beyond the high watermark", ((Replica, "read", _read_to_the_end),), _CRASHES, 5
    ),
    "commit_old_epoch": Mutant(
        "what a majority has of an older epoch counts as committed",
        ((leader, "may_commit", lambda s, end: True),),
        _ROTATION,
        10,
    ),
    "commit_beyond_the_disk": Mutant(
        "a follower shows what its disk may yet refuse",
        ((follower, "_commit_told", lambda s: s.log.commit_to(min(s.told_commit, s.log.end))),),
        _FULL,
        20,
    ),
    "too_few_disks": Mutant(
        "min.insync.replicas is not waited for",
        ((Replica, "_verdict", lambda self, p, least, now: ErrorCode.NONE),),
        _DEMANDING,
        5,
    ),
    "latest_at_once": Mutant(
        "a new leader tells a high watermark that may be its predecessor's",
        ((Facts, "knows_latest", property(lambda self: self.is_leader)),),
        _LEASES,
        60,
    ),
    "lease_after_transfer": Mutant(
        "a leader that told its heir to stand has a lease",
        ((Facts, "may_lease", property(lambda self: self.is_leader)),),
        _LEASES,
        60,
    ),
    "lease_from_the_answer": Mutant(
        "a lease counts from the answer to a heartbeat, not from its sending",
        ((PeerLinks, "renew_lease", _renew_from_receipt),),
        _LEASES,
        10,
    ),
    "lease_of_strangers": Mutant(
        "a lease rests on peers that answer heartbeats and follow somebody else",
        ((Talk, "on_heartbeat", _renew_always),),
        _LEASES,
        15,
    ),
    "end_told_without_a_lease": Mutant(
        "a deposed leader tells readers of its successor's records that the log ends before them",
        ((Replica, "check_newest", lambda self, now: None),),
        _READERS,
        30,
    ),
    "reads_without_a_lease": Mutant(
        "who leads as far as it knows tells where its log ends",
        READS_AT_ONCE,
        _LEASES,
        10,
    ),
    "leaving_forgets": Mutant(
        "a replica that leaves takes its epoch and vote along",
        ((Registry, "park", _leave_nothing),),
        _MOVES,
        50,
    ),
    "former_stay_forgotten": Mutant(
        "a replica that is back does not know how far it once was",
        ((driven, "end_of", lambda memory: NOTHING),),
        _MOVES,
        50,
    ),
    "former_stay_outvoted": Mutant(
        "a replica that is back votes for one that has less than it once had",
        ((voting, "is_well_enough", _vote_below_a_former_stay),),
        _MOVES,
        50,
    ),
    "compaction_joins_over_marks": Mutant(
        "one batch stands for those before a mark and those behind it",
        ((compaction_run._Output, "_widen", _join_over_marks),),
        _world(
            "change_members split isolate kill",
            compaction=Compacting(backoff_ms=50, work_ms=(0, 50)),
            segment_bytes=600,
        ),
        10,
    ),
    "compaction_takes_the_newest": Mutant(
        "the newest record of a key goes with those that it replaced",
        ((compaction_run._Cleaning, "_kept", _take_the_newest),),
        _COMPACTED,
        5,
    ),
    "compaction_above_the_commit": Mutant(
        "closed segments are compacted that nobody has committed",
        ((Compaction, "_choose", _clean_to_the_end),),
        _ALONE,
        10,
    ),
    "newest_swapped_first": Mutant(
        "a tombstone goes before what it deletes",
        ((Compaction, "_begin_swaps", _swap_newest_first),),
        _COMPACTED,
        30,
    ),
    "swap_unsaid": Mutant(
        "a compacted file takes the place of others, and the journal does not say so",
        ((Log, "_begin_swap", _swap_unsaid),),
        _COMPACTED,
        5,
    ),
    "reads_stop": Mutant(
        "readers are told of nothing from offset 30 on",
        ((Replica, "read", _read_no_further),),
        _CRASHES,
        3,
    ),
    "torn_is_rotten": Mutant(
        "a write that the power cut short is taken for a promise that rotted",
        ((replay, "_judge", _take_torn_for_rotten),),
        _POWER,
        10,
    ),
    "journal_gone": Mutant(
        "a directory whose journal is gone is taken for a new one of the same name",
        ((recovery, "has_lost_all", lambda directory, report: False),),
        _FORGETFUL,
        20,
    ),
    "never_promoted": Mutant(
        "voters stay who they are, whatever the metadata want",
        ((changing, "take_next_step", lambda s, now: None),),
        _MEMBERS,
        3,
    ),
    "never_well_again": Mutant(
        "a voter that lost its tail never gives a vote again",
        ((follower, "healing_end", lambda leader_end, s: leader_end._replace(offset=1 << 40)),),
        _UNSYNCED,
        5,
    ),
    "never_repaired": Mutant(
        "nobody is asked for bytes that are bad here",
        ((Repairs, "ask", lambda self, links, sender, now: []),),
        _ROT,
        20,
    ),
    "never_in_sync_again": Mutant(
        "from the third leader on nobody counts as in sync",
        ((leader, "_is_in_sync", lambda s, *args: s.epoch < 3 and _IN_SYNC(s, *args)),),
        _CRASHES,
        3,
    ),
    "promised_before_it_is_taken": Mutant(
        "what waits for the next turn is sent and promised with this one",
        ((GroupNode, "_make_ready", _all_are_ready),),
        _world("split isolate rotate", topics=4, produce_every_ms=10),
        10,
    ),
}


ANY_SESSION: tuple[Patch, ...] = (
    (core, "is_current", lambda s, sender, session: s.links.session(sender) > 0),
    (PeerLinks, "heard", _hear_anything),
)
"""Frames of a former session count. Too rare for a random run: a scenario of its own shows it."""
MATCH_STAYS: tuple[Patch, ...] = ((Progress, "begin_session", _forget_nothing),)
"""What a follower acknowledged counts on after its restart; shown by the same scenario."""
VOTES_AT_ONCE: tuple[Patch, ...] = (
    (GroupNode, "_must_wait", lambda self, replica, message, now: False),
    (GroupNode, "_may_stand", lambda self, replica, now: True),
)
"""A voter that was started again forgets that a leader may have its word; a scenario shows it."""
VOTES_IN_A_LEASE: tuple[Patch, ...] = ((State, "has_lease", lambda self, asker: False),)
"""Votes are given while the leader is heard; shown by the same scenario."""
UNINTRODUCED: tuple[Patch, ...] = ((Talk, "introduce", lambda self, link, now: None),)
"""A session begins without a list of who leads what: digests alone must bring it. No rule is broken."""
NO_DIGESTS: tuple[Patch, ...] = ((Talk, "on_heartbeat", _ignore_digests),)
"""Digests that differ are not looked at; shown by the same scenario, in such a session."""
NO_LISTS: tuple[Patch, ...] = ((Talk, "on_table", lambda self, link, table, find, now: []),)
"""What a list says is not believed; shown by the same scenario."""
UNSAFE_CHANGE: tuple[Patch, ...] = ((Log, "_hold_back", lambda log: None),)
"""An async log promises a change of voters that a loss of power can take; a scenario shows it."""


@contextmanager
def broken(patches: tuple[Patch, ...]) -> Iterator[None]:
    """Production code with these patches."""
    with ExitStack() as stack:
        for owner, name, changed in patches:
            stack.enter_context(patch.object(owner, name, changed))
        yield


def caught_after(
    mutant: Mutant, run: Callable[[int, Mix], Outcome] = run_seed
) -> tuple[int, str] | None:
    """(number of seeds, what fired); None if nothing did."""
    first = mutant.first
    with broken(mutant.patches):
        for seed in range(first, first + mutant.within):
            _names.clear()
            outcome = run(seed, mutant.mix(seed))
            if outcome.failure:
                # A mutant that does not even run proves nothing.
                assert outcome.failure.startswith(NOTICED), outcome.failure
                return seed - first + 1, outcome.failure
    return None
