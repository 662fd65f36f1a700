"""What a connection has yet to send: bytes gathered into one call, file slices by `sendfile`.

Owns the order of the bytes and the fairness between connections: one pass sends a bounded amount.
A slice whose pages are not in memory is never sent from the loop's thread: `blocked_on` names it and
a worker warms it first. Never decides what is sent.
"""

import os
import socket
from collections import deque
from typing import Protocol

PASS_BYTES = 512 * 1024
"""Sent per connection before others get their turn: about 0.2 ms of copying on loopback."""
SLICE_BYTES = 256 * 1024
"""Sent from a file in one call, and probed or warmed in one go."""
IOVECS_MAX = 64


class Slice(Protocol):
    """A range of a file that stays readable as long as somebody holds it."""

    @property
    def position(self) -> int: ...
    def __len__(self) -> int: ...
    def fileno(self) -> int: ...
    def part(self, start: int, length: int) -> "Slice": ...
    def is_cached(self) -> bool: ...
    def pread(self) -> bytes: ...


class Outbox:
    """The unsent bytes of one connection."""

    __slots__ = ("_parts", "_sent", "blocked_on", "unsent_bytes")

    def __init__(self) -> None:
        self._parts: deque[bytes | bytearray | memoryview | Slice] = deque()
        self._sent = 0  # Of the first part.
        self.unsent_bytes = 0
        self.blocked_on: Slice | None = None

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, part: "bytes | bytearray | memoryview | Slice") -> None:
        if size := len(part):
            self._parts.append(part)
            self.unsent_bytes += size

    def send(self, sock: socket.socket) -> bool:
        """Send up to one pass. Whether more could be sent right now (False: wait until writable,
        or until `blocked_on` is warm). Raises OSError when the connection is gone."""
        budget = PASS_BYTES
        while self._parts and budget > 0:
            first = self._parts[0]
            if isinstance(first, (bytes, bytearray, memoryview)):
                count = self._send_bytes(sock)
            else:
                count = self._send_slice(sock, first)
            if count < 0:
                return False
            budget -= count
        return True

    def _send_bytes(self, sock: socket.socket) -> int:
        views: list[memoryview] = []
        for part in self._parts:
            if not isinstance(part, (bytes, bytearray, memoryview)) or len(views) == IOVECS_MAX:
                break
            views.append(memoryview(part))
        views[0] = views[0][self._sent :]
        try:
            count = sock.send(views[0]) if len(views) == 1 else sock.sendmsg(views)
        except BlockingIOError:
            return -1
        self._consume(count)
        return count

    def _send_slice(self, sock: socket.socket, part: Slice) -> int:
        piece = part.part(self._sent, min(len(part) - self._sent, SLICE_BYTES))
        if not piece.is_cached():
            self.blocked_on = piece
            return -1
        try:
            sent = os.sendfile(sock.fileno(), piece.fileno(), piece.position, len(piece))
        except BlockingIOError:
            return -1
        if sent == 0:
            raise OSError("a log file is shorter than its index says")
        self._consume(sent)
        return sent

    def _consume(self, count: int) -> None:
        self.unsent_bytes -= count
        count += self._sent
        parts = self._parts
        while parts and count >= len(parts[0]):
            count -= len(parts.popleft())
        self._sent = count

    def clear(self) -> None:
        self._parts.clear()
        self._sent = self.unsent_bytes = 0
        self.blocked_on = None
