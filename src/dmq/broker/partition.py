"""One partition on this broker: its log, its epoch, its high watermark, and who waits for them.

Owns the checks between a producer's bytes and the log, the stamping of offsets, and the two queues
that the high watermark serves: appends that wait for their acknowledgement and fetches that wait
for bytes. Never touches a file or a clock: the node's turn makes appends durable and then calls
`advance`. With a single voter the commit point is the log's own stable end (Raft §5.3 with a
majority of one; the rule "only a position of the leader's own epoch" holds all the same).
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from dmq.broker.answer import Answer
from dmq.broker.backlog import Backlog
from dmq.broker.intake import Intake
from dmq.errors import ErrorCode, KafkaError
from dmq.records import stamp
from dmq.storage.log import Log
from dmq.storage.reading import FileSlice
from dmq.types import Mark, Position, TopicPartition, Voter

OnAppended = Callable[[ErrorCode], None]


class Append:
    """A batch on its way to the commit point, and who is told when it is there."""

    __slots__ = ("append_time", "base_offset", "deadline", "on_done", "position", "size")

    def __init__(self, base_offset: int, append_time: int, size: int) -> None:
        self.base_offset = base_offset
        self.append_time = append_time
        self.size = size
        self.position: Position | None = None
        self.deadline = 0
        self.on_done: OnAppended | None = None

    def tell(self, code: ErrorCode) -> None:
        """Call back, once. The callback is let go of first: it often refers to this object, and
        such a circle would keep a request's megabytes until the next collection."""
        on_done, self.on_done = self.on_done, None
        if on_done is not None:
            on_done(code)


