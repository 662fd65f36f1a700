"""One client's connection: frames in, answers out in the order of their requests, bounded.

Owns the socket. Reads it only while the requests under way are within their bounds (a sender is
slowed, memory does not grow), sends in passes so that a large fetch never delays a small produce,
and closes on anything that is no protocol. Handlers run inside `_on_readable`; they must not block.

States: open (reading) ⇄ paused (bounds reached, or its answers are not being read) → closed.
"""

import asyncio
import logging
import socket
from collections import deque
from typing import TYPE_CHECKING

from dmq.broker.fetching import Slices
from dmq.doors.call import Call
from dmq.doors.frames import FrameReader
from dmq.doors.outbox import Outbox, Slice
from dmq.errors import ProtocolError
from dmq.wire import registry

if TYPE_CHECKING:
    from dmq.doors.kafka import KafkaDoor

log = logging.getLogger("dmq.door.kafka")

READS_PER_EVENT = 8
"""Receive calls per readable event: a fast sender fills frames without starving the others."""


class Connection:
    """See the module."""

    __slots__ = (
        "_calls",
        "_fd",
        "_flush_is_due",
        "_held_frames",
        "_is_ending",
        "_is_held",
        "_is_reading",
        "_is_warming",
        "_is_writing",
        "_loop",
        "_outbox",
        "_reader",
        "_sock",
        "door",
        "has_produced",
        "in_flight_bytes",
        "is_closed",
        "last_active",
        "peer",
        "software",
        "unfinished_bytes",
    )

    def __init__(
        self,
        door: "KafkaDoor",
        sock: socket.socket,
        peer: str,
        loop: asyncio.AbstractEventLoop,
        reader: FrameReader,
    ) -> None:
        self.door = door
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._reader = reader
        self._outbox = Outbox()
        self._calls: deque[Call] = deque()
        self._is_reading = self._is_writing = self._is_warming = self._flush_is_due = False
        self._is_ending = self._is_held = False
        self._held_frames: deque[bytearray] = deque()
        self.is_closed = False
        self.has_produced = False
        self.in_flight_bytes = 0
        self.unfinished_bytes = 0
        self.last_active = loop.time()
        self.peer = peer
        self.software = ""
        self._resume_reading()

    # --- in ----------------------------------------------------------------------------------

    def _resume_reading(self) -> None:
        if not self._is_reading and not self.is_closed:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        self.last_active = self._loop.time()
        try:
            for _ in range(READS_PER_EVENT):
                frames = self._reader.receive(self._sock)
                if frames is None:
                    self.close("")
                    return
                if self._reader.pending_bytes != self.unfinished_bytes:
                    self._count_unfinished(self._reader.pending_bytes)
                self._held_frames.extend(frames)
                self._take_frames()
                if self.is_closed:
                    return
                if self._is_held or not self._is_within_bounds():
                    self._pause_reading()
                    return
        except BlockingIOError:
            return
        except ProtocolError as error:
            self._close_after_answers(f"broke the protocol: {error}")
        except OSError as error:
            self.close(f"is gone: {error}")

    def _count_unfinished(self, byte_count: int) -> None:
        before, self.unfinished_bytes = self.unfinished_bytes, byte_count
        self.door.count_unfinished(self, byte_count - before)

    def _take_frames(self) -> None:
        frames = self._held_frames
        while frames and not self._is_held and not self.is_closed:
            self._take(frames.popleft())

    def hold(self) -> None:
        """Take no further request until `release`: the order of what they do must stay."""
        assert not self._is_held
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        if self.is_closed or self._is_ending:
            return
        try:
            self._take_frames()
        except ProtocolError as error:
            self._close_after_answers(f"broke the protocol: {error}")
        if not self._is_reading and not self.is_closed:
            self.room_again()

    def _take(self, frame: bytearray) -> None:
        header = registry.decode_request_header(frame)
        if header.api_key == registry.PRODUCE:
            self.has_produced = True
        call = Call(self, header, len(frame))
        self._calls.append(call)
        self.in_flight_bytes += len(frame)
        self.door.in_flight_bytes += len(frame)
        self.door.dispatch(call, frame, header)

    def _is_within_bounds(self) -> bool:
        if self.door.must_wait(self):
            return False
        limits = self.door.limits
        return (
            self.in_flight_bytes <= limits.in_flight_bytes
            and len(self._calls) < limits.in_flight_requests
            and self._outbox.unsent_bytes <= limits.unsent_bytes
        )

    def room_again(self) -> None:
        """The door has room for requests again; go on reading if our own bounds allow it."""
        if not self._is_ending and not self._is_held and self._is_within_bounds():
            self._resume_reading()

    # --- out ---------------------------------------------------------------------------------

    def answered(self, call: Call) -> None:
        """A call has its answer; send what is next in order."""
        if self.is_closed:
            return
        self._forget(call)
        calls = self._calls
        while calls and calls[0].is_done:
            for part in calls.popleft().parts or ():
                if isinstance(part, Slices):
                    for piece in part.slices:
                        self._outbox.add(piece)
                else:
                    self._outbox.add(part)
        if self._outbox and not self._flush_is_due and not self._is_writing:
            # Answers that become ready in one turn leave in one call.
            self._flush_is_due = True
            self._loop.call_soon(self._flush)
        if self._is_ending:
            self._end_if_answered()
        elif not self._is_reading:
            self.room_again()
        self.door.made_room()

    def _flush(self) -> None:
        self._flush_is_due = False
        if self.is_closed or self._is_warming:
            return
        try:
            goes_on = self._outbox.send(self._sock)
        except OSError as error:
            self.close(f"is gone: {error}")
            return
        if self._outbox.blocked_on is not None:
            self._warm(self._outbox.blocked_on)
        elif not goes_on:
            self._start_writing()
        elif self._outbox:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)
        else:
            self._stop_writing()
        if self._is_ending:
            self._end_if_answered()
        elif not self._is_reading and not self.is_closed:
            self.room_again()

    def _start_writing(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._fd, self._flush)

    def _stop_writing(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)

    def _warm(self, piece: Slice) -> None:
        """Have a worker bring the pages in; the loop never waits for a disk."""
        self._outbox.blocked_on = None
        self._is_warming = True
        self._stop_writing()
        self.door.warm(piece, self._warmed)

    def _warmed(self, error: BaseException | None) -> None:
        self._is_warming = False
        if error is not None:  # Half of the answer may be out: there is no other way to tell.
            self.close(f"asked for records that can't be read: {error}")
        self._flush()

    @property
    def has_unsent(self) -> bool:
        return bool(self._outbox)

    # --- the end -----------------------------------------------------------------------------

    def stop_taking(self) -> None:
        """Take no more requests; close when those that were taken are answered."""
        self._pause_reading()
        self._is_ending = True
        self._end_if_answered()

    def _close_after_answers(self, reason: str) -> None:
        """Take nothing more; what was asked before is answered first, as Kafka does."""
        if self.is_closed:
            return
        log.info("connection from %s %s", self.peer, reason)
        while self._calls and not self._calls[-1].is_dispatched:  # The one that broke it.
            self._forget(self._calls.pop())
        self.stop_taking()

    def _end_if_answered(self) -> None:
        if not self._calls and not self._outbox:
            self.close("")

    def _forget(self, call: Call) -> None:
        self.door.in_flight_bytes -= call.request_bytes
        self.in_flight_bytes -= call.request_bytes

    def close(self, reason: str) -> None:
        """Close; `reason` (how it `is gone` or what it did) is logged unless empty."""
        if self.is_closed:
            return
        self.is_closed = True
        if reason:
            log.info("connection from %s %s", self.peer, reason)
        self._pause_reading()
        self._stop_writing()
        for call in self._calls:
            if not call.is_done:
                self._forget(call)
                if call.on_cancel is not None:
                    call.on_cancel()
        if self.unfinished_bytes:
            self._count_unfinished(0)
        self._calls.clear()
        self._held_frames.clear()
        self._outbox.clear()
        self._sock.close()
        self.door.closed(self)
