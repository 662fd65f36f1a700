"""Runs a machine on a partition: commands make records, the log keeps them, answers wait for it.

Owns the order of things (SPEC §7). On the leader `handle` sees the newest state; its records are appended
as one batch and applied at once; every answer, also an empty one, leaves when the position that the
state had is committed, and one without records when no other leader can have had newer ones. A follower
applies what is committed, so that it can take over at once. What is committed is announced once, in
order. A machine that has applied what the log no longer holds, or what a deposed leader can't vouch for,
goes back to what was announced.

A log that begins again, because it could not be repaired, has all its records sent once more: they are no
news, and nothing is done until it is as long as it was. Only if it then has another history, by an
operator's order after a loss, all begins anew.

Bytes that rotted are never applied: the replica leads no more until its group has repaired them, and a
broker that has the only copy stops. Never interprets a command or a record.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from dmq.broker.answer import Answer
from dmq.broker.multiraft.cargo import Sight, read_piece
from dmq.broker.multiraft.replica import NotLeaderError, Replica
from dmq.broker.timers import Timers
from dmq.errors import DmqError, ErrorCode, FatalStorageError, KafkaError, StorageError
from dmq.machines.machine import Command, Machine
from dmq.machines.machine import Record as MachineRecord
from dmq.raft.quorum import NOTHING
from dmq.records import Record, build_batch, check_crc, iterate, scan
from dmq.storage.files import Buffer
from dmq.types import Millis, Voter

R = TypeVar("R")

log = logging.getLogger("dmq.broker")

LOAD_BYTES = 4 * 1024 * 1024
"""Read from the log in steps of this size while loading."""

OnCommitted = Callable[[list[MachineRecord]], None]


class _Reader:
    """Somebody who read from the machine, and is told once whether that may be told on."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[bool], None]) -> None:
        self._callback: Callable[[bool], None] | None = callback

    def tell(self, is_true: bool) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(is_true)


