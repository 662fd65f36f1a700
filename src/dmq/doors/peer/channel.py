"""One connection between brokers: messages in, messages out, in order.

Owns the socket and what waits to be sent on it. Whoever owns the channel is told of each message and of
the end, once; owners change while a connection goes from a greeting to a session. Never decides what a
message means. An owner that raises ProtocolError in `received` has its peer's channel closed.
"""

import asyncio
import contextlib
import socket
from typing import Protocol

from dmq.doors.frames import FrameReader
from dmq.doors.outbox import Outbox
from dmq.doors.peer.messages import FIRST_BYTES_MAX, Kind, open_message
from dmq.errors import ProtocolError

READS_PER_EVENT = 8
"""Receive calls per readable event, so that control is never far behind bulk."""
FRAME_BYTES_USUAL = 4 * 1024 * 1024
"""A frame between brokers has a megabyte and the rest of a batch."""
CLOSED = "closed the connection"


class Owner(Protocol):
    """Who answers for a channel."""

    def received(self, channel: "Channel", kind: Kind, body: memoryview) -> None:
        """Raises ProtocolError if it does not belong here."""

    def ended(self, channel: "Channel", reason: str) -> None:
        """The other side, or its bytes, ended it."""


class Channel:
    """See the module."""

    __slots__ = (
        "_fd",
        "_flush_is_due",
        "_is_reading",
        "_is_writing",
        "_loop",
        "_outbox",
        "_reader",
        "_sock",
        "address",
        "heard_at",
        "is_closed",
        "owner",
        "progress_at",
        "queued_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        address: str,
        shared: memoryview,
        owner: Owner,
    ) -> None:
        self.owner = owner
        self.address = address
        """Of the other end, for people."""
        self.is_closed = False
        self.heard_at = self.progress_at = loop.time()
        self.queued_bytes = 0
        """Ever given to be sent."""
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._reader = FrameReader(shared, FIRST_BYTES_MAX)
        self._outbox = Outbox()
        self._is_reading = self._is_writing = self._flush_is_due = False
        self.resume()

    # ---- in

    def take_larger(self, bytes_max: int) -> None:
        """The other end has said who it is: its messages may have more bytes."""
        self._reader.bytes_max = bytes_max
        self._reader.trusted_bytes = min(bytes_max, FRAME_BYTES_USUAL)

    def resume(self) -> None:
        if not self._is_reading and not self.is_closed:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        try:
            for _ in range(READS_PER_EVENT):
                frames = self._reader.receive(self._sock)
                if frames is None:
                    self._end(CLOSED)
                    return
                self.heard_at = self._loop.time()
                for frame in frames:
                    self.owner.received(self, *open_message(frame))
                    if self.is_closed:
                        return
                if not self._is_reading:
                    return
        except BlockingIOError:
            return
        except ProtocolError as error:
            self._end(f"broke the protocol: {error}")
        except OSError as error:
            self._end(f"is gone: {error}")

    # ---- out

    @property
    def unsent_bytes(self) -> int:
        return self._outbox.unsent_bytes

    @property
    def sent_bytes(self) -> int:
        """Ever given to the system."""
        return self.queued_bytes - self._outbox.unsent_bytes

    def send(self, *parts: bytes | bytearray | memoryview) -> None:
        """Messages, or the parts of one, in order. What is said in one pass leaves in one call."""
        if self.is_closed:
            return
        if not self._outbox:
            self.progress_at = self._loop.time()
        for part in parts:
            self._outbox.add(part)
            self.queued_bytes += len(part)
        if not self._flush_is_due and not self._is_writing:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self.is_closed:
            return
        before = self._outbox.unsent_bytes
        try:
            goes_on = self._outbox.send(self._sock)
        except OSError as error:
            self._end(f"is gone: {error}")
            return
        if self._outbox.unsent_bytes < before:
            self.progress_at = self._loop.time()
        if not goes_on:
            self._start_writing()
        elif self._outbox:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)
        else:
            self._stop_writing()

    def _start_writing(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._fd, self._flush)

    def _stop_writing(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)

    def say_last(self, data: bytes) -> None:
        """Send what the system takes at once, and close: a refusal, for whoever is still there."""
        if not self.is_closed:
            self._outbox.add(data)
            with contextlib.suppress(OSError):  # It has gone already.
                self._outbox.send(self._sock)
            self.close()

    # ---- the end

    def _end(self, reason: str) -> None:
        self.close()
        self.owner.ended(self, reason)

    def close(self) -> None:
        """Nobody is told."""
        if not self.is_closed:
            self.is_closed = True
            self.pause()
            self._stop_writing()
            self._sock.close()
