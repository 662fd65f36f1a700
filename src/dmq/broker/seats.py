"""A coordinator's seat: a partition of an internal topic, and the machine that runs on it while we lead.

The machine is made and fed with the whole log when the leadership begins, and thrown away with it, or
when the log is cut below what it has seen: there is nothing to roll back (SPEC §7). What the log says is
read in the loop, in steps; these logs are compacted. Bytes that rotted are found there, and the replica
leads no more until it is repaired. The kinds of seats are in group_seats.py and transaction_seats.py.
Called by the replica, which says when it leads, and by the coordinators.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from dmq.broker.multiraft.cargo import Sight, read_piece
from dmq.broker.multiraft.replica import Replica
from dmq.broker.producing import ProducerBook
from dmq.errors import DmqError, ErrorCode, KafkaError, StorageError
from dmq.machines.machine import Record as MachineRecord
from dmq.records import BatchHeader, Record, build_batch, iterate, read_header, scan

log = logging.getLogger("dmq.broker")

LOAD_BYTES = 4 * 1024 * 1024
"""Read from the log in steps of this size while loading."""


class Occupant(Protocol):
    """What runs on a seat, for one leadership."""

    def load(self, header: BatchHeader, records: list[Record]) -> None:
        """A batch of the log, in order."""

    def lead(self, now: int) -> None:
        """All of the log was loaded: serve."""

    def resign(self) -> None:
        """The leadership is over, or must begin anew."""


class Seat:
    """See the module. `make` gives a new occupant for each leadership."""

    __slots__ = ("_bad", "_make", "_now", "_wall", "occupant", "replica")

    def __init__(
        self,
        replica: Replica,
        make: "Callable[[Seat], Occupant]",
        now: Callable[[], int],
        wall: Callable[[], int],
    ) -> None:
        self.replica = replica
        self._make = make
        self._now = now
        self._wall = wall
        self.occupant: Occupant | None = None
        """While we lead and all is loaded."""
        self._bad: tuple[StorageError, Sight] | None = None
        """The log can't be read: the replica is told with the next tick, outside of its own turn."""
        replica.watch = self
        self.moved()

    # --- the leadership ------------------------------------------------------------------------

    def moved(self) -> None:
        """The replica's commit point or role changed."""
        is_leader = self.replica.core.can_append
        if is_leader and self.occupant is None:
            self._take()
        elif not is_leader and self.occupant is not None:
            self._leave()

    def cut(self, end_offset: int) -> None:
        """Records from here on are gone: nobody knows which of them the machine has seen. If our disk
        refused them and we lead on, the next tick begins anew: those who wait for what is gone are
        told after us, and whoever waits for less must not stand behind them."""
        if self.occupant is not None:
            self._leave()

    def tick(self, now: int) -> None:
        """Sit down if that is still to be done: after a handover that was given up, or a cut."""
        if self.occupant is None:
            self.moved()
        bad, self._bad = self._bad, None
        if bad is not None:
            error, seen = bad
            self.replica.note_damage(error, now, seen)

    def _take(self) -> None:
        source = self.replica.log
        if source.staged_bytes or source.readable_end < source.end_offset:
            return  # The end of the log can't be read before a turn has written it.
        occupant = self._make(self)
        try:
            self._load(occupant)
        except StorageError as error:
            log.error("a coordinator can't read its log, %r: %s", self.replica, error)
            self._bad = error, Sight.of(source)
            return
        self.occupant = occupant
        occupant.lead(self._now())

    def _leave(self) -> None:
        occupant, self.occupant = self.occupant, None
        assert occupant is not None
        occupant.resign()

    def _load(self, occupant: Occupant) -> None:
        """Raises StorageError."""
        replica = self.replica
        offset, end = replica.log_start_offset, replica.log_end_offset
        while offset < end:
            piece = read_piece(replica.log, offset, end, LOAD_BYTES)
            for position, header in scan(piece.data):
                occupant.load(header, list(iterate(piece.data, position, header)))
            offset = piece.stop

    def skipped(self, record: Record, error: DmqError) -> None:
        """A record in the log is none of a coordinator's, though its bytes are whole: a foreign or a
        later broker wrote it. Without it we lead; with it nobody would."""
        log.warning(
            "%r: the record at offset %d is skipped: %s", self.replica, record.offset, error
        )

    # --- the log -------------------------------------------------------------------------------

    def append(
        self,
        records: list[MachineRecord],
        *,
        attributes: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        """Append records as one batch. Raises KafkaError or StorageError, with nothing appended."""
        first, wall = self.replica.log_end_offset, self._wall()
        batch = build_batch(
            [Record(first + n, wall, record.key, record.value) for n, record in enumerate(records)],
            attributes=attributes,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        book = self.replica.book
        if producer_id < 0 or not isinstance(book, ProducerBook):
            self.replica.propose(batch, self._now())
            return
        header = read_header(batch)._replace(base_offset=first)
        book.check_own(header)
        book.appended(header, self.replica.propose(batch, self._now()))

    def when_committed(self, callback: Callable[[ErrorCode], None]) -> None:
        """Call when all that is in the log now is committed; with an error if it never will be."""
        self.replica.when_committed(callback)

    def when_newest(self, callback: Callable[[ErrorCode], None]) -> None:
        """The same for what was only read: call when it is known to be the newest, too."""
        self.replica.when_newest(self._now(), callback)

    def check_leads(self) -> None:
        """Raises NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS."""
        if not self.replica.core.can_append:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if self.occupant is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
