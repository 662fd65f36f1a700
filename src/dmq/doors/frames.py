"""Cuts length-prefixed frames out of a socket, with as few copies as their size allows.

Small frames arrive in a buffer that all connections share and are copied out once; a frame that
is larger than what has arrived of it gets a buffer of its own and is received straight into that.
Each frame is a bytearray that belongs to whoever takes it, so batches in it are stamped in place.
Never decides what a frame means.
"""

import socket

from dmq.errors import ProtocolError

SHARED_BYTES = 256 * 1024
"""One receive call's worth of small frames."""
OWN_BUFFER_BYTES_MIN = 16 * 1024
"""From this size on an unfinished frame is received into its own buffer instead of joined later."""
OWN_BUFFER_BYTES_FIRST = 1024 * 1024 + 64 * 1024
"""The most that is set aside for a frame on the word of its length: a usual batch fits. A longer
frame's buffer doubles as its bytes really come, so that a lie about a length costs us nothing. Whose
word is better is told more (`trusted_bytes`), and spares the copies."""


class FrameReader:
    """The frames of one connection. `shared` is scratch space of the event loop's thread."""

    __slots__ = (
        "_broken",
        "_filled",
        "_frame",
        "_frame_view",
        "_rest",
        "_shared",
        "_size",
        "bytes_max",
        "progress",
        "trusted_bytes",
    )

    def __init__(self, shared: memoryview, bytes_max: int) -> None:
        self._shared = shared
        self.bytes_max = bytes_max
        self.trusted_bytes = OWN_BUFFER_BYTES_FIRST
        self._rest = b""  # The beginning of a small frame.
        self._frame: bytearray | None = None  # A large one, being filled.
        self._frame_view: memoryview | None = None
        self._broken: ProtocolError | None = None
        self._filled = 0
        self._size = 0  # Of the large one, when it is whole.
        self.progress = 0
        """Bytes received so far: tells a slow sender from a silent one."""

    def receive(self, sock: socket.socket) -> list[bytearray] | None:
        """Whole frames that one receive call completed; None at the end of the stream.

        Raises ProtocolError on an impossible length; BlockingIOError and OSError as the socket.
        """
        if self._broken is not None:
            raise self._broken
        if self._frame_view is not None:
            return self._receive_large(sock, self._frame_view)
        rest = self._rest
        shared = self._shared
        start = len(rest)
        if start:
            shared[:start] = rest
        count = sock.recv_into(shared[start:])
        if count == 0:
            return None
        self.progress += count
        return self._cut(shared, start + count)

    def _receive_large(self, sock: socket.socket, view: memoryview) -> list[bytearray] | None:
        count = sock.recv_into(view[self._filled :])
        if count == 0:
            return None
        self.progress += count
        self._filled += count
        frame = self._frame
        assert frame is not None
        if self._filled < len(frame):
            return []
        if self._filled < self._size:
            self._hold(bytearray(min(2 * self._filled, self._size)), memoryview(frame))
            return []
        self._frame = self._frame_view = None
        return [frame]

    def _cut(self, shared: memoryview, end: int) -> list[bytearray]:
        frames: list[bytearray] = []
        at = 0
        while end - at >= 4:
            size = int.from_bytes(shared[at : at + 4], "big", signed=True)
            if size < 0 or size > self.bytes_max:
                self._broken = ProtocolError(
                    f"frame of {size} bytes (the limit is {self.bytes_max})"
                )
                if not frames:
                    raise self._broken
                return frames  # Those before it are good; the next call tells.
            if end - at - 4 < size:
                if size >= OWN_BUFFER_BYTES_MIN:
                    self._begin_large(shared[at + 4 : end], size)
                    self._rest = b""
                    return frames
                break
            frames.append(bytearray(shared[at + 4 : at + 4 + size]))
            at += 4 + size
        self._rest = bytes(shared[at:end])
        return frames

    def _begin_large(self, begun: memoryview, size: int) -> None:
        self._size = size
        self._hold(bytearray(min(size, self.trusted_bytes)), begun)

    def _hold(self, frame: bytearray, begun: memoryview) -> None:
        """Go on in this buffer, with the bytes that are there already."""
        self._frame, self._frame_view = frame, memoryview(frame)
        self._filled = len(begun)
        self._frame_view[: self._filled] = begun

    @property
    def pending_bytes(self) -> int:
        """Memory that an unfinished large frame holds."""
        return 0 if self._frame is None else len(self._frame)
