"""A log and its Raft core: what the core wants is staged at once, what comes for it is handed in.

Does for the core what its contract (raft/core.py) asks of a caller. Every input ends in `_perform`:
writes are staged in order, then `settle` looks at what changed, which is the replica's part. Checks
the bytes that come with an append, and takes none that the disk has no room for. What the node keeps
with each group lies here too. Never touches a clock, a socket or another group.

The base of `Replica`, apart from it so that both fit on a few screens. Called by node.py.
"""

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from dmq.broker.answer import Answer
from dmq.broker.intake import Intake
from dmq.broker.multiraft import cargo
from dmq.broker.multiraft.frames import GroupKey
from dmq.broker.multiraft.tables import Stance, key_hash
from dmq.broker.multiraft.waiting import Acks, Fetches, OnAppended
from dmq.errors import ErrorCode, StorageError
from dmq.raft.core import RaftCore
from dmq.raft.links import Links
from dmq.raft.marks import Marks
from dmq.raft.messages import Append, Envelope, Message
from dmq.raft.quorum import NOTHING
from dmq.raft.settings import Dice, RaftSettings
from dmq.raft.writes import AddMark, CutTo, ResetTo, SetHard, Take, Trim, Write
from dmq.storage.files import Buffer
from dmq.storage.items import Damage
from dmq.storage.log import Log, LogSettings
from dmq.storage.reading import segment_at
from dmq.storage.store import Store
from dmq.types import Mark, Position, Voter

logger = logging.getLogger("dmq.broker")

HOLD_MS = 30_000
"""How long an order may take from the question to the answer; nobody is elected meanwhile."""
BLANK = Mark(0, 0, 0, (), 0)
"""Stands first in the log of a new learner, which has no mark yet: a store's log must have one."""


def parked(end: Position) -> Mark:
    """All that is left of a log whose replica left; no voters, so that it can't be taken for one."""
    return Mark(end.epoch, end.change, end.offset, (), end.offset)


def end_of(memory: list[Log]) -> Position:
    """The greatest position that a former stay of a replica can have promised anything about."""
    return max((log.end for log in memory), default=NOTHING)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What a topic's settings mean for one of its groups."""

    log: LogSettings = field(default_factory=LogSettings)
    min_insync_replicas: int = 1
    """acks=all needs so many voters with the record on disk; never more than there are."""
    replica_lag_ms: int = 30_000
    """A voter that was at the leader's durable end within this is in sync."""
    is_unclean_allowed: bool = False
    """An async group may elect from a mere majority that may have lost records, after a wait."""
    intake: Intake | None = None
    """The topic's rules on producers' batches; None: whatever is produced is taken as it is."""


class Host(Protocol):
    """What a replica needs of its node."""

    @property
    def store(self) -> Store: ...

    def touched(self, replica: Any, now: int) -> None:
        """Something was staged or decided: the next turn must look at it."""

    def appended(self, replica: Any, now: int) -> None:
        """The same after a leader's own append, which changes nothing else."""

    def is_newest(self, replica: Any, now: int) -> bool:
        """Whether what it knows now is known to be the newest."""

    def when_newest(self, replica: Any, epoch: int, asked_at: int, callback: OnAppended) -> None:
        """Call when what it knew at `asked_at` as the leader of `epoch` is known to have been the
        newest; with an error if it leads no more."""

    def wake(self) -> None:
        """A log was told something that no replica need hear of: there is to be a turn."""

    def count(self, event: str) -> None:
        """Something rare happened."""

    def damaged(self, replica: Any) -> None:
        """Bytes of its log must be fetched again."""

    def lost(self, replica: Any) -> None:
        """Its log can't be repaired: it must begin again."""


class Watch(Protocol):
    """Whoever reads along what the log says, as a machine's host does."""

    def moved(self) -> None:
        """The commit point moved, or the replica leads now, or no longer."""

    def cut(self, end_offset: int) -> None:
        """Records from here on are gone from the log; others may come in their place."""


class Book(Protocol):
    """Whoever keeps count of the leader's producers, in step with the log."""

    def moved(self) -> None:
        """The commit point moved, or the replica leads now, or no longer."""

    def cut(self, position: Position) -> None:
        """All beyond `position` left the log."""

    def reset(self) -> None:
        """The log was replaced."""

    def trim(self, log_start: int) -> None:
        """The log begins here now."""


