"""ProducerState: the producers of one partition (SPEC §8).

    committed map          what every producer was at the commit point: what a snapshot holds
    uncommitted batches    in log order, each with its producer before and after it

Checks look at both. A commit moves the oldest batches into the map, a cut takes the newest ones back;
no segment is ever read again for either. The map alone says which transactions are undecided: one
whose first batch is not committed begins above the high watermark anyway, and one whose marker is
not committed is still open there. So last stable offset = min(high watermark, oldest start in it).

Bounded: beyond `producers_max` the longest idle producer is forgotten, and `expire` forgets those who
are silent for too long by the time of their batches; never one with an open transaction or an
uncommitted batch. Who was forgotten may begin anew with any sequence, as in Kafka.

The package says who calls what. Raises KafkaError where the leader must refuse a batch.
"""

from collections import OrderedDict, deque
from itertools import islice
from typing import NamedTuple

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.producers.aborted import AbortedTxn, AbortIndex
from dmq.machines.producers.entries import (
    NO_OFFSET,
    SEQUENCE_MASK,
    Entry,
    Marker,
    after_batch,
    after_marker,
    newest_first_sequence,
    recall,
    sequence_after,
)
from dmq.machines.producers.fences import Fences
from dmq.machines.producers.rules import (
    NOT_VERIFIED,
    check_epoch,
    check_marker,
    check_sequence,
    check_transaction,
)
from dmq.machines.producers.snapshot import ProducerSnapshot
from dmq.records import TRANSACTIONAL, BatchHeader
from dmq.types import Position

PRODUCERS_MAX = 100_000
EXPIRATION_MS = 24 * 60 * 60 * 1000
"""Kafka's default of `producer.id.expiration.ms`."""

EXPIRY_LOOKS = 1_000
"""Producers looked at per call of `expire`: well under a millisecond."""
EVICTION_LOOKS = 16
"""Producers with open transactions that are passed over to find one that may go."""


class Duplicate(NamedTuple):
    """The batch is in the log already: nothing is appended, and the answer is the original's."""

    base_offset: int
    timestamp: int
    position: Position | None
    """The answer waits for the commit of this, as the original's does; None: it is committed."""


Verdict = Duplicate | None
"""None: append it."""


class Lost(NamedTuple):
    """A producer's batch that left the log again."""

    producer_id: int
    epoch: int
    sequence: int


class _Uncommitted(NamedTuple):
    position: Position
    producer_id: int
    base_offset: int
    before: Entry | None
    after: Entry
    is_abort: bool


