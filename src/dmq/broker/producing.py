"""What a partition's leader knows of its producers, kept in step with the log.

Idempotence and transactions rest on `machines.producers.ProducerState`: who wrote which sequence last,
which transactions are open. It is made when this broker begins to lead, from the headers of the log, read
beside the loop in steps; until that is done batches of such producers are refused in a way that makes
clients try again. With the leadership it goes: followers keep nothing. Called by the partition, and by
the replica, which says what became of the log.
"""

import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from dmq.broker.multiraft.replica import Replica
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.producers.entries import Marker
from dmq.machines.producers.guards import VerificationGuards
from dmq.machines.producers.state import ProducerState, Verdict
from dmq.records import BatchHeader, iterate, scan
from dmq.types import Position

log = logging.getLogger("dmq.broker")

LOAD_BYTES = 8 * 1024 * 1024
"""Read in steps of this size."""
INLINE_BYTES = 1024 * 1024
"""A log that is no longer is read at once, in the loop."""
GUARD_MS = 5 * 60 * 1000
"""Longer than any producer waits for its first batch of a transaction."""
COMMIT_MARKER = 1
_MARKER_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch


class Aside(Protocol):
    """Runs `work` beside the loop, then `done` in it with what `work` raised, or None."""

    def submit(
        self, work: Callable[[], object], done: Callable[[BaseException | None], None]
    ) -> None: ...


class Seen(NamedTuple):
    """A batch of a producer with an id, and what it says if it ends a transaction."""

    header: BatchHeader
    marker: Marker | None


def seen_in(data: bytes) -> list[Seen]:
    """The batches of producers with ids, in order; for a thread."""
    return [
        Seen(header, marker_of(data, position, header) if header.is_control else None)
        for position, header in scan(data)
        if header.producer_id >= 0
    ]


def marker_of(data: bytes | memoryview, position: int, header: BatchHeader) -> Marker | None:
    """What a control batch says; None if it ends no transaction."""
    for record in iterate(data, position, header):
        key, value = record.key or b"", record.value or b""
        if len(key) >= _MARKER_KEY.size and len(value) >= _MARKER_VALUE.size:
            kind, epoch = _MARKER_KEY.unpack_from(key)[1], _MARKER_VALUE.unpack_from(value)[1]
            if kind <= COMMIT_MARKER:
                return Marker(kind == COMMIT_MARKER, epoch)
    return None


