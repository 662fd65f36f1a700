"""Bytes and file slices leave in order; cold slices wait; a full socket loses nothing."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmq.doors.outbox import PASS_BYTES, Outbox


class FilePart:
    """A slice of a file, cold until read; its parts share that."""

    def __init__(
        self, path: Path, position: int, count: int, *, cold: list[bool] | None = None
    ) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY)
        self.position = position
        self._count = count
        self._cold = [False] if cold is None else cold

    def __len__(self) -> int:
        return self._count

    def fileno(self) -> int:
        return self._fd

    def part(self, start: int, length: int) -> "FilePart":
        return FilePart(self._path, self.position + start, length, cold=self._cold)

    def is_cached(self) -> bool:
        return not self._cold[0]

    def pread(self) -> bytes:
        self._cold[0] = False
        return os.pread(self._fd, self._count, self.position)

    def __del__(self) -> None:
        os.close(self._fd)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    with left, right:
        yield left, right


@pytest.fixture
def big_file(tmp_path: Path) -> Path:
    path = tmp_path / "slice"
    path.write_bytes(bytes(i & 255 for i in range(3 << 20)))
    return path


def drain(outbox: Outbox, left: socket.socket, right: socket.socket) -> bytes:
    received = bytearray()
    while outbox:
        outbox.send(left)
        assert outbox.blocked_on is None
        try:
            while chunk := right.recv(1 << 16):
                received += chunk
        except BlockingIOError:
            pass
    return bytes(received)


def test_order_is_kept_between_bytes_and_slices(
    pair: tuple[socket.socket, socket.socket], big_file: Path
) -> None:
    data = big_file.read_bytes()
    outbox = Outbox()
    expected = b""
    for n in range(100):
        outbox.add(b"<%d>" % n)
        outbox.add(FilePart(big_file, n * 1000, 30_000))
        expected += b"<%d>" % n + data[n * 1000 : n * 1000 + 30_000]
    assert outbox.unsent_bytes == len(expected)
    assert drain(outbox, *pair) == expected
    assert outbox.unsent_bytes == 0


def test_many_small_parts(pair: tuple[socket.socket, socket.socket]) -> None:
    outbox = Outbox()
    parts = [bytes([n & 255]) * (n % 7) for n in range(1000)]
    for part in parts:
        outbox.add(part)
    assert drain(outbox, *pair) == b"".join(parts)


def test_a_full_socket_says_so_and_loses_nothing(
    pair: tuple[socket.socket, socket.socket], big_file: Path
) -> None:
    outbox = Outbox()
    for _ in range(3):
        outbox.add(FilePart(big_file, 0, 3 << 20))
        outbox.add(bytes(PASS_BYTES * 2))
    passes = 0
    while outbox.send(pair[0]):
        passes += 1
        assert passes < 100, "nobody reads, so it must stop"
    one = big_file.read_bytes() + bytes(PASS_BYTES * 2)
    assert drain(outbox, *pair) == one * 3


def test_a_cold_slice_is_not_sent_from_the_loop(
    pair: tuple[socket.socket, socket.socket], big_file: Path
) -> None:
    outbox = Outbox()
    part = FilePart(big_file, 10, 1000, cold=[True])
    outbox.add(b"header")
    outbox.add(part)
    assert outbox.send(pair[0]) is False
    assert pair[1].recv(100) == b"header"
    assert outbox.blocked_on is not None
    assert len(outbox.blocked_on.pread()) == 1000
    outbox.blocked_on = None
    assert drain(outbox, *pair) == big_file.read_bytes()[10:1010]


def test_a_file_that_is_too_short_ends_the_connection(
    pair: tuple[socket.socket, socket.socket], big_file: Path
) -> None:
    outbox = Outbox()
    outbox.add(FilePart(big_file, 3 << 20, 10))
    with pytest.raises(OSError, match="shorter"):
        outbox.send(pair[0])