class FetchWaiter:
    """A fetch that waits until enough bytes came to the partitions that it asked for."""

    __slots__ = ("callback", "missing_bytes")

    def __init__(self, missing_bytes: int, callback: Callable[[], None]) -> None:
        self.missing_bytes = missing_bytes
        self.callback: Callable[[], None] | None = callback

    def wake(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class Partition:
    """See the module; life: created by `replicas`, `lead` once at start, `retire` when deleted."""

    __slots__ = (
        "_appends",
        "_backlog",
        "_touched",
        "_waiters",
        "commit",
        "high_watermark",
        "index",
        "intake",
        "is_retired",
        "leader_epoch",
        "log",
        "on_refused",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        log: Log,
        intake: Intake,
        touched: "Callable[[Partition], None]",
        backlog: Backlog,
    ) -> None:
        self.topic, self.index = tp
        self._touched = touched
        self._backlog = backlog
        self.topic_id = topic_id
        self.log = log
        self.intake = intake
        self.leader_epoch = -1
        self.commit = Position(-1, -1, log.log_start)
        self.high_watermark = log.log_start
        self.is_retired = False
        self.on_refused: Callable[[], None] | None = None
        """Called when the disk refused appends, before those who wait for them are told."""
        self._appends: deque[Append] = deque()
        self._waiters: dict[FetchWaiter, None] = {}

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, epoch={self.leader_epoch})"

    # --- leading -----------------------------------------------------------------------------

    def lead(self, voter: Voter) -> None:
        """Begin a new epoch: vote for ourselves and write the leader's mark (SPEC: WRITE)."""
        log = self.log
        epoch = max(log.epoch, log.end.epoch) + 1
        log_start = max(log.log_start, log.marks.last.log_start)
        log.set_hard(epoch, voter)
        log.add_mark(Mark(epoch, 0, log.end.offset, (voter,), log_start))
        self.leader_epoch = epoch
        # A crash may have come between a new start and the trim that follows it.
        self._await_end(partial(self._trim, log_start))
        self._touched(self)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start

    @property
    def log_end_offset(self) -> int:
        return self.log.end_offset

    @property
    def is_serving(self) -> bool:
        """Whether the high watermark has reached this epoch, so that "latest" is known (KIP-207)."""
        return self.commit.epoch == self.leader_epoch

    # --- appending ---------------------------------------------------------------------------

    def append(self, records: memoryview, now: int) -> Append:
        """Check a producer's batch, give it its offsets and stage it for the next turn.

        Raises BatchError or StorageError; then nothing was appended (definite).
        """
        batch, append_time = self.intake.admit(records, now)
        return self.append_admitted(batch, append_time)

    def append_own(self, batch: bytearray) -> Append:
        """Stage a batch that the broker itself made (machines' records)."""
        return self.append_admitted(memoryview(batch), -1)

    def append_admitted(self, batch: memoryview, append_time: int) -> Append:
        """Stage a batch that the intake has admitted. Raises StorageError."""
        log = self.log
        base_offset = log.end_offset
        stamp(batch, 0, base_offset, self.leader_epoch)
        log.append(batch)
        size = len(batch)
        append = Append(base_offset, append_time, size)
        append.position = log.end
        self._backlog.add(size)
        self._appends.append(append)
        self._touched(self)
        return append

    def advance(self) -> None:
        """The log's stable end moved: move the commit point and serve those who waited for it."""
        end = self.log.stable_end
        if end.epoch != self.leader_epoch or end <= self.commit:
            return
        self.commit = self.log.commit = end
        self.high_watermark = end.offset
        appends, fresh_bytes = self._appends, 0
        while appends and appends[0].position <= end:  # type: ignore[operator]
            append = appends.popleft()
            if append.size:
                fresh_bytes += append.size
                self._backlog.remove(append.size)
            append.tell(ErrorCode.NONE)
        if fresh_bytes and self._waiters:
            self._wake(fresh_bytes)

    def when_committed(self, callback: OnAppended) -> None:
        """Call when all that the log holds now is committed; at once if it is."""
        if self._appends:
            self._await_end(callback)
        else:
            callback(ErrorCode.NONE)

    def settled(self) -> Answer[None]:
        """An answer that comes when all that the log holds now is committed, or the log is gone."""
        answer: Answer[None] = Answer()
        self.when_committed(lambda code: answer.resolve(None))
        return answer

    def _await_end(self, callback: OnAppended | None) -> None:
        """Queue for the commit of all that is staged, behind those who came before."""
        waiting = Append(self.log.end_offset, -1, 0)
        waiting.position = self.log.end
        waiting.on_done = callback
        self._appends.append(waiting)

    def refuse(self, position: Position, code: ErrorCode) -> None:
        """The appends from `position` on could not be written: tell their producers (definite)."""
        refused: list[Append] = []
        while self._appends and self._appends[-1].position > position:  # type: ignore[operator]
            refused.append(self._appends.pop())
        if self.on_refused is not None:
            self.on_refused()
        for append in reversed(refused):
            self._give_up(append, code)

    def _give_up(self, append: Append, code: ErrorCode) -> None:
        if append.size:
            self._backlog.remove(append.size)
        append.tell(code)

    def expire_appends(self, now: int) -> None:
        """Answer REQUEST_TIMED_OUT where a producer's patience ended; the append itself goes on."""
        for append in self._appends:
            if append.deadline and append.deadline <= now:
                append.tell(ErrorCode.REQUEST_TIMED_OUT)

    @property
    def has_waiting_appends(self) -> bool:
        return bool(self._appends)

    def trim(self, log_start: int) -> Answer[int]:
        """Move the log's start forward; the answer is the start once that is committed.

        A mark carries the new start (SPEC: TRIM), so that replicas and restarts agree on it; the
        records below it go only when the mark is committed.
        """
        log = self.log
        if log_start <= log.log_start:
            return Answer.of(log.log_start)
        last, end = log.marks.last, log.end
        if log_start > last.log_start:  # Else such a start, or a later one, is on its way already.
            log.add_mark(Mark(end.epoch, end.change + 1, end.offset, last.voters, log_start))
        answer: Answer[int] = Answer()

        def on_committed(code: ErrorCode) -> None:
            self._trim(log_start, code)
            if code is ErrorCode.NONE:
                answer.resolve(log.log_start)
            else:
                answer.fail(KafkaError(code))

        self._await_end(on_committed)
        self._touched(self)
        return answer

    def _trim(self, log_start: int, code: ErrorCode) -> None:
        """The mark that carries this start is committed: what lies below may go."""
        if code is ErrorCode.NONE and log_start > self.log.log_start:
            self.log.trim(log_start)
            self._touched(self)

    # --- reading -----------------------------------------------------------------------------

    def read(self, offset: int, bytes_max: int, *, whole_first_batch: bool) -> list[FileSlice]:
        """File slices from `offset` up to the high watermark. Raises KafkaError if out of range."""
        if offset < self.log.log_start or offset > self.log.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic}-{self.index} is outside "
                f"{self.log.log_start}..{self.high_watermark}",
            )
        if offset >= self.high_watermark:
            return []
        return self.log.read(
            offset, bytes_max, self.high_watermark, whole_first_batch=whole_first_batch
        )

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client whose view is older than ours, or newer (SPEC §6). Raises KafkaError."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(greatest epoch <= `epoch`, its end offset); (-1, -1) if there is none (KIP-101)."""
        return self.log.marks.end_of_epoch(epoch, self.log.end_offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was (or will be) written."""
        return self.log.marks.epoch_at(offset)

    def wait(self, waiter: FetchWaiter) -> None:
        self._waiters[waiter] = None

    def forget(self, waiter: FetchWaiter) -> None:
        self._waiters.pop(waiter, None)

    def _wake(self, fresh_bytes: int) -> None:
        for waiter in list(self._waiters):
            waiter.missing_bytes -= fresh_bytes
            if waiter.missing_bytes <= 0:
                del self._waiters[waiter]
                waiter.wake()

    def retire(self) -> None:
        """The partition is gone from here: nobody waits for it any longer."""
        self.is_retired = True
        appends, self._appends = self._appends, deque()
        for append in appends:
            self._give_up(append, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.wake()

    def snapshot(self) -> dict[str, Any]:
        """For people: what `dmq doctor` and logs show of a partition."""
        return {
            "partition": f"{self.topic}-{self.index}",
            "leader_epoch": self.leader_epoch,
            "log_start_offset": self.log_start_offset,
            "high_watermark": self.high_watermark,
            "log_end_offset": self.log_end_offset,
        }
