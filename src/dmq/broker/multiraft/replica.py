"""One replicated partition on this broker: the verbs of a partition, and who waits for them.

Produce (leaders only), read up to the high watermark (any replica), trim; and after every input a look
at what became of those who wait: acknowledgements, fetches, trims.

    high watermark = commit.offset; it goes back only with a loss that was counted (unclean elections)

node.py owns the turn; broker/partition.py calls the verbs. How the log and its Raft core are driven is
in driven.py.
"""

from typing import Any

from dmq.broker.answer import Answer
from dmq.broker.multiraft.driven import Driven, GroupSettings
from dmq.broker.multiraft.waiting import ALL, OWN, FetchWaiter, OnAppended, ParkedAppend
from dmq.errors import ErrorCode, KafkaError
from dmq.raft.quorum import majority
from dmq.records import stamp
from dmq.storage.reading import FileSlice
from dmq.types import Mark, Position, Voter

BLANK = Mark(0, 0, 0, (), 0)
"""Stands first in the log of a new learner, which has no mark yet: a store's log must have one."""

READER_MS = 60_000
"""A reader is expected to come again for so long. Too low: a follower lets go of what clients read from
it now and then (KIP-392); too high: it keeps in the page cache what nobody reads."""


class NotLeaderError(KafkaError):
    """Ask another broker; `leader` if we know it (KIP-951)."""

    def __init__(self, leader: Voter | None, epoch: int) -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.leader = leader
        self.leader_epoch = epoch


class UnsureError(NotLeaderError):
    """We lead, and can't exclude yet that another does too: a round of heartbeats tells."""


