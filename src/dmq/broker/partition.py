"""One partition as this broker's clients see it: its names, its rules on batches, its replica.

Owns the checks between a producer's bytes and the log, and the count of bytes that are on their way. All
else is the replica's (multiraft/replica.py): who leads, what is committed, who waits. Never touches
a file; the clock that deadlines are measured by is handed in.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from dmq.broker.answer import Answer
from dmq.broker.backlog import Backlog
from dmq.broker.intake import Intake
from dmq.broker.multiraft.cargo import Sight
from dmq.broker.multiraft.replica import Replica
from dmq.broker.multiraft.waiting import ALL, FetchWaiter, OnAppended, ParkedAppend
from dmq.broker.producing import BehindRefusedError, ProducerBook
from dmq.errors import ErrorCode, KafkaError, StorageError
from dmq.machines.producers.aborted import AbortedTxn
from dmq.records import read_header
from dmq.storage.items import Damage
from dmq.storage.log import Log
from dmq.storage.reading import FileSlice
from dmq.types import TopicPartition, Voter

PRODUCER_ID_AT = 43
"""Where a batch has its producer's id."""
_PRODUCER_ID = struct.Struct(">q")


class CommittedRead(NamedTuple):
    """What a reader of committed transactions gets of a log."""

    slices: list[FileSlice]
    last_stable_offset: int
    aborted: list[AbortedTxn]


