"""One replicated partition on this broker: its log, its Raft core, and who waits for them.

Does for the core what its contract asks of a caller: stages its writes at once, checks and keeps the
bytes that came with an append, and looks after every input at what changed. On top of that the verbs of
a partition: produce (leaders only), read up to the high watermark (any replica), trim, hand over.

    high watermark = commit.offset; it goes back only with a loss that was counted (unclean elections)

Never touches a clock, a socket or another replica. node.py owns the turn and calls in here; doors
will call the verbs. Not to be confused with broker/partition.py, the single voter that this replaces.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from dmq.broker.answer import Answer
from dmq.broker.intake import Intake
from dmq.broker.multiraft import cargo
from dmq.broker.multiraft.frames import GroupKey
from dmq.broker.multiraft.tables import Stance, key_hash
from dmq.broker.multiraft.waiting import ALL, OWN, Acks, Fetches, ParkedAppend
from dmq.broker.partition import FetchWaiter, OnAppended
from dmq.errors import ErrorCode, KafkaError, StorageError
from dmq.raft.core import RaftCore
from dmq.raft.links import Links
from dmq.raft.marks import Marks
from dmq.raft.messages import Append, Envelope, Message
from dmq.raft.quorum import NOTHING, majority
from dmq.raft.settings import Dice, RaftSettings
from dmq.raft.writes import AddMark, CutTo, ResetTo, SetHard, Take, Trim, Write
from dmq.records import stamp
from dmq.storage.items import Damage
from dmq.storage.log import Log, LogSettings
from dmq.storage.reading import FileSlice, segment_at
from dmq.storage.store import Store
from dmq.types import Mark, Position, Voter

BLANK = Mark(0, 0, 0, (), 0)
"""Stands first in the log of a new learner, which has no mark yet: a store's log must have one."""


class NotLeaderError(KafkaError):
    """Ask another broker; `leader` if we know it (KIP-951)."""

    def __init__(self, leader: Voter | None, epoch: int) -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.leader = leader
        self.leader_epoch = epoch


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

    def touched(self, replica: "Replica", now: int) -> None:
        """Something was staged or decided: the next turn must look at it."""

    def count(self, event: str) -> None:
        """Something rare happened."""

    def damaged(self, replica: "Replica") -> None:
        """Bytes of its log must be fetched again."""


class Flights:
    """Record bytes on their way to one follower: the end of each append, and its size."""

    __slots__ = ("session", "under_way")

    def __init__(self, session: int) -> None:
        self.session = session
        self.under_way: deque[tuple[Position, int]] = deque()