class Replica(Driven):
    """See the module; made by `GroupNode.create_group`, ends with `retire`."""

    __slots__ = ()

    def configure(self, settings: GroupSettings, now: int) -> None:
        self.settings = settings
        self.log.configure(settings.log)
        self.core.allow_unclean(settings.is_unclean_allowed, now)
        self._perform(now)
        self._host.touched(self, now)

    # ---- what changed

    def settle(self, now: int) -> None:
        """Look at the core after an input: serve those who wait for what changed."""
        core = self.core
        has_changed = core.is_leader is not self.was_leader
        if has_changed:
            self.was_leader = core.is_leader
            self._role_changed()
        durable, commit = core.durable_end, core.commit
        have_moved = durable != self._durable or commit != self._commit
        if have_moved:
            self._ends_moved(durable, commit)
        if has_changed or have_moved:
            if self.book is not None:
                self.book.moved()
            if self.watch is not None:
                self.watch.moved()
        if have_moved:
            self._serve_waiting(durable, commit)
        if self.acks.has_committed:
            self._answer(now)
        if self._trims:
            self._answer_trims()

    def _ends_moved(self, durable: Position, commit: Position) -> None:
        self._durable, self._commit = durable, commit
        if commit <= durable:
            # The stored hint speaks of the durable log, which a flush may describe at any time.
            self.log.commit = commit
        self.high_watermark = commit.offset

    def _serve_waiting(self, durable: Position, commit: Position) -> None:
        self.acks.durable(durable)
        self.acks.committed(commit, is_enough=self._least() <= self._committed_count())
        self.fetches.shown(commit.offset)

    def _role_changed(self) -> None:
        self.piece = None
        self.log.is_leading = self.was_leader
        if self.was_leader:
            self.log.is_read_soon = True
            self.count("leader")
        else:
            for _, answer in self._take_trims():
                answer.fail(NotLeaderError(self.core.leader, self.core.epoch))
        self.fetches.wake_all()

    def _answer(self, now: int) -> None:
        """Answer what is committed, if the topic does not want it on more disks (SPEC §4)."""
        least = self._least()
        if least <= self._committed_count():
            self.acks.answer_all()
        else:
            self.acks.answer(lambda p: self._verdict(p, least, now))

    def _least(self) -> int:
        """So many disks must have what `acks=all` is told: never more than the group is to have. A
        dead voter goes before its successor comes, and the topic asks for no less meanwhile."""
        replicas_count = max(len(self.core.voters), len(self.target))
        return min(self.settings.min_insync_replicas, replicas_count)

    def _committed_count(self) -> int:
        """So many disks have what is committed, at least: the last voter may have come since."""
        return majority(max(len(self.core.voters) - 1, 1))

    def _verdict(self, p: Position, least: int, now: int) -> ErrorCode | None:
        """What to say of a committed append that must be on `least` disks; None: wait for more."""
        core = self.core
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
        self.check_leads()
        append_time = -1
        if self.settings.intake is not None:
            records, append_time = self.settings.intake.admit(records, now)
        append = self.append(records, append_time, acks, now)
        append.deadline = now + timeout_ms
        append.on_done = on_done
        return append

    def append(self, batch: memoryview, append_time: int, acks: int, now: int) -> ParkedAppend:
        """Append a batch that was admitted; the caller sets `on_done` and `deadline` at once.

        Who waits for nothing (acks=0) is parked as for our own disk: until then its bytes are in
        memory. Raises KafkaError or StorageError; then nothing was appended (definite).
        """
        self.check_leads()
        is_alone = not self.known_members
        if acks == ALL and not is_alone:
            self._check_in_sync(now)
        is_known = is_alone and self.has_staged and bool(self.acks)
        append = self._append(batch, append_time, ALL if acks == ALL else OWN)
        self.acks.park(append)
        if not is_known:  # Else the node was told already, and has nobody else to tell.
            self._host.appended(self, now)
        return append

    def await_again(
        self, base_offset: int, append_time: int, position: Position | None, now: int
    ) -> ParkedAppend:
        """Wait as the append did that ended at `position`: its producer sent it twice. None: it is
        committed. The caller sets `on_done` and `deadline` at once."""
        settled = position is None or position <= self.core.commit
        at = self.core.commit if position is None else position
        append = ParkedAppend(base_offset, append_time, 0, at, ALL)
        self.acks.park_again(append, is_committed=settled)
        self._host.touched(self, now)
        return append

    def propose(self, batch: bytearray, now: int, on_done: OnAppended | None = None) -> Position:
        """Append a batch that the broker itself made; `on_done` when it is committed, or not.

        Raises NotLeaderError or StorageError.
        """
        self.check_leads()
        append = self._append(memoryview(batch), -1, ALL)
        append.on_done = None if on_done is None else _told_of_commit(on_done)
        self.acks.park(append)
        self._host.touched(self, now)
        return append.position

    def check_leads(self) -> None:
        """Raises NotLeaderError, with the leader if it is known."""
        if not self.core.can_append:
            raise NotLeaderError(self.core.leader, self.core.epoch)

    def _check_in_sync(self, now: int) -> None:
        voters_count, least = len(self.core.voters), self._least()
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
        """Call when all that the log holds now is settled; at once if it is.

        A group that nobody has led yet holds nothing that is: the first leader settles it.
        """
        end = self.core.end
        if end.epoch == 0:
            end = end._replace(change=end.change + 1)
        elif end <= self.core.commit:
            callback(ErrorCode.NONE)
            return
        waiting = ParkedAppend(end.offset, -1, 0, end, ALL)
        waiting.on_done = _told_of_commit(callback)
        self.acks.park(waiting)

    def is_newest(self, now: int) -> bool:
        """Whether we lead, and no other leader can have committed more than we know."""
        return self._host.is_newest(self, now)

    def await_newest(self, now: int, callback: OnAppended) -> None:
        """Call when what we know now to be committed was the newest, uncommitted records aside; with
        an error if we lead no more."""
        self._host.when_newest(self, self.core.epoch, now, callback)

    def when_newest(self, now: int, callback: OnAppended) -> None:
        """Call when all that the log holds now is committed and was the newest that anybody had; at
        once if it is. With an error if it never will be, or we lead no more.

        For what was read, and what rests on it: that an append of ours was committed later says
        nothing of the time before it was sent. Who appended something itself just now needs
        `when_committed` only: that a majority took it shows who led then.
        """
        epoch = self.core.epoch  # It must still be ours when the answer leaves.

        def committed(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._host.when_newest(self, epoch, now, callback)
            else:
                callback(code)

        self.when_committed(committed)

    def trim(self, log_start: int, now: int) -> Answer[int]:
        """Let the log start here; the answer is its start, once a mark that says so is committed.

        Raises NotLeaderError, or OFFSET_OUT_OF_RANGE beyond the high watermark.
        """
        self.check_leads()
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

    def read(
        self,
        offset: int,
        bytes_max: int,
        now: int,
        *,
        whole_first_batch: bool,
        end: int | None = None,
    ) -> list[FileSlice]:
        """File slices from `offset` up to the high watermark, on a leader or a follower; or up to
        `end`, if that comes first. `now`: when the reader asked.

        Raises KafkaError if the offset is out of range, StorageError if the log is damaged.
        """
        log = self.log
        self.read_until = now + READER_MS
        if offset > log.end_offset:
            self.check_newest(now)
        if not log.log_start <= offset <= log.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside {log.log_start}..{self.high_watermark}",
            )
        stop = self.high_watermark if end is None else min(end, self.high_watermark)
        if offset >= stop:
            return []
        return log.read(offset, bytes_max, stop, whole_first_batch=whole_first_batch)

    def check_newest(self, now: int) -> None:
        """Before it is said that the log has less than somebody has seen: whoever hears that goes back,
        or leaves out what it has not read. Raises KafkaError if another replica may have more.

        `now`: when the reader asked. What it has seen by then matters, not what came since.
        """
        if not self.core.is_leader:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)  # The leader may have it (KIP-392).
        if not self.is_newest(now):
            raise UnsureError(None, self.core.epoch)

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


def _told_of_commit(on_done: OnAppended) -> OnAppended:
    """For who goes on with what is committed, be it on fewer disks than the topic wants: it is in the
    log, and must not be taken for something that did not happen."""

    def told(code: ErrorCode) -> None:
        is_committed = code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        on_done(ErrorCode.NONE if is_committed else code)

    return told