class Flights:
    """Record bytes on their way to one follower: the end of each append, and its size."""

    __slots__ = ("session", "under_way")

    def __init__(self, session: int) -> None:
        self.session = session
        self.under_way: deque[tuple[Position, int]] = deque()


class Driven:
    """See the module."""

    __slots__ = (
        "_commit",
        "_durable",
        "_host",
        "_members",
        "_members_of",
        "_trims",
        "acks",
        "book",
        "core",
        "count",
        "fetches",
        "flying",
        "has_staged",
        "high_watermark",
        "is_fresh",
        "is_lost",
        "is_retired",
        "is_unborn",
        "key",
        "key_hash",
        "known_members",
        "led_at",
        "left_at",
        "log",
        "me",
        "memory",
        "observers",
        "order",
        "our_tags",
        "piece",
        "read_until",
        "settings",
        "stance",
        "target",
        "their_tags",
        "timer",
        "was_leader",
        "watch",
    )

    def __init__(
        self,
        log: Log,
        settings: GroupSettings,
        links: Links,
        raft: RaftSettings,
        dice: Dice,
        *,
        is_fresh: bool,
        memory: list[Log],
        host: Host,
    ) -> None:
        self.key = GroupKey(log.topic_id, log.partition)
        self.key_hash = key_hash(self.key)
        self.log = log
        self.settings = settings
        self.is_fresh = is_fresh
        """Founded by this process: no lease of anybody can rest on a former life of ours."""
        self.me = links.me
        self._host = host
        self.count = host.count
        is_blank = log.marks.items == (BLANK,)
        self.core = RaftCore(
            links,
            raft,
            dice,
            marks=Marks() if is_blank else log.marks,
            end_offset=log.end_offset,
            log_start=log.log_start,
            epoch=log.epoch,
            vote=log.vote,
            commit=NOTHING if is_blank else log.commit,
            is_recovering=any(one.is_recovering for one in (log, *memory)),
            is_damaged=log.is_damaged,
            is_unclean_allowed=settings.is_unclean_allowed,
            remembered=end_of(memory),
        )
        self.target: tuple[Voter, ...] = ()
        self.observers: tuple[Voter, ...] = ()
        self.high_watermark = max(self.core.high_watermark, log.log_start)
        self.acks = Acks()
        self.fetches = Fetches()
        self._trims: list[tuple[int, Answer[int]]] = []
        self._commit = self.core.commit
        self._durable = self.core.durable_end
        self._members: tuple[Voter, ...] = ()
        self._members_of: tuple[object, ...] = ()
        self.is_retired = False
        self.is_lost = False
        """The log can't even be cut; nothing is taken until the replica begins again."""
        self.order: int | None = None
        """From this epoch on we are to lead alone, as soon as our damaged log is whole again."""
        self.was_leader = False
        self.read_until = 0
        """So long what we follow is taken for something that clients will read here."""
        self.watch: Watch | None = None
        self.book: Book | None = None
        # What the node keeps with each replica.
        self.has_staged = False
        """The log was told something that no turn has taken yet."""
        self.is_unborn = False
        """No turn has said yet that the log exists."""
        self.known_members: tuple[Voter, ...] = ()
        self.stance: Stance | None = None
        self.left_at: int | None = None
        """When we ceased to lead."""
        self.led_at = 0
        """When we began to lead in this epoch, if we do."""
        self.timer: int | None = None
        self.flying: dict[Voter, Flights] = {}
        self.our_tags: dict[Voter, int] = {}
        """Our number for the present stay of each other replica in the group."""
        self.their_tags: dict[Voter, int] = {}
        """The number that each leader gave to ours, to be given back."""
        self.memory = memory
        """Logs of former stays here, kept for what they promised until this one has caught up."""
        self.piece: tuple[int, int, cargo.Piece] | None = None
        """The last piece that was read: followers mostly want the same."""

    def __repr__(self) -> str:
        return f"<Replica {self.key.topic_id.int & 0xFFFF:x}-{self.key.partition} {self.core!r}>"

    # ---- what it is

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader

    @property
    def leader(self) -> Voter | None:
        return self.core.leader

    @property
    def leader_epoch(self) -> int:
        return self.core.epoch

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start

    @property
    def log_end_offset(self) -> int:
        return self.log.end_offset

    def in_sync(self, now: int) -> tuple[Voter, ...]:
        """The ISR as clients see it; () if we don't lead."""
        return self.core.in_sync(now, self.settings.replica_lag_ms)

    def members(self) -> tuple[Voter, ...]:
        """All others that have to do with this group: voters, learners, observers, the leader."""
        core = self.core
        leader = core.leader
        of = (core.voters, self.target, self.observers, leader)
        if of != self._members_of:
            self._members_of = of
            everybody = dict.fromkeys((*core.voters, *self.target, *self.observers))
            if leader is not None:
                everybody[leader] = None
            everybody.pop(self.me, None)
            self._members = tuple(everybody)
        return self._members

    def stance_now(self) -> Stance | None:
        """Whom we lead, or whom we follow, and in which epoch."""
        core = self.core
        if core.is_leader:
            return core.epoch, self.members(), True
        leader = core.leader
        return (core.epoch, (leader,), False) if leader is not None else None

    # ---- inputs of the core

    def start(self, now: int) -> None:
        self.core.start(now)
        self._perform(now)

    def restart(self, now: int) -> None:
        """This broker may stand again: see whether anybody leads."""
        self.start(now)
        self._host.touched(self, now)

    def durable(self, now: int) -> list[Envelope]:
        """The turn's sync returned: what may leave."""
        envelopes = self.core.durable(self.log.stable_end, now)
        if self.log.is_recovering and not self.core.is_recovering:
            self.log.is_recovering = False
            self._host.store.request_flush(self.log)  # Else the next start would heal it again.
        self._perform(now)
        return envelopes

    def step(self, sender: Voter, session: int, message: Message, data: Buffer, now: int) -> None:
        """A message came. Raises ProtocolError if its bytes are not what it says."""
        batches: list[cargo.Batch] = []
        is_unable = False
        if self.is_lost:
            return
        if self.log.is_damaged and not self.core.is_damaged:
            self.note_damage(StorageError("found by a reader"), now)
        if isinstance(message, Append) and message.epoch >= self.core.epoch:
            batches = cargo.check(message, data)
            is_unable = message.end.offset > message.prev.offset and not self._takes_records()
            if is_unable:
                # Follow its leader, take nothing, and say so: what is under way to a peer is bounded
                # for all groups together, and those that we do take must not wait behind this one.
                message = message._replace(
                    marks=(),
                    end=message.prev,
                    commit=min(message.commit, message.prev),
                    wants_ack=False,
                )
                self.count("append refused")
            self.log.is_read_soon = now < self.read_until or self.fetches.are_any
        self.core.step(sender, session, message, now)
        if is_unable:
            self.core.unable()
        self._perform(now, batches)

    def _takes_records(self) -> bool:
        return not self._host.store.is_full or self.settings.log.may_use_reserve

    def tick(self, now: int) -> None:
        self.core.tick(now)
        self._perform(now)

    def peer_changed(self, peer: Voter, now: int) -> None:
        self.core.peer_changed(peer, now)
        self._perform(now)

    def claimed(self, peer: Voter, epoch: int, now: int) -> None:
        self.core.claimed(peer, epoch, now)
        self._perform(now)

    def disclaimed(self, peer: Voter, now: int) -> None:
        self.core.disclaimed(peer, now)
        self._perform(now)

    def set_target(
        self, voters: tuple[Voter, ...], now: int, observers: tuple[Voter, ...] = ()
    ) -> None:
        """What the metadata want; see `RaftCore.set_target`."""
        self.target, self.observers = voters, observers
        self.core.set_target(voters, now, observers)
        self._perform(now)
        self._host.touched(self, now)

    def transfer(self, to: Voter, now: int) -> bool:
        """Hand the leadership over; False if that can't be begun."""
        is_begun = self.core.transfer(to, now)
        self._perform(now)
        self._host.touched(self, now)
        return is_begun

    def resign(self, now: int) -> None:
        self.core.resign(now)
        self._perform(now)
        self._host.touched(self, now)

    def recover(self, epoch: int, now: int) -> None:
        """Lead as the only voter, by an operator's order; see `RaftCore.recover`."""
        self.core.recover(epoch, now)
        self._perform(now)
        self._host.touched(self, now)

    def bar(self, epoch: int, now: int) -> None:
        """By an operator's order another replica leads `epoch`; see `RaftCore.bar`."""
        self.core.bar(epoch, now)
        self._perform(now)
        self._host.touched(self, now)

    def hold(self, now: int) -> None:
        """Wait for an operator's order; see `RaftCore.hold`."""
        self.core.hold(now + HOLD_MS, now)
        self._perform(now)
        self._host.touched(self, now)

    def ordered(self, leader: Voter, epoch: int, now: int, epoch_seen: int | None = None) -> bool:
        """By an operator's order `leader` goes on with this group alone, from `epoch` on.

        Said to every replica, and again after each start, before anything else happens to it: the
        metadata remember the order. What was done is not done again. False: we should lead, and
        can't in this epoch any more, for a crash came between or an election took it; then the
        order must be given anew, with a greater epoch. So must one that was given without regard to
        an election that we know of: `epoch_seen` is the last that was known. Nor can we begin an empty
        log if we had another one once: then it is not true that nobody has anything.

        A damaged log is made whole first, of what its files have; a crash before that is durable
        finds the damage, and the order, again.
        """
        core = self.core
        if leader != self.me:
            self.order = None
            self.bar(epoch, now)
            return True
        if core.end.epoch >= epoch or core.is_obeying or self.order == epoch:
            return True
        is_late = core.epoch > (epoch - 1 if epoch_seen is None else epoch_seen)
        if is_late or (self.memory and not core.voters):
            return False
        self.note_damage(StorageError("found by a reader"), now)
        if not core.is_damaged:
            self.recover(epoch, now)
            return True
        self.order = epoch
        self._host.damaged(self)
        self._host.touched(self, now)
        return True

    # ---- the log

    def settle(self, now: int) -> None:
        """Look at the core after an input: serve those who wait for what changed."""
        raise NotImplementedError

    def _perform(self, now: int, batches: list[cargo.Batch] | None = None) -> None:
        """Stage what the core wants, in order; then see what became of those who wait."""
        writes = self.core.take_writes()
        if writes:
            self.has_staged = True
            for write in writes:
                if isinstance(write, CutTo) and not self.log.can_cut(write.position.offset):
                    self.is_lost = True
                    self._host.lost(self)
                if not self.is_lost or isinstance(write, SetHard):
                    self._stage(write, batches or [])
        self.settle(now)

    def _stage(self, write: Write, batches: list[cargo.Batch]) -> None:
        log = self.log
        if isinstance(write, SetHard):
            log.set_hard(write.epoch, write.vote)
        elif isinstance(write, AddMark):
            log.add_mark(write.mark)
            self.acks.regained(log.end)
        elif isinstance(write, Take):
            size = 0
            for data in cargo.fit(batches, write.start, write.stop):
                log.append(data)
                size += len(data)
            assert log.end_offset == write.stop, (log.end, write)
            self.fetches.came(write.stop, size)
            self.acks.regained(log.end)
        elif isinstance(write, CutTo):
            log.cut(write.position)
            self.acks.cut(write.position)
            self.fetches.cut(write.position.offset)
            self._tell_of_cut(write.position.offset)
            if self.book is not None:
                self.book.cut(write.position)
            self.count("cut")
        elif isinstance(write, Trim):
            log.trim(write.log_start, write.commit)
            if self.book is not None:
                self.book.trim(write.log_start)
            self.count("trim")
        else:
            assert isinstance(write, ResetTo)
            log.reset(write.base, write.log_start)
            self.acks.reset()
            self.fetches.cut(-1)
            self._tell_of_cut(-1)
            if self.book is not None:
                self.book.reset()
            self.count("reset")

    def keep_files(self, start: int | None) -> None:
        """Files from `start` on stay, though the log begins later; None: they may go."""
        if not self.is_retired:
            self.log.keep_files(start)
            if self.log.staged_bytes:
                self._host.wake()

    def _tell_of_cut(self, end_offset: int) -> None:
        if self.watch is not None:
            self.watch.cut(end_offset)

    def refused(self, end: Position, now: int) -> None:
        """The disk did not take what was staged beyond `end`; the log has dropped it."""
        log = self.log
        self.fetches.cut(end.offset)
        self.core.refused(log.marks, log.end_offset, log.log_start, now)
        self._tell_of_cut(end.offset)
        if self.book is not None:
            self.book.cut(end)
        self._perform(now)
        # Last: those who are told may act on the log as it is now.
        self.acks.refused(end, ErrorCode.KAFKA_STORAGE_ERROR)
        self.count("disk refused")

    def note_damage(self, error: Exception, now: int, seen: cargo.Sight | None = None) -> None:
        """Bytes of the log are bad: lead and stand no more until they are good again.

        `seen`: what was read, by whoever tells of it later.
        """
        log = self.log
        if seen is not None and seen != cargo.Sight.of(log):
            return
        if isinstance(error, cargo.RotError) and not log.is_damaged:
            log.damage = (*log.damage, bad_bytes(log, error.offset))
            self._host.store.request_flush(log)
        if log.is_damaged and not self.core.is_damaged:
            self.core.damaged(now)
            self._host.damaged(self)
            self.count("damaged")
            self._perform(now)
            self._host.touched(self, now)

    def found_rot(self, error: cargo.RotError, seen: cargo.Sight) -> None:
        """The same, from whoever reads along, and perhaps amid an input of ours: the next turn tells."""
        if self._is_news(seen):
            self._tell_of_damage(bad_bytes(self.log, error.offset))

    def found_bad(self, place: Damage, seen: cargo.Sight) -> None:
        """The same of a place in a file. If nobody else has these bytes, the rest is served on."""
        has_place = any(segment.base == place.segment for segment in self.log.segments_list)
        if self._is_news(seen) and has_place and self.core.voters != (self.me,):
            self._tell_of_damage(place)

    def _is_news(self, seen: cargo.Sight) -> bool:
        return not (self.log.is_damaged or self.is_retired) and seen == cargo.Sight.of(self.log)

    def _tell_of_damage(self, place: Damage) -> None:
        self.log.damage = (place,)
        self._host.store.note_damaged(self.log)
        self._host.wake()

    def part(self, now: int) -> None:
        """All bytes that the leader has too are good: the rest goes; see `RaftCore.part`."""
        self.core.part()
        self.count("parted")
        self._perform(now)

    def begin_again(self, log: Log, now: int) -> None:
        """With an empty log in the place of one that can't be repaired, as a learner would.

        The old one stays as memory: what it promised stands until this one has caught up.
        """
        self.memory = [*self.memory, self.log]
        self.log = log
        self.core = self.core.begin_again(end_of(self.memory))
        self.is_lost = self.was_leader = False
        self.piece = None
        self.high_watermark = 0
        self._commit, self._durable = self.core.commit, self.core.durable_end
        self.acks.reset()
        self.fetches.cut(-1)
        self._tell_of_cut(-1)
        self.count("began again")
        self.core.unable()  # Else its leader might not notice that it must send all again.
        self.start(now)
        self._host.touched(self, now)

    def repaired(self, now: int) -> None:
        """All bytes are good again."""
        self.core.repaired(now)
        self.count("repaired")
        self._perform(now)
        self._obey(now)
        if self.watch is not None:
            self.watch.moved()  # It may have waited for these bytes, and nothing else need move.
        self._host.touched(self, now)

    def _obey(self, now: int) -> None:
        """The log that an operator ordered us to go on with is whole, or as whole as it can be."""
        epoch, self.order = self.order, None
        if epoch is None or self.core.epoch >= epoch:
            return
        if self.log.gaps:
            logger.error("%r goes on without the offsets %s", self, _spans(self.log.gaps))
        self.recover(epoch, now)


def _spans(gaps: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"{start} to {stop - 1}" for start, stop in gaps)


def bad_bytes(log: Log, offset: int) -> Damage:
    """The rest of the segment from the batch at `offset` on, whose bytes can't be trusted."""
    segment = log.segments_list[segment_at(log.segments_list, offset)]
    try:
        start = log.reader(segment).position(offset)
    except StorageError:  # More of it is bad, or there: nobody can say where the batch lies.
        start = 0
    return Damage(segment.base, start, segment.size)