class Replica:
    """See the module; made by `GroupNode.create_group`, ends with `retire`."""

    __slots__ = (
        "_commit",
        "_durable",
        "_host",
        "_members",
        "_members_of",
        "_trims",
        "acks",
        "core",
        "count",
        "fetches",
        "flying",
        "has_staged",
        "high_watermark",
        "is_fresh",
        "is_retired",
        "is_unborn",
        "key",
        "key_hash",
        "known_members",
        "log",
        "me",
        "observers",
        "piece",
        "settings",
        "stance",
        "target",
        "timer",
        "was_leader",
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
            is_recovering=log.is_recovering,
            is_damaged=log.is_damaged,
            is_unclean_allowed=settings.is_unclean_allowed,
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
        self.was_leader = False
        # What the node keeps with each replica.
        self.has_staged = False
        """The log was told something that no turn has taken yet."""
        self.is_unborn = False
        """No turn has said yet that the log exists."""
        self.known_members: tuple[Voter, ...] = ()
        self.stance: Stance | None = None
        self.timer: int | None = None
        self.flying: dict[Voter, Flights] = {}
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
        self._perform(now)
        return envelopes

    def step(self, sender: Voter, session: int, message: Message, data: bytes, now: int) -> None:
        """A message came. Raises ProtocolError if its bytes are not what it says."""
        batches: list[cargo.Batch] = []
        if self.log.is_damaged and not self.core.is_damaged:
            self.note_damage(StorageError("found by a reader"), now)
        if isinstance(message, Append) and message.epoch >= self.core.epoch:
            batches = cargo.check(message, data)
            if message.end.offset > message.prev.offset and not self._takes_records():
                # Follow its leader, take nothing; it will come again when it got no answer.
                message = message._replace(
                    marks=(),
                    end=message.prev,
                    commit=min(message.commit, message.prev),
                    wants_ack=False,
                )
                self.count("append refused")
        self.core.step(sender, session, message, now)
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

    def configure(self, settings: GroupSettings, now: int) -> None:
        self.settings = settings
        self.log.configure(settings.log)
        self.core.allow_unclean(settings.is_unclean_allowed, now)
        self._perform(now)
        self._host.touched(self, now)

    # ---- the log

    def _perform(self, now: int, batches: list[cargo.Batch] | None = None) -> None:
        """Stage what the core wants, in order; then see what became of those who wait."""
        writes = self.core.take_writes()
        if writes:
            self.has_staged = True
            for write in writes:
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
            for data in cargo.fit(batches, write.start, write.stop, log.marks.last.epoch):
                log.append(data, may_skip=True)
                size += len(data)
            assert log.end_offset == write.stop, (log.end, write)
            self.fetches.came(write.stop, size)
            self.acks.regained(log.end)
        elif isinstance(write, CutTo):
            log.cut(write.position)
            self.acks.cut(write.position)
            self.fetches.cut(write.position.offset)
            self.count("cut")
        elif isinstance(write, Trim):
            log.trim(write.log_start, write.commit)
            self.count("trim")
        else:
            assert isinstance(write, ResetTo)
            log.reset(write.base, write.log_start)
            self.acks.reset()
            self.fetches.cut(-1)
            self.count("reset")

    def refused(self, end: Position, now: int) -> None:
        """The disk did not take what was staged beyond `end`; the log has dropped it."""
        log = self.log
        self.acks.refused(end, ErrorCode.KAFKA_STORAGE_ERROR)
        self.fetches.cut(end.offset)
        self.core.refused(log.marks, log.end_offset, log.log_start, now)
        self._perform(now)
        self.count("disk refused")

    def note_damage(self, error: Exception, now: int) -> None:
        """Bytes of the log are bad: lead and stand no more until they are good again."""
        log = self.log
        if isinstance(error, cargo.RotError) and not log.is_damaged:
            log.damage = (*log.damage, bad_bytes(log, error.offset))
            self._host.store.request_flush(log)
        if log.is_damaged and not self.core.is_damaged:
            self.core.damaged(now)
            self._host.damaged(self)
            self.count("damaged")
            self._perform(now)
            self._host.touched(self, now)

    def repaired(self, now: int) -> None:
        """All bytes are good again."""
        self.core.repaired(now)
        self.count("repaired")
        self._perform(now)
        self._host.touched(self, now)

    # ---- what changed

    def settle(self, now: int) -> None:
        """Look at the core after an input: serve those who wait for what changed."""
        core = self.core
        if core.is_leader is not self.was_leader:
            self.was_leader = core.is_leader
            self._role_changed()
        durable, commit = core.durable_end, core.commit
        if durable != self._durable or commit != self._commit:
            self._ends_moved(durable, commit)
        if self.acks.has_committed:
            self.acks.answer(lambda p: self._verdict(p, now))
        if self._trims:
            self._answer_trims()

    def _ends_moved(self, durable: Position, commit: Position) -> None:
        self._durable, self._commit = durable, commit
        if commit <= durable:
            # The stored hint speaks of the durable log, which a flush may describe at any time.
            self.log.commit = commit
        self.acks.durable(durable)
        self.acks.committed(commit)
        self.high_watermark = commit.offset
        self.fetches.shown(commit.offset)

    def _role_changed(self) -> None:
        self.piece = None
        if self.was_leader:
            self.count("leader")
        else:
            for _, answer in self._take_trims():
                answer.fail(NotLeaderError(self.core.leader, self.core.epoch))
        self.fetches.wake_all()

    def _verdict(self, p: Position, now: int) -> ErrorCode | None:
        """What to say of a committed append (SPEC §4); None: wait for more disks."""
        core = self.core
        voters_count = len(core.voters)
        least = min(self.settings.min_insync_replicas, voters_count)
        if least <= majority(voters_count):
            return ErrorCode.NONE
        if not core.is_leader:
            # It is committed, but nobody can say here how many have it.
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        if core.durable_count(p) >= least:
            return ErrorCode.NONE
        if len(self.in_sync(now)) < least:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return None

    def sweep(self, now: int) -> None:
        """Time passed: patience ends, replicas fall out of sync."""
        self.settle(now)
        self.acks.expire(now)

    @property
    def has_waiting(self) -> bool:
        return bool(self.acks)

    # ---- producing

    def produce(
        self,
        records: memoryview,
        now: int,
        *,
        acks: int = ALL,
        timeout_ms: int = 30_000,
        on_done: OnAppended | None = None,
    ) -> ParkedAppend:
        """Check a producer's batch and append it; `on_done` gets the code that it is answered.

        Raises KafkaError (NotLeaderError, NOT_ENOUGH_REPLICAS), BatchError or StorageError; then
        nothing was appended (definite).
        """
        self._check_leads()
        if acks == ALL:
            self._check_in_sync(now)
        append_time = -1
        if self.settings.intake is not None:
            records, append_time = self.settings.intake.admit(records, now)
        append = self._append(records, append_time, acks)
        append.deadline = now + timeout_ms
        append.on_done = on_done
        if acks in (OWN, ALL):
            self.acks.park(append)
        self._host.touched(self, now)
        return append

    def propose(self, batch: bytearray, now: int, on_done: OnAppended | None = None) -> Position:
        """Append a batch that the broker itself made; `on_done` when it is committed, or not.

        Raises NotLeaderError or StorageError.
        """
        self._check_leads()
        append = self._append(memoryview(batch), -1, ALL)
        append.on_done = on_done
        self.acks.park(append)
        self._host.touched(self, now)
        return append.position

    def _check_leads(self) -> None:
        if not self.core.can_append:
            raise NotLeaderError(self.core.leader, self.core.epoch)

    def _check_in_sync(self, now: int) -> None:
        voters_count = len(self.core.voters)
        least = min(self.settings.min_insync_replicas, voters_count)
        in_sync = self.in_sync(now)
        if len(in_sync) < max(least, majority(voters_count)):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(in_sync)} of {voters_count} replicas are in sync, {least} are needed",
            )

    def _append(self, batch: memoryview, append_time: int, acks: int) -> ParkedAppend:
        log, core = self.log, self.core
        base_offset = log.end_offset
        stamp(batch, 0, base_offset, core.epoch)
        log.append(batch)
        self.has_staged = True
        position = core.appended(log.end_offset)
        self.fetches.came(position.offset, len(batch))
        return ParkedAppend(base_offset, append_time, len(batch), position, acks)

    def when_committed(self, callback: OnAppended) -> None:
        """Call when all that the log holds now is settled; at once if it is."""
        end = self.core.end
        if end <= self.core.commit:
            callback(ErrorCode.NONE)
            return
        waiting = ParkedAppend(end.offset, -1, 0, end, ALL)
        waiting.on_done = callback
        self.acks.park(waiting)

    def trim(self, log_start: int, now: int) -> Answer[int]:
        """Let the log start here; the answer is its start, once a mark that says so is committed.

        Raises NotLeaderError, or OFFSET_OUT_OF_RANGE beyond the high watermark.
        """
        self._check_leads()
        if log_start > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if log_start <= self.core.log_start:
            return Answer.of(self.core.log_start)
        answer: Answer[int] = Answer()
        self._trims.append((log_start, answer))
        self.core.request_log_start(log_start, now)
        self._perform(now)
        self._host.touched(self, now)
        return answer

    def _take_trims(self) -> list[tuple[int, Answer[int]]]:
        trims, self._trims = self._trims, []
        return trims

    def _answer_trims(self) -> None:
        log_start = self.core.log_start
        for trim in self._take_trims():
            if trim[0] <= log_start:
                trim[1].resolve(log_start)
            else:
                self._trims.append(trim)

    # ---- reading

    def read(self, offset: int, bytes_max: int, *, whole_first_batch: bool) -> list[FileSlice]:
        """File slices from `offset` up to the high watermark, on a leader or a follower.

        Raises KafkaError if the offset is out of range, StorageError if the log is damaged.
        """
        log = self.log
        if offset > log.end_offset and not self.core.is_leader:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)  # The leader may have it (KIP-392).
        if not log.log_start <= offset <= log.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside {log.log_start}..{self.high_watermark}",
            )
        if offset >= self.high_watermark:
            return []
        return log.read(offset, bytes_max, self.high_watermark, whole_first_batch=whole_first_batch)

    def latest_offset(self) -> int:
        """ListOffsets(latest). Raises OFFSET_NOT_AVAILABLE until it is known (KIP-207)."""
        if not self.core.is_leader:
            raise NotLeaderError(self.core.leader, self.core.epoch)
        if not self.core.knows_latest:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return self.high_watermark

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client whose view is older than ours, or newer (SPEC §6). Raises KafkaError."""
        if current_leader_epoch < 0 or current_leader_epoch == self.core.epoch:
            return
        if current_leader_epoch < self.core.epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(greatest epoch <= `epoch`, its end offset); (-1, -1) if there is none (KIP-101)."""
        return self.log.marks.end_of_epoch(epoch, self.log.end_offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was (or will be) written."""
        return self.log.marks.epoch_at(offset)

    def wait(self, waiter: FetchWaiter) -> None:
        self.fetches.wait(waiter)

    def forget(self, waiter: FetchWaiter) -> None:
        self.fetches.forget(waiter)

    def retire(self, code: ErrorCode) -> None:
        """The replica is gone from here: nobody waits for it any longer."""
        self.is_retired = True
        self.acks.fail(code)
        for _, answer in self._take_trims():
            answer.fail(KafkaError(code))
        self.fetches.wake_all()

    def snapshot(self) -> dict[str, Any]:
        """For people: what a status command shows of a replica."""
        core = self.core
        return {
            "topic_id": str(self.key.topic_id),
            "partition": self.key.partition,
            "role": core.role.value,
            "leader_epoch": core.epoch,
            "leader": None if core.leader is None else core.leader.node,
            "voters": [voter.node for voter in core.voters],
            "log_start_offset": self.log_start_offset,
            "high_watermark": self.high_watermark,
            "log_end_offset": self.log_end_offset,
            "is_recovering": core.is_recovering,
            "is_damaged": core.is_damaged,
        }


def bad_bytes(log: Log, offset: int) -> Damage:
    """The rest of the segment from the batch at `offset` on, whose bytes can't be trusted."""
    segment = log.segments_list[segment_at(log.segments_list, offset)]
    return Damage(segment.base, log.reader(segment).position(offset), segment.size)