class ProducerState:
    """See the module."""

    __slots__ = (
        "_aborted",
        "_committed",
        "_expiration_ms",
        "_fences",
        "_log_start",
        "_newest",
        "_open",
        "_producers_max",
        "_restored",
        "_uncommitted",
    )

    def __init__(
        self, *, producers_max: int = PRODUCERS_MAX, expiration_ms: int = EXPIRATION_MS
    ) -> None:
        self._producers_max = producers_max
        self._expiration_ms = expiration_ms
        self.reset()

    def reset(self) -> None:
        """The log was replaced, or is read anew: nothing is known."""
        self._committed: OrderedDict[int, Entry] = OrderedDict()
        """The longest idle first."""
        self._newest: dict[int, Entry] = {}
        """Only of producers with uncommitted batches."""
        self._uncommitted: deque[_Uncommitted] = deque()
        self._open: OrderedDict[int, int] = OrderedDict()
        """Start of each transaction that is open at the commit point → its producer, in order."""
        self._aborted = AbortIndex()
        self._fences = Fences()
        self._restored: Position | None = None
        self._log_start = 0

    def __len__(self) -> int:
        return len(self._committed)

    # ---- judging: the leader, before an append

    def check(self, header: BatchHeader, verified: int = NOT_VERIFIED) -> Verdict:
        """May a client's batch be appended? `verified`: its transaction's version, if the
        coordinator vouched for it. Raises KafkaError; then `failed` is not needed."""
        producer_id = header[9]
        if producer_id < 0:
            return None
        entry = self._newest.get(producer_id) or self._committed.get(producer_id)
        if (
            entry is not None
            and header[11] == (entry[1] + 1) & SEQUENCE_MASK
            and header[10] == entry[0]
            and (entry[4] >= 0) is (header[5] & TRANSACTIONAL != 0)
        ):
            return None  # The next batch, of the same epoch, in or outside of a transaction.
        return self._judge(header, entry, verified)

    def knows(self, producer_id: int) -> bool:
        """Whether the log has, or had, something of this producer."""
        return self._entry(producer_id) is not None

    def _judge(self, header: BatchHeader, entry: Entry | None, verified: int) -> Verdict:
        if header.base_sequence < 0:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"producer {header.producer_id} sent a batch without a sequence",
            )
        if entry is not None and entry.epoch == header.producer_epoch:
            duplicate = self._find_duplicate(header, entry)
            if duplicate is not None:
                return duplicate
        check_epoch(header, entry)
        check_transaction(header, entry, verified)
        check_sequence(header, entry, verified, self._fences)
        return None

    def check_unverified(self, header: BatchHeader) -> Verdict:
        """Of a batch whose transaction nobody has vouched for yet: a duplicate needs no leave, and
        an old epoch gets none. Raises KafkaError."""
        entry = self._entry(header.producer_id)
        check_epoch(header, entry)
        if entry is None or entry.epoch != header.producer_epoch or header.base_sequence < 0:
            return None
        return self._find_duplicate(header, entry)

    def check_own(self, header: BatchHeader, verified: int = NOT_VERIFIED) -> None:
        """A coordinator's batch in a producer's name (offsets in a transaction): it has no
        sequence, but an epoch and a transaction. Raises KafkaError."""
        entry = self._entry(header.producer_id)
        check_epoch(header, entry)
        check_transaction(header, entry, verified)

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, version: int
    ) -> None:
        """May this end of a transaction of that version be written? Raises KafkaError."""
        entry = self._entry(producer_id)
        if entry is not None:
            check_marker(entry, producer_id, epoch, coordinator_epoch, version)

    def _find_duplicate(self, header: BatchHeader, entry: Entry) -> Duplicate | None:
        last = sequence_after(header.base_sequence, header.last_offset_delta)
        found = recall(entry.window, header.base_sequence, last)
        if found is None:
            return None
        for waiting in reversed(self._uncommitted):
            if waiting.base_offset == found.base_offset:
                return Duplicate(found.base_offset, found.timestamp, waiting.position)
            if waiting.base_offset < found.base_offset:
                break
        return Duplicate(found.base_offset, found.timestamp, None)

    def failed(self, header: BatchHeader) -> None:
        """A batch that had passed `check` did not get into the log: the producer's later ones
        must not get there before it."""
        if header.producer_id >= 0 and self._entry(header.producer_id) is None:
            self._fences.failed(header.producer_id, header.producer_epoch, header.base_sequence)

    # ---- recording: leader and follower

    def appended(
        self, header: BatchHeader, position: Position, marker: Marker | None = None
    ) -> None:
        """A batch is in the log, which ends at `position` with it. `marker`: what it says, if it is
        a control batch that ends a transaction."""
        producer_id = header[9]
        if producer_id < 0:
            return
        if self._restored is not None:
            if position <= self._restored:
                return  # The snapshot has it.
            self._restored = None
        before = self._newest.get(producer_id) or self._committed.get(producer_id)
        if marker is None:
            after, is_abort = after_batch(before, header), False
        else:
            after, is_abort = after_marker(before, header, marker), not marker.is_commit
        self._newest[producer_id] = after
        if self._fences:
            self._fences.appended(producer_id)
        self._uncommitted.append(
            _Uncommitted(position, producer_id, header[0], before, after, is_abort)
        )

    def committed(self, position: Position) -> None:
        """The commit point moved to `position`."""
        waiting = self._uncommitted
        while waiting and waiting[0][0] <= position:
            self._commit(waiting.popleft())

    def _commit(self, batch: _Uncommitted) -> None:
        _, producer_id, base_offset, _, after, is_abort = batch
        known = self._committed
        before = known.get(producer_id)
        known[producer_id] = after
        if before is None:
            was_open = NO_OFFSET
            if len(known) > self._producers_max:
                self._evict()
        else:
            was_open = before[4]
            known.move_to_end(producer_id)
        if self._newest[producer_id] is after:
            del self._newest[producer_id]
        if was_open == after[4]:
            return
        if was_open >= 0:
            self._ended(producer_id, was_open, base_offset, is_abort)
        else:
            self._open[after[4]] = producer_id

    def _ended(self, producer_id: int, start: int, marker_offset: int, is_abort: bool) -> None:
        """The marker of a transaction is committed: it is decided."""
        del self._open[start]
        if is_abort:
            stable = next(iter(self._open), marker_offset + 1)
            self._aborted.add(AbortedTxn(producer_id, start, marker_offset, stable))

    def cut(self, position: Position) -> list[Lost]:
        """All beyond `position` left the log: cut by another leader, or refused by the disk."""
        waiting = self._uncommitted
        lost: list[Lost] = []
        while waiting and waiting[-1].position > position:
            batch = waiting.pop()
            before, window = batch.before, batch.after.window
            if window and (before is None or window != before.window):
                sequence = newest_first_sequence(window)
                lost.append(Lost(batch.producer_id, batch.after.epoch, sequence))
            if before is not None and self._committed.get(batch.producer_id) is not before:
                self._newest[batch.producer_id] = before
                continue
            del self._newest[batch.producer_id]
            if before is None and window:
                first = newest_first_sequence(window)
                self._fences.failed(batch.producer_id, batch.after.epoch, first)
        return lost

    def trim(self, log_start: int) -> None:
        """The log begins at `log_start` now."""
        self._log_start = log_start
        self._aborted.trim(log_start)

    # ---- what readers ask

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction is decided, and its decision is committed."""
        if not self._open:
            return high_watermark
        return max(self._log_start, min(high_watermark, next(iter(self._open))))

    @property
    def has_aborted(self) -> bool:
        return len(self._aborted) > 0

    def aborted(self, start: int, end: int) -> list[AbortedTxn]:
        """Aborted transactions with records in [start, end)."""
        return self._aborted.overlapping(start, end)

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the log has an open transaction of this producer, committed or not: its later
        batches need no leave of the coordinator."""
        entry = self._entry(producer_id)
        return entry is not None and entry.txn_start >= 0 and entry.epoch == epoch

    def producers(self) -> list[tuple[int, Entry]]:
        """All that are known at the commit point."""
        return list(self._committed.items())

    def oldest_open(self) -> tuple[int, int] | None:
        """(start, producer id) of the transaction that holds the last stable offset."""
        return next(iter(self._open.items()), None)

    def _entry(self, producer_id: int) -> Entry | None:
        return self._newest.get(producer_id) or self._committed.get(producer_id)

    # ---- bounds

    def expire(self, now: int) -> int:
        """Forget producers that are silent for too long; how many. Looks at the longest idle ones
        only: as long as it returns more than 0, there may be more of them."""
        limit = now - self._expiration_ms
        gone = [
            producer_id
            for producer_id, entry in islice(self._committed.items(), EXPIRY_LOOKS)
            if entry.last_timestamp <= limit and self._is_idle(producer_id, entry)
        ]
        for producer_id in gone:
            del self._committed[producer_id]
        return len(gone)

    def _is_idle(self, producer_id: int, entry: Entry) -> bool:
        return entry.txn_start < 0 and producer_id not in self._newest

    def _evict(self) -> None:
        known = self._committed
        for _ in range(EVICTION_LOOKS):
            producer_id = next(iter(known))
            if self._is_idle(producer_id, known[producer_id]):
                del known[producer_id]
                return
            known.move_to_end(producer_id)

    # ---- snapshots

    def snapshot(self, position: Position) -> ProducerSnapshot:
        """The committed state; `position` is the commit point that was told last."""
        assert not self._uncommitted or self._uncommitted[0].position > position
        return ProducerSnapshot(position, list(self._committed.items()), self._aborted.pack())

    def restore(self, snapshot: ProducerSnapshot) -> None:
        """Begin from a snapshot. Batches up to its position may be told again: it has them."""
        self.reset()
        self._committed.update(snapshot.producers)
        self._aborted = AbortIndex(snapshot.aborted)
        self._restored = snapshot.position
        starts = sorted(
            (entry.txn_start, producer_id)
            for producer_id, entry in snapshot.producers
            if entry.txn_start >= 0
        )
        self._open.update(starts)
