"""What a follower knows of transactions: made when a reader asks for it, kept while readers do (KIP-392).

A leader has its producers in memory; a follower has none of that. When a reader of committed transactions
asks it, it begins with the log's last snapshot of producers, or at the log's start, and reads the headers
from there to the high watermark; with each further question it reads on. **Only committed batches are
looked at**, so a cut of the uncommitted tail changes nothing here. At every moment all batches below one
offset are known, and what was committed below it is decided for good: the last stable offset is never
beyond it, so that whoever is behind shows less, not something else.

What is short and in the page cache is read at once. More is read beside the loop, in steps; who waits for
that offset is woken then. Where the log begins later than what was read, or compaction put other files
in front of it, reading begins anew: from its start on a log tells all that a reader must know. Called by
producing.py, which lets go of it when this broker leads, the log is replaced, or nobody asks any more.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from dmq.broker.multiraft.cargo import RotError, Sight
from dmq.broker.multiraft.replica import Replica
from dmq.broker.producer_loading import LOAD_BYTES, Piece, look_into, read_snapshot
from dmq.errors import DmqError, StorageError
from dmq.machines.producers.aborted import AbortedTxn
from dmq.machines.producers.decided import DecidedTransactions
from dmq.machines.producers.snapshot import ProducerSnapshot
from dmq.storage.producer_files import ProducerFiles
from dmq.storage.reading import FileSlice
from dmq.types import Position

log = logging.getLogger("dmq.broker")

AT_ONCE_BYTES = 256 * 1024
"""So much is read in the loop: what comes between two fetches of a reader that keeps up. Too high: the
loop stands still for a reader; too low: each of its fetches waits for a thread."""

Found = Piece | ProducerSnapshot | None
Submit = Callable[[Callable[[], object], Callable[[BaseException | None], None]], None]


class Aborts(Protocol):
    """Who knows what was aborted."""

    @property
    def has_aborted(self) -> bool: ...

    def aborted(self, start: int, end: int) -> list[AbortedTxn]: ...


class Decided(NamedTuple):
    """What readers of committed transactions may see of a log."""

    last_stable_offset: int
    aborts: Aborts


class ReadingAlong:
    """See the module. One for one log, until `stop`."""

    __slots__ = (
        "_at",
        "_end",
        "_files",
        "_is_reading",
        "_replica",
        "_run",
        "_saved",
        "_submit",
        "_swap_count",
        "_transactions",
        "log",
        "was_asked",
    )

    def __init__(self, replica: Replica, submit: Submit, files: ProducerFiles | None) -> None:
        self._replica = replica
        self._submit = submit
        self._files = files
        self.log = replica.log
        self.was_asked = False
        """Since whoever wants to know took note of it last."""
        self._run = 0
        """Work beside the loop that was begun in another run is of no use any more."""
        self._begin()

    def _begin(self, *, with_snapshot: bool = True) -> None:
        self._run += 1
        self._is_reading = False
        self._transactions = DecidedTransactions()
        self._transactions.trim(self.log.log_start)
        self._swap_count = self.log.swap_count
        self._at = self._end = self.log.log_start
        self._saved: int | None = None
        """A snapshot that is to be read first, by the offset that it speaks of."""
        if with_snapshot and self._files is not None:
            saved = self._files.offset(self.log.uid)
            if saved is not None and saved > self._at:
                self._saved = self._at = saved

    def stop(self) -> None:
        """Nobody wants to know any more."""
        self._run += 1

    # --- what is asked -------------------------------------------------------------------------

    def decided(self, offset: int) -> Decided | None:
        """For a reader at `offset`; None: not known yet, but it is being read, and who waits for bytes
        of this log is woken then. Raises StorageError or OSError."""
        self.was_asked = True
        if not self._is_reading:
            self._read_on()
        if self._saved is not None:
            return None
        known = min(self._at, self._replica.high_watermark)
        stable = self._transactions.last_stable_offset(known)
        if offset >= stable and self._is_reading:
            return None  # Whoever is told of an end that is not the end would take it for one.
        return Decided(stable, self._transactions)

    def rests_on(self, offset: int) -> bool:
        """Whether a batch from `offset` on was looked at, or is just now."""
        return offset < max(self._at, self._end)

    def trim(self, log_start: int) -> None:
        """The log begins at `log_start` now."""
        if self._at < log_start:
            self._begin()
        self._transactions.trim(log_start)

    # --- reading the log -----------------------------------------------------------------------

    def _read_on(self) -> None:
        """To what is committed now; at once, as far as that is quick."""
        if self._is_behind_a_swap():
            self._begin()
        if self._saved is not None:
            self._do_aside(partial(self._read_saved, self._saved))
            return
        self._end = min(self._replica.high_watermark, self.log.readable_end)
        slices = self._next(AT_ONCE_BYTES)
        if slices and all(part.is_cached() for part in slices):
            try:
                self._take(look_into(slices, self._at))
            except RotError as error:
                self._replica.found_rot(error, Sight.of(self.log))
                raise
            slices = self._next(LOAD_BYTES)
        if slices:
            self._do_aside(partial(look_into, slices, self._at))

    def _is_behind_a_swap(self) -> bool:
        """Whether compaction may have taken what was to be read next, a marker for one."""
        if self._swap_count == self.log.swap_count:
            return False
        self._swap_count = self.log.swap_count
        return self._at < self.log.segments_list[-1].base  # The last one is never compacted.

    def _next(self, bytes_max: int) -> list[FileSlice]:
        """What is to be read next; none: all is read that was committed when this began."""
        if self._at >= self._end:
            return []
        slices = self.log.read(self._at, bytes_max, self._end, whole_first_batch=True)
        if not slices:
            self._at = self._end  # Compaction left nothing between the two.
        return slices

    def _take(self, piece: Piece) -> None:
        for header, marker in piece.seen:
            if header.next_offset > self._at:
                self._transactions.committed(header, marker)
        if piece.next_offset <= self._at:
            raise StorageError(f"no batch can be read at offset {self._at}")
        self._at = piece.next_offset

    def _do_aside(self, work: Callable[[], Found]) -> None:
        run, found, seen = self._run, list[Found](), Sight.of(self.log)
        self._is_reading = True

        def done(error: BaseException | None) -> None:
            if self._run != run or self._replica.is_retired:
                return  # Its files may be gone, or say something else now.
            self._is_reading = False
            try:
                if error is not None:
                    raise error
                self._read(found[0])
            except (DmqError, OSError) as failure:
                # Who waits for it comes back when its patience ends: then it is read again.
                log.warning("transactions of %r can't be read: %s", self._replica, failure)
                if isinstance(failure, RotError):
                    self._replica.found_rot(failure, seen)

        self._submit(lambda: found.append(work()), done)

    def _read(self, found: Found) -> None:
        """A step is done. Raises DmqError or OSError."""
        if isinstance(found, Piece):
            self._take(found)
        else:
            self._take_saved(found)
        if self._is_behind_a_swap():
            self._begin()
        slices = [] if self._saved is not None else self._next(LOAD_BYTES)
        if slices:
            self._do_aside(partial(look_into, slices, self._at))
        else:
            self._replica.fetches.wake_all()

    # --- the snapshot --------------------------------------------------------------------------

    def _read_saved(self, saved: int) -> ProducerSnapshot | None:
        """For a thread. None: it is no good. Raises OSError."""
        assert self._files is not None
        return read_snapshot(self._files, self.log.uid, saved)

    def _take_saved(self, found: ProducerSnapshot | None) -> None:
        saved, self._saved = self._saved, None
        assert self._files is not None
        if found is not None and self._fits(found.position):
            self._transactions = DecidedTransactions(found)
            self._transactions.trim(self.log.log_start)
        else:
            newer = self._files.offset(self.log.uid)
            self._begin(with_snapshot=newer is not None and newer != saved)
        self._end = min(self._replica.high_watermark, self.log.readable_end)

    def _fits(self, position: Position) -> bool:
        """Whether it speaks of this log."""
        source = self.log
        return position.offset <= source.end_offset and source.marks.has(
            position, source.end_offset, source.log_start
        )