class ProducerBook:
    """See the module."""

    __slots__ = ("_aside", "_expiration_ms", "_load", "_replica", "_state", "guards")

    def __init__(self, replica: Replica, aside: Aside, expiration_ms: int) -> None:
        self._replica = replica
        self._aside = aside
        self._expiration_ms = expiration_ms
        self._state: ProducerState | None = None
        self._load: _Load | None = None
        self.guards = VerificationGuards()
        """Leave to write into transactions, asked of their coordinators."""
        replica.book = self
        self.moved()

    # --- what the leader asks ------------------------------------------------------------------

    @property
    def state(self) -> ProducerState:
        """Raises NOT_LEADER_OR_FOLLOWER if we don't lead, or not yet: clients try again."""
        if self._state is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader still reads who wrote to this log"
            )
        return self._state

    def check(self, header: BatchHeader) -> Verdict:
        """May this batch be appended? Raises KafkaError."""
        if not len(self.guards) or not header.is_transactional:
            return self.state.check(header)
        verified = self.guards.verified(header.producer_id, header.producer_epoch)
        verdict = self.state.check(header, verified)
        if verdict is None:
            self.guards.check_order(header.producer_id, header.base_sequence)
        return verdict

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the log vouches for a producer's transaction."""
        return self._state is not None and self._state.has_open(producer_id, epoch)

    def check_own(self, header: BatchHeader) -> None:
        """The same for a coordinator's batch in a producer's name. Raises KafkaError."""
        verified = self.guards.verified(header.producer_id, header.producer_epoch)
        self.state.check_own(header, verified)

    def appended(
        self, header: BatchHeader, position: Position, marker: Marker | None = None
    ) -> None:
        """The leader appended a batch of a producer with an id."""
        self.state.appended(header, position, marker)
        if marker is None and len(self.guards):
            self.guards.appended(header.producer_id)

    def failed(self, header: BatchHeader) -> None:
        """It did not get into the log."""
        if self._state is not None:
            self._state.failed(header)

    def last_stable_offset(self) -> int:
        """Up to there readers of committed transactions may read. Raises KafkaError."""
        return self.state.last_stable_offset(self._replica.high_watermark)

    def expire(self, wall: int, now: int) -> None:
        """Forget some of those who are silent for too long, and leave that nobody used."""
        if self._state is not None:
            self._state.expire(wall)
            self.guards.expire(now - GUARD_MS)

    # --- what became of the log (Book) ---------------------------------------------------------

    def moved(self) -> None:
        """The replica's commit point or role changed."""
        replica = self._replica
        if not replica.is_leader:
            self._state = self._load = None
            self.guards.clear()
        elif self._state is not None:
            self._state.committed(replica.core.commit)
        elif self._load is None:
            self._begin()

    def cut(self, position: Position) -> None:
        """All beyond `position` left the log."""
        if self._state is not None:
            self._state.cut(position)
        elif self._load is not None:
            self._begin()

    def reset(self) -> None:
        """The log was replaced."""
        self._state = self._load = None

    def trim(self, log_start: int) -> None:
        """The log begins at `log_start` now."""
        if self._state is not None:
            self._state.trim(log_start)

    # --- reading the log -----------------------------------------------------------------------

    def _begin(self) -> None:
        if self._replica.log.staged_bytes:
            self._load = None
            return  # The end of the log can't be read before a turn has written it.
        self._load = _Load(self._replica, self._expiration_ms)
        self._go_on(self._load)

    def _go_on(self, load: "_Load") -> None:
        while (data := load.next_piece()) is not None:
            if load.is_small:
                load.take(seen_in(data()))
                continue
            seen: list[Seen] = []
            self._aside.submit(partial(_look, data, seen), partial(self._looked, load, seen))
            return
        self._state, self._load = load.finish(), None

    def _looked(self, load: "_Load", seen: list[Seen], error: BaseException | None) -> None:
        if self._load is not load:
            return  # The leadership ended, or the log was cut: it is read anew, if at all.
        if isinstance(error, OSError):
            log.warning(
                "who wrote to %r can't be read, and is read again: %s", self._replica, error
            )
            self._load = None
            return
        if error is not None:
            raise error
        load.take(seen)
        self._go_on(load)


def _look(data: Callable[[], bytes], seen: list[Seen]) -> None:
    seen.extend(seen_in(data()))


class _Load:
    """The headers of a log on their way into a state."""

    __slots__ = ("_at", "_end", "_replica", "_state", "is_small")

    def __init__(self, replica: Replica, expiration_ms: int) -> None:
        self._replica = replica
        self._state = ProducerState(expiration_ms=expiration_ms)
        self._at = replica.log_start_offset
        self._end = replica.log_end_offset
        """What comes later has no producer with an id: such batches are refused until we are done."""
        self.is_small = replica.log.size_bytes <= INLINE_BYTES

    def next_piece(self) -> Callable[[], bytes] | None:
        """What reads the next bytes; None at the end of the log."""
        if self._at >= self._end:
            return None
        slices = self._replica.log.read(self._at, LOAD_BYTES, self._end, whole_first_batch=True)
        if not slices:
            return None  # Compaction left nothing between here and the end.

        def read() -> bytes:
            data = b"".join(piece.pread() for piece in slices)
            last = None
            for _, header in scan(data):
                last = header
            assert last is not None
            self._at = max(self._at, last.next_offset)
            return data

        return read

    def take(self, seen: list[Seen]) -> None:
        """What one piece had."""
        marks = self._replica.log.marks
        for header, marker in seen:
            mark = marks.at(header.base_offset)
            position = Position(mark.epoch, mark.change, header.next_offset)
            self._state.appended(header, position, marker)
            if header.next_offset <= self._replica.high_watermark:
                self._state.committed(position)

    def finish(self) -> ProducerState:
        self._state.trim(self._replica.log_start_offset)
        self._state.committed(self._replica.core.commit)
        return self._state
