"""What a partition's leader knows of its producers, kept in step with the log.

Idempotence and transactions rest on `machines.producers.ProducerState`: who wrote which sequence last,
which transactions are open. It is made when this broker begins to lead, from the log's last snapshot and
the headers behind it, read beside the loop in steps; until that is done batches of such producers are
refused in a way that makes clients try again. With the leadership it goes. Snapshots are written by
leaders and followers alike, when enough was committed since the last or a segment is complete: so the
way to a leadership stays short, and producers are known though retention took their batches. Followers
keep nothing in memory: they read on from their last snapshot; which transactions are decided they know
only while readers ask them (reading_along.py). Files whose batches no snapshot has yet
stay until one has, though the log's start has moved past them: the process may end at any moment.
Called by the partition, and by the replica, which says what became of the log.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from dmq.broker.multiraft.cargo import RotError, Sight
from dmq.broker.multiraft.replica import Replica
from dmq.broker.producer_loading import Load, Piece, Work, first_offset
from dmq.broker.reading_along import Decided, ReadingAlong
from dmq.errors import DmqError, ErrorCode, KafkaError, StorageError
from dmq.machines.producers.entries import Marker
from dmq.machines.producers.guards import VerificationGuards
from dmq.machines.producers.refusals import Refusals
from dmq.machines.producers.rules import SequenceError
from dmq.machines.producers.snapshot import ProducerSnapshot
from dmq.machines.producers.state import ProducerState, Verdict
from dmq.records import BatchHeader
from dmq.storage.producer_files import ProducerFiles
from dmq.types import Position

log = logging.getLogger("dmq.broker")

SNAPSHOT_BYTES = 64 * 1024 * 1024
"""A snapshot is due when the log has grown by this. Too low: the same producers are written again and
again; too high: a new leader has more to read before it takes batches."""
GUARD_MS = 5 * 60 * 1000
"""Longer than any producer waits for its first batch of a transaction."""


class Aside(Protocol):
    """Runs `work` beside the loop, then `done` in it with what `work` raised, or None."""

    def submit(
        self, work: Callable[[], object], done: Callable[[BaseException | None], None]
    ) -> None: ...


class Snapshots:
    """Snapshots of all partitions of this broker: where they are, and who writes them."""

    __slots__ = ("aside", "files", "reading")

    def __init__(self, files: ProducerFiles, aside: Aside) -> None:
        self.files = files
        self.aside = aside
        self.reading = 0
        """Followers that read for one: the others wait, if they can."""


class BehindRefusedError(KafkaError):
    """Refused only because a batch before it was, which is to come first; not for ever."""


class ProducerBook:
    """See the module."""

    __slots__ = (
        "_along",
        "_aside",
        "_catching_up",
        "_expiration_ms",
        "_is_writing",
        "_last_error",
        "_load",
        "_place",
        "_refusals",
        "_replica",
        "_snapshots",
        "_state",
        "_wall",
        "guards",
    )

    def __init__(
        self,
        replica: Replica,
        aside: Aside,
        expiration_ms: int,
        snapshots: Snapshots | None = None,
    ) -> None:
        self._replica = replica
        self._aside = aside
        self._expiration_ms = expiration_ms
        self._snapshots = snapshots
        self._state: ProducerState | None = None
        self._load: Load | None = None
        """On the way to a leadership."""
        self._catching_up: Load | None = None
        self._last_error: Exception | None = None
        """Why something could not be read."""
        """On the way to a follower's snapshot."""
        self._along: ReadingAlong | None = None
        """What readers ask a follower; None: nobody does."""
        self._is_writing = False
        self._place: tuple[int, int, int] | None = None
        """Offset of the last snapshot, and the segment and byte where that lies."""
        self._wall = 0
        """When it was looked at last."""
        self._refusals = Refusals()
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
        id_, epoch = header.producer_id, header.producer_epoch
        try:
            verdict = self._check(header)
        except SequenceError as error:
            code = self._refusals.code_behind(id_, epoch, error.missing)
            if code is None:
                raise
            raise BehindRefusedError(code, f"{error.missing} was refused, too") from error
        if self._refusals and verdict is None and not self.state.knows(id_):
            # Who is not known may begin with any sequence, but not before what it began with.
            code = self._refusals.code_before(id_, epoch, header.base_sequence)
            if code is not None:
                raise BehindRefusedError(code, "a batch before it was refused, too")
        return verdict

    def _check(self, header: BatchHeader) -> Verdict:
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
        if self._refusals:
            self._refusals.appended(header.producer_id)
        if marker is None and len(self.guards):
            self.guards.appended(header.producer_id)

    def refused(self, header: BatchHeader, code: ErrorCode) -> None:
        """We can't take it now, whatever it is: those in flight behind it must not hear otherwise."""
        self._refusals.refused(
            header.producer_id, header.producer_epoch, header.base_sequence, code
        )

    def failed(self, header: BatchHeader, code: ErrorCode) -> None:
        """It passed `check` and did not get into the log."""
        if self._state is not None:
            self._state.failed(header)
        self.refused(header, code)

    def last_stable_offset(self) -> int:
        """Below it every transaction is decided, as the leader knows it. Raises KafkaError."""
        return self.state.last_stable_offset(self._replica.high_watermark)

    def decided(self, offset: int) -> Decided | None:
        """What readers of committed transactions may see, from a leader or a follower; None: a
        follower does not know it yet (see `ReadingAlong.decided`). Raises DmqError or OSError."""
        replica = self._replica
        if replica.is_leader:
            return Decided(self.last_stable_offset(), self.state)
        if self._along is None or self._along.log is not replica.log:
            self._stop_reading_along()
            self._along = ReadingAlong(replica, self._aside.submit, self._files)
        return self._along.decided(offset)

    def _stop_reading_along(self) -> None:
        if self._along is not None:
            self._along.stop()
            self._along = None

    def expire(self, wall: int, now: int) -> None:
        """Forget some of those who are silent for too long, and what nobody asked for or used."""
        if self._state is not None:
            self._state.expire(wall)
            self.guards.expire(now - GUARD_MS)
        if self._along is not None:
            if not self._along.was_asked:
                self._stop_reading_along()
            else:
                self._along.was_asked = False

    # --- what became of the log (Book) ---------------------------------------------------------

    def moved(self) -> None:
        """The replica's commit point or role changed."""
        replica = self._replica
        if not replica.is_leader:
            self._state = self._load = None
            self.guards.clear()
            return
        self._stop_reading_along()
        if self._state is not None:
            self._state.committed(replica.core.commit)
        elif self._load is None:
            self._begin()

    def cut(self, position: Position) -> None:
        """All beyond `position` left the log."""
        if self._along is not None and self._along.rests_on(position.offset):
            self._stop_reading_along()  # A loss: only what is committed is read.
        if self._state is not None:
            for lost in self._state.cut(position):  # The disk took none of it: we lead on.
                self._refusals.refused(*lost, ErrorCode.KAFKA_STORAGE_ERROR)
        elif self._load is not None:
            self._begin()

    def reset(self) -> None:
        """The log was replaced."""
        self._state = self._load = None
        self._stop_reading_along()
        self._stop_catching_up()
        self._place = None
        if self._snapshots is not None:
            self._snapshots.files.forget(self._replica.log.uid)

    def trim(self, log_start: int) -> None:
        """The log begins at `log_start` now; its files are there until the turn has ended."""
        for load in (self._load, self._catching_up):
            if load is not None:
                load.hold(log_start)
        if self._along is not None:
            self._along.trim(log_start)
        if self._state is not None:
            # What commits the new start may commit batches too, and we are told of the start first.
            self._state.committed(self._replica.core.commit)
            self._state.trim(log_start)
        if self._snapshots is None or self._kept_to(self._snapshots) >= log_start:
            return
        self._free_files(self._snapshots)
        if self._state is not None:
            self._save(self._snapshots, self._state, self._replica.core.commit)
        elif self._load is None and self._catching_up is None:
            self._catch_up(self._snapshots)
            self._go_on_catching_up(self._snapshots)

    # --- reading the log -----------------------------------------------------------------------

    def _begin(self) -> None:
        # What comes behind this end has no producer with an id: they are refused until we are done.
        end = self._replica.log_end_offset
        if self._replica.log.readable_end < end:
            self._load = None
            return  # The end of the log can't be read before a turn has written it.
        self._stop_catching_up()
        self._load = Load(self._replica, self._expiration_ms, end, self._files)
        self._go_on()

    @property
    def _files(self) -> ProducerFiles | None:
        return None if self._snapshots is None else self._snapshots.files

    def _go_on(self) -> None:
        load = self._load
        assert load is not None
        try:
            while (step := load.next_step()) is not None:
                if not load.is_small:
                    self._do_aside(load, step, self._looked)
                    return
                load.take(step())
        except (DmqError, OSError) as error:  # No file to spare, for one.
            self._warn(load, error, Sight.of(load.log))
            self._load = None
            return
        self._state, self._load = load.finish(), None

    def _looked(self, load: Load, found: list[Piece | ProducerSnapshot | None]) -> None:
        if self._load is not load or self._replica.is_retired:
            return  # The leadership ended, or the log was cut: it is read anew, if at all.
        if not found:
            self._load = None
            return
        load.take(found[0])
        self._go_on()

    def _warn(self, load: Load, error: Exception, seen: Sight) -> None:
        log.warning("who wrote to %r can't be read, and is read again: %s", self._replica, error)
        self._last_error = error
        if isinstance(error, RotError) and load in (self._load, self._catching_up):
            self._replica.found_rot(error, seen)

    def _do_aside(
        self,
        load: Load,
        step: Work,
        then: Callable[[Load, list[Piece | ProducerSnapshot | None]], None],
    ) -> None:
        found: list[Piece | ProducerSnapshot | None] = []
        seen = Sight.of(load.log)

        def done(error: BaseException | None) -> None:
            if self._replica.is_retired:
                found.clear()  # Its files may be gone.
            elif isinstance(error, DmqError | OSError):
                self._warn(load, error, seen)
            elif error is not None:
                raise error
            then(load, found)

        self._aside.submit(lambda: found.append(step()), done)

    # --- snapshots -----------------------------------------------------------------------------

    def keep(self, wall: int) -> None:
        """Write a snapshot if one is due. Raises StorageError or OSError."""
        self._wall = wall
        snapshots, replica = self._snapshots, self._replica
        if replica.is_retired:
            return
        if replica.is_leader and self._state is None and self._load is None:
            self.moved()  # It could not be read when it was due: nothing else need move again.
        if snapshots is None or self._is_writing:
            return
        self._free_files(snapshots)
        if replica.log.is_damaged or not self._is_due(snapshots):
            return
        if self._state is not None:
            self._save(snapshots, self._state, replica.core.commit)
        elif self._load is None and self._catching_up is None and not snapshots.reading:
            self._catch_up(snapshots)
            self._go_on_catching_up(snapshots)

    def _kept_to(self, snapshots: Snapshots) -> int:
        kept = snapshots.files.offset(self._replica.log.uid)
        return first_offset(self._replica) if kept is None else kept

    def _free_files(self, snapshots: Snapshots) -> None:
        """Let go of files below the log's start, but not of what the snapshot does not have yet."""
        source, kept = self._replica.log, self._kept_to(snapshots)
        # Nobody else has the bytes that a damaged log lacks there: it is well without them.
        is_free = kept >= source.log_start or source.is_damaged
        self._replica.keep_files(None if is_free else kept)

    def _is_due(self, snapshots: Snapshots) -> bool:
        segments, kept = self._replica.log.segments_list, self._kept_to(snapshots)
        if kept >= self._replica.high_watermark:
            return False
        log_start = self._replica.log_start_offset
        if kept < log_start and self._replica.log.has_file_below(log_start):
            return True  # It stays for this snapshot only.
        if kept < segments[-1].base <= self._replica.high_watermark:
            return True  # A segment is complete: retention may take it.
        if self._place is None or self._place[0] != kept:
            self._place = kept, *self._replica.log.place_of(kept)
        _, base, byte = self._place
        grown = -byte
        for segment in reversed(segments):
            if segment.base < base:
                break
            grown += segment.size
        return grown >= SNAPSHOT_BYTES

    def _catch_up(self, snapshots: Snapshots) -> Load:
        replica = self._replica
        source = replica.log
        # What a crash can take back is not told to a file.
        end = min(replica.high_watermark, source.readable_end, source.stable_end.offset)
        snapshots.reading += 1
        self._catching_up = Load(replica, self._expiration_ms, end, snapshots.files)
        return self._catching_up

    def _stop_catching_up(self) -> None:
        if self._catching_up is not None and self._snapshots is not None:
            self._catching_up = None
            self._snapshots.reading -= 1

    def _go_on_catching_up(self, snapshots: Snapshots) -> None:
        load = self._catching_up
        assert load is not None
        try:
            step = load.next_step()
        except (DmqError, OSError) as error:
            log.warning("producers of %r can't be kept: %s", self._replica, error)
            self._give_up_catching_up(error)
            return
        if step is not None:
            self._do_aside(load, step, partial(self._caught_up, snapshots))
            return
        self._stop_catching_up()
        state = load.finish()
        while state.expire(self._wall):
            pass
        offset = load.read_to
        mark = self._replica.log.marks.at(offset - 1)
        self._save(snapshots, state, Position(mark.epoch, mark.change, offset))

    def _caught_up(
        self, snapshots: Snapshots, load: Load, found: list[Piece | ProducerSnapshot | None]
    ) -> None:
        if self._catching_up is not load:
            return  # We lead now, or the log was replaced.
        if not found:
            self._give_up_catching_up(self._last_error)
            return
        load.take(found[0])
        self._go_on_catching_up(snapshots)

    def _give_up_catching_up(self, error: Exception | None) -> None:
        """The next look begins anew. What a process without descriptors could not read stays for that:
        nothing else tells of those who wrote there."""
        self._stop_catching_up()
        if not isinstance(error, OSError):
            self._replica.keep_files(None)

    def _save(self, snapshots: Snapshots, state: ProducerState, position: Position) -> None:
        source = self._replica.log
        uid, life, kept = source.uid, source.life, snapshots.files.offset(source.uid)
        if self._is_writing or position > source.stable_end:
            return  # What a crash can take back is not told to a file: at the next look.
        if kept is not None and position.offset <= kept:
            return
        snapshot = state.snapshot(position)
        self._is_writing = True

        def done(error: BaseException | None) -> None:
            self._is_writing = False
            if isinstance(error, OSError | StorageError):
                log.warning("%r: %s", self._replica, error)
                self._replica.keep_files(None)  # A full disk needs the room.
            elif error is not None:
                raise error
            else:
                snapshots.files.written(uid, position.offset)
                if source.life != life:
                    snapshots.files.forget(uid)  # The log was replaced meanwhile.
                self._free_files(snapshots)

        snapshots.aside.submit(
            lambda: snapshots.files.write(uid, position.offset, snapshot.encode()), done
        )