class MachineHost:
    """One machine on the replica of the partition that is its log."""

    def __init__(
        self,
        machine: Machine,
        replica: Replica,
        *,
        me: Voter,
        restore: Callable[[], None],
        on_committed: OnCommitted,
        on_replaced: OnCommitted,
        now: Callable[[], int],
        timers: Timers,
    ) -> None:
        """`restore`: makes the machine one that has seen what was announced, and no more.
        `on_committed`: these records are committed. `on_replaced`: these, and none that were announced
        before."""
        self.machine = machine
        self.replica = replica
        self._me = me
        self.applied = replica.log_start_offset
        """The machine has seen all records below this offset."""
        self.committed = self.applied
        """All below is committed, applied and was announced."""
        self._committed_at = NOTHING
        """A position up to which it was: the log that has it has the same history."""
        self._is_refilling = False
        """The log was cut below what was announced: it may not have all of it again yet."""
        self._restore = restore
        self._on_committed = on_committed
        self._on_replaced = on_replaced
        self._now = now
        self._timers = timers
        self._pending: deque[tuple[int, list[MachineRecord]]] = deque()
        """(end offset, records) that the leader applied before they were committed."""
        self._was_leader = False
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._readers: dict[_Reader, None] = {}
        replica.watch = self

    # --- reading along -----------------------------------------------------------------------

    def moved(self) -> None:
        """The replica's commit point or role changed."""
        was_leader, is_leader = self._was_leader, self.replica.is_leader
        self._was_leader = is_leader
        if self._is_refilling:
            self._look_at_history()
        if not self._is_refilling:
            self._read_along(was_leader=was_leader, is_leader=is_leader)
        if not is_leader:
            self._dismiss_readers()
        self._wake()

    def _read_along(self, *, was_leader: bool, is_leader: bool) -> None:
        replica = self.replica
        if is_leader:
            self._apply_up_to(replica.log_end_offset)
        self._announce()  # A step that deposes may commit as well.
        if not is_leader:
            if was_leader and self._pending:
                self._go_back()  # The rest may be cut yet: show only what is committed.
            self._apply_up_to(replica.high_watermark)
            self._announce()

    def cut(self, end_offset: int) -> None:
        """Records from here on are gone; the replica tells `moved` when it has settled."""
        if max(end_offset, 0) < self.committed:
            self._is_refilling = True
        if max(end_offset, self.committed) < self.applied:
            self._go_back()
            if self.replica.is_leader:  # Its disk refused some of it.
                self._apply_up_to(self.replica.log_end_offset)

    def _go_back(self) -> None:
        """To what was announced. Those who wait for what is gone are told by the replica."""
        log.info("what is not committed of the cluster's metadata is forgotten, for it may be cut")
        self._pending.clear()
        self._restore()
        self.applied = self.committed

    def _look_at_history(self) -> None:
        """Whether the log has what was announced by now; if it never will, what it has holds."""
        replica, core = self.replica, self.replica.core
        if core.commit < self._committed_at:
            return
        if core.marks.has(self._committed_at, replica.log_end_offset, replica.log_start_offset):
            self._is_refilling = False
            return
        start, end = replica.log_start_offset, replica.high_watermark
        batches = list(self._batches(start, end))
        if (batches[-1][0] if batches else start) < end:
            return  # It can't be read; we are told when it can.
        log.error("committed metadata of the cluster were lost: this broker goes by what is left")
        self._is_refilling = False
        self.applied = self.committed = end
        self._committed_at = core.commit
        self._pending.clear()
        self._on_replaced([record for _, records in batches for record in records])
        self._go_back()

    def _apply_up_to(self, end: int) -> None:
        """Apply what the log holds; it reads from the loop: at start and on followers."""
        for stop, records in self._batches(self.applied, end):
            for record in records:
                self.machine.apply(record)
            if records:
                self._pending.append((stop, records))
            self.applied = stop

    def _batches(self, offset: int, end: int) -> Iterator[tuple[int, list[MachineRecord]]]:
        """(end offset, records) of what the log holds from `offset` on.

        Raises FatalStorageError if it can't be read, and nobody else has it.
        """
        while offset < end:
            if self.replica.core.is_damaged:
                self._check_others_have_it("bytes of it are bad or missing")
                return  # We are told when they are good again.
            try:
                piece = read_piece(self.replica.log, offset, end, LOAD_BYTES)
            except StorageError as error:
                log.error("the log of the cluster's metadata can't be read: %s", error)
                self._check_others_have_it(str(error))
                # Later: we may be called in the middle of the replica's own turn.
                self._timers.at(
                    self._now(), partial(self._note_damage, error, Sight.of(self.replica.log))
                )
                return
            if piece.stop == offset:
                return  # No turn has written it yet; we are told when one has.
            yield from _records_from(piece.data, offset)
            offset = piece.stop

    def _check_others_have_it(self, problem: str) -> None:
        if self.replica.core.voters == (self._me,):
            raise FatalStorageError(
                f"the metadata log is damaged and this broker has the only copy: {problem}. "
                f"Restore the data directory from a backup; or keep it aside for its records "
                f"(logs/) and begin with an empty one"
            )

    def _note_damage(self, error: StorageError, seen: Sight) -> None:
        if not self.replica.is_retired:
            self.replica.note_damage(error, self._now(), seen)

    def everything(self) -> Iterator[MachineRecord]:
        """All records of the log that are readable, committed or not: for hints, not for facts."""
        offset, end = self.replica.log_start_offset, self.replica.log_end_offset
        while offset < end:
            before = offset
            for data in self._unchecked(offset, end):
                for position, header in scan(data):
                    offset = max(offset, header.next_offset)
                    if not header.is_control and check_crc(data, position, header):
                        for record in iterate(data, position, header):
                            yield MachineRecord(record.key or b"", record.value)
            if offset == before:
                return

    def _unchecked(self, offset: int, end: int) -> list[bytes]:
        found: list[bytes] = []
        try:
            for piece in self.replica.log.read(offset, LOAD_BYTES, end, whole_first_batch=True):
                found.append(piece.pread())
        except (StorageError, OSError) as error:
            log.warning("the metadata log can't be read on from offset %d: %s", offset, error)
        return found

    def _announce(self) -> None:
        """Tell what was committed, in order, and all of it at once: to whoever acts on it what was true
        on the way is of no use."""
        pending, high_watermark = self._pending, self.replica.high_watermark
        told: list[MachineRecord] = []
        while pending and pending[0][0] <= high_watermark:
            told += pending.popleft()[1]
        self.committed = max(self.committed, min(self.applied, high_watermark))
        if self.committed == high_watermark:
            self._committed_at = self.replica.core.commit
        if told:
            self._on_committed(told)

    def when_applied(self, offset: int, callback: Callable[[], None]) -> None:
        """Call when all below `offset` is committed and applied here; at once if it is."""
        if self.committed >= offset:
            callback()
        else:
            self._waiting.append((offset, callback))

    def when_settled(self, callback: Callable[[bool], None]) -> None:
        """Call when what was read from the machine just now is committed. With False if the machine
        went back instead: read again. A follower's machine has seen nothing else."""
        if not self.replica.is_leader:
            callback(True)
            return
        reader = _Reader(callback)
        self._readers[reader] = None

        def settled(code: ErrorCode) -> None:
            self._readers.pop(reader, None)
            reader.tell(code is ErrorCode.NONE)

        self.replica.when_committed(settled)

    def _dismiss_readers(self) -> None:
        readers, self._readers = self._readers, {}
        for reader in readers:
            reader.tell(False)

    def _wake(self) -> None:
        if not self._waiting:
            return
        committed, waiting = self.committed, self._waiting
        self._waiting = [entry for entry in waiting if entry[0] > committed]
        for offset, callback in waiting:
            if offset <= committed:
                callback()

    # --- commands ----------------------------------------------------------------------------

    def submit(self, command: Command[R], now: int) -> Answer[R]:
        """Give a command; the answer comes when what it rests on is committed.

        `now` is wall time: records carry it. Fails with NotLeaderError unless we lead.
        """
        answer: Answer[R] = Answer()
        replica = self.replica
        has_all = self.applied == replica.log_end_offset and not self._is_refilling
        if not (replica.core.can_append and has_all):
            answer.fail(NotLeaderError(replica.core.leader, replica.core.epoch))
            return answer
        try:
            outcome = self.machine.handle(command, Millis(now))
        except DmqError as error:
            replica.when_newest(self._now(), partial(self._refuse, answer, error))
            return answer
        if outcome.records:
            try:
                self._append(outcome.records, now)
            except (KafkaError, StorageError) as error:  # Before anything was applied.
                answer.fail(error)
                return answer
        response = outcome.response

        def settled(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                answer.resolve(response)
            else:
                answer.fail(KafkaError(code) if outcome.records else self._unread(code))

        if outcome.records:
            replica.when_committed(settled)
        else:
            replica.when_newest(self._now(), settled)
        return answer

    def _refuse(self, answer: Answer[R], error: DmqError, code: ErrorCode) -> None:
        answer.fail(error if code is ErrorCode.NONE else self._unread(code))

    def _unread(self, code: ErrorCode) -> DmqError:
        """Why there is no answer to a command that appended nothing: another leader may be asked."""
        core = self.replica.core
        is_elsewhere = code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return NotLeaderError(core.leader, core.epoch) if is_elsewhere else KafkaError(code)

    def _append(self, records: list[MachineRecord], now: int) -> None:
        first = self.replica.log_end_offset
        batch = build_batch(
            [Record(first + n, now, record.key, record.value) for n, record in enumerate(records)]
        )
        self.replica.propose(batch, self._now())
        for record in records:
            self.machine.apply(record)
        self.applied = self.replica.log_end_offset
        self._pending.append((self.applied, records))


def _records_from(data: Buffer, offset: int) -> Iterator[tuple[int, list[MachineRecord]]]:
    """(end offset, records) of each batch, without what lies below `offset`."""
    for position, header in scan(data):
        if header.next_offset > offset:
            records = [] if header.is_control else iterate(data, position, header)
            yield (
                header.next_offset,
                [MachineRecord(r.key or b"", r.value) for r in records if r.offset >= offset],
            )