class Partition:
    """See the module; made by `replicas`, ends with its replica."""

    __slots__ = (
        "_backlog",
        "_now",
        "book",
        "index",
        "intake",
        "replica",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        replica: Replica,
        intake: Intake,
        now: Callable[[], int],
        backlog: Backlog,
        book: ProducerBook | None = None,
    ) -> None:
        self.topic, self.index = tp
        self.topic_id = topic_id
        self.replica = replica
        self.intake = intake
        self._now = now
        self._backlog = backlog
        self.book = book
        """None for logs that only the broker itself writes."""

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, epoch={self.leader_epoch})"

    # --- what it is --------------------------------------------------------------------------

    @property
    def log(self) -> Log:
        """The replica's, which may begin again with another one."""
        return self.replica.log

    @property
    def leader_epoch(self) -> int:
        return self.replica.core.epoch

    @property
    def leader(self) -> Voter | None:
        return self.replica.core.leader

    @property
    def is_leader(self) -> bool:
        return self.replica.core.is_leader

    @property
    def high_watermark(self) -> int:
        return self.replica.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.replica.log.log_start

    @property
    def log_end_offset(self) -> int:
        return self.replica.log.end_offset

    @property
    def is_serving(self) -> bool:
        """Whether we lead and the high watermark has reached our epoch: "latest" is known (KIP-207)."""
        return self.replica.core.knows_latest

    @property
    def is_retired(self) -> bool:
        return self.replica.is_retired

    def check_leads(self) -> None:
        """Raises NotLeaderError, with the leader if it is known."""
        self.replica.check_leads()

    # --- appending ---------------------------------------------------------------------------

    def append(self, records: memoryview, now: int, acks: int = ALL) -> ParkedAppend:
        """Check a producer's batch, give it its offsets and stage it for the next turn.

        `now` is wall time: records are judged by it. Raises KafkaError, BatchError or StorageError;
        then nothing was appended (definite).
        """
        batch, append_time = self.intake.admit(records, now)
        return self.append_admitted(batch, append_time, acks)

    def append_admitted(self, batch: memoryview, append_time: int, acks: int = ALL) -> ParkedAppend:
        """Stage a batch that the intake has admitted. Raises KafkaError or StorageError."""
        if _PRODUCER_ID.unpack_from(batch, PRODUCER_ID_AT)[0] >= 0 and self.book is not None:
            return self._append_of(self.book, batch, append_time, acks)
        return self._append(batch, append_time, acks)

    def _append(self, batch: memoryview, append_time: int, acks: int) -> ParkedAppend:
        append = self.replica.append(batch, append_time, acks, self._now())
        self._backlog.add(append.size)
        append.on_settled = self._backlog.remove
        return append

    def _append_of(
        self, book: ProducerBook, batch: memoryview, append_time: int, acks: int
    ) -> ParkedAppend:
        """A batch of a producer with an id: in its sequence, and once."""
        header = read_header(batch)
        try:
            self.replica.check_leads()
            duplicate = book.check(header)
        except BehindRefusedError:
            raise  # It excuses nobody: those behind it miss the same batch.
        except KafkaError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                book.refused(header, error.code)
            raise
        if duplicate is not None:
            time = duplicate.timestamp if append_time >= 0 else -1
            return self.replica.await_again(
                duplicate.base_offset, time, duplicate.position, self._now()
            )
        try:
            append = self._append(batch, append_time, acks)
        except (KafkaError, StorageError) as error:
            book.failed(header, error.code)
            raise
        book.appended(header._replace(base_offset=append.base_offset), append.position)
        return append

    def when_committed(self, callback: OnAppended) -> None:
        """Call when all that the log holds now is settled; at once if it is."""
        self.replica.when_committed(callback)

    def settled(self) -> Answer[None]:
        """An answer that comes when all that the log holds now is settled, or the log is gone."""
        answer: Answer[None] = Answer()
        self.replica.when_committed(lambda code: answer.resolve(None))
        return answer

    def trim(self, log_start: int) -> Answer[int]:
        """Move the log's start forward; the answer is the start once that is committed."""
        return self.replica.trim(log_start, self._now())

    # --- reading -----------------------------------------------------------------------------

    def now(self) -> int:
        """The time by which it is known who leads."""
        return self._now()

    def read(
        self,
        offset: int,
        bytes_max: int,
        *,
        whole_first_batch: bool,
        end: int | None = None,
        asked_at: int | None = None,
    ) -> list[FileSlice]:
        """File slices from `offset` up to the high watermark, or to `end` before it. `asked_at`: if the
        reader has waited since.

        Raises KafkaError if out of range.
        """
        since = self._now() if asked_at is None else asked_at
        return self.replica.read(
            offset, bytes_max, since, whole_first_batch=whole_first_batch, end=end
        )

    def last_stable_offset(self) -> int:
        """Below it every transaction is decided. Raises NOT_LEADER_OR_FOLLOWER if we don't lead, or
        have not read yet who wrote to the log."""
        return self.high_watermark if self.book is None else self.book.last_stable_offset()

    def read_committed(
        self, offset: int, bytes_max: int, *, whole_first_batch: bool, asked_at: int | None = None
    ) -> CommittedRead | None:
        """The same up to the last stable offset, with what was aborted on the way; None: a follower
        does not know that yet, and wakes who waits here when it does. Raises DmqError or OSError."""
        if self.book is None:
            slices = self.read(
                offset, bytes_max, whole_first_batch=whole_first_batch, asked_at=asked_at
            )
            return CommittedRead(slices, self.high_watermark, [])
        decided = self.book.decided(offset)
        if decided is None:
            return None
        stable, aborts = decided
        slices = self.read(
            offset, bytes_max, whole_first_batch=whole_first_batch, end=stable, asked_at=asked_at
        )
        if not slices or not aborts.has_aborted:
            return CommittedRead(slices, stable, [])
        # Not all of the log's: a reader that is far behind would get them with each answer.
        aborted = aborts.aborted(offset, self.log.bound(offset, slices, stable))
        return CommittedRead(slices, stable, aborted)

    def is_newest(self) -> bool:
        """Whether we lead, and no other leader can have committed more than we know."""
        return self.replica.is_newest(self._now())

    def check_newest(self, asked_at: int | None = None) -> None:
        """Before it is said that the log has less than somebody has seen; see `Replica.check_newest`."""
        self.replica.check_newest(self._now() if asked_at is None else asked_at)

    def newest(self) -> Answer[None]:
        """An answer that comes when what we know now is known to be the newest; fails if we lead no
        more, or nobody says so in time."""
        answer: Answer[None] = Answer()

        def told(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                answer.resolve(None)
            elif code is ErrorCode.REQUEST_TIMED_OUT:
                answer.fail(KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE))
            else:
                answer.fail(KafkaError(code))

        self.replica.await_newest(self._now(), told)
        return answer

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client whose view is older than ours, or newer (SPEC §6). Raises KafkaError."""
        if current_leader_epoch >= 0:
            self.replica.check_epoch(current_leader_epoch)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(greatest epoch <= `epoch`, its end offset); (-1, -1) if there is none (KIP-101)."""
        return self.replica.end_of_epoch(epoch)

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was (or will be) written."""
        return self.replica.epoch_at(offset)

    def wait(self, waiter: FetchWaiter) -> None:
        self.replica.wait(waiter)

    def forget(self, waiter: FetchWaiter) -> None:
        self.replica.forget(waiter)

    def expire_producers(self, wall: int) -> None:
        """Forget some of the producers that are silent for too long."""
        if self.book is not None:
            self.book.expire(wall, self._now())

    def found_bad(self, place: Damage, seen: Sight) -> None:
        """Somebody read bytes of a file that can't be believed; see `Replica.found_bad`."""
        self.replica.found_bad(place, seen)

    def keep_producers(self, wall: int) -> None:
        """Write down what is known of producers, if that is due. Raises StorageError or OSError."""
        if self.book is not None:
            self.book.keep(wall)

    def snapshot(self) -> dict[str, Any]:
        """For people: what `dmq doctor` and logs show of a partition."""
        return {"partition": f"{self.topic}-{self.index}", **self.replica.snapshot()}


def unknown_partition(topic: str, index: int) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}"
    )
