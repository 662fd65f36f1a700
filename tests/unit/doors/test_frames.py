"""Frames come out whole and in order, however the bytes arrive."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmq.doors.frames import OWN_BUFFER_BYTES_FIRST, OWN_BUFFER_BYTES_MIN, FrameReader
from dmq.errors import ProtocolError


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def read_all(
    data: bytes, pieces: list[int], shared_bytes: int = 64 * 1024, bytes_max: int = 8 << 20
) -> list[bytes]:
    """Feed `data` in pieces of the given sizes (then the rest) and collect the frames."""
    left, right = socket.socketpair()
    reader = FrameReader(memoryview(bytearray(shared_bytes)), bytes_max)
    frames: list[bytes] = []
    with left, right:
        at = 0
        for size in [*pieces, *([4096] * (len(data) // 4096 + 1))]:
            piece = data[at : at + size]
            at += len(piece)
            if not piece:
                continue
            left.sendall(piece)
            taken = 0
            while taken < len(piece):
                before = reader.progress
                found = reader.receive(right)
                assert found is not None
                frames += [bytes(frame) for frame in found]
                taken += reader.progress - before
    return frames


@given(
    st.lists(st.binary(max_size=300), max_size=20),
    st.lists(st.integers(1, 50), max_size=40),
)
def test_any_split_gives_the_same_frames(bodies: list[bytes], pieces: list[int]) -> None:
    assert read_all(framed(*bodies), pieces) == bodies


@given(st.lists(st.integers(1, 5000), max_size=10), st.integers(0, 3))
def test_large_frames_between_small_ones(pieces: list[int], position: int) -> None:
    bodies = [b"a", b"bb", b"ccc"]
    bodies.insert(position, bytes(OWN_BUFFER_BYTES_MIN + 12345))
    assert read_all(framed(*bodies), pieces) == bodies


def test_a_very_large_frame_grows_with_its_bytes() -> None:
    body = bytes(range(256)) * (5 * 4096)
    assert len(body) > 2 * OWN_BUFFER_BYTES_FIRST
    assert read_all(framed(body, b"after"), []) == [body, b"after"]


def test_a_lie_about_a_length_costs_little_memory(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    left, right = pair
    reader = FrameReader(memoryview(bytearray(64 * 1024)), 100 << 20)
    left.sendall((100 << 20).to_bytes(4, "big") + b"a few bytes")
    assert reader.receive(right) == []
    assert reader.pending_bytes <= OWN_BUFFER_BYTES_FIRST


def test_a_frame_is_writable_and_our_own(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    reader = FrameReader(memoryview(bytearray(1024)), 100)
    left.sendall(framed(b"first", b"second"))
    first, second = reader.receive(right) or []
    first[0:5] = b"FIRST"
    assert (bytes(first), bytes(second)) == (b"FIRST", b"second")


def test_the_end_of_the_stream(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    reader = FrameReader(memoryview(bytearray(1024)), 100)
    left.sendall(framed(b"half")[:-1])
    left.shutdown(socket.SHUT_WR)
    assert reader.receive(right) == []
    assert reader.receive(right) is None


def test_good_frames_before_a_bad_length_still_count(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    left, right = pair
    reader = FrameReader(memoryview(bytearray(1024)), 100)
    left.sendall(framed(b"good") + b"\xff\xff\xff\xff")
    assert reader.receive(right) == [b"good"]
    with pytest.raises(ProtocolError):
        reader.receive(right)


@pytest.mark.parametrize("size", [101, 2**31 - 1, -1, -(2**31)])
def test_impossible_lengths_break_the_protocol(
    pair: tuple[socket.socket, socket.socket], size: int
) -> None:
    left, right = pair
    reader = FrameReader(memoryview(bytearray(1024)), 100)
    left.sendall(size.to_bytes(4, "big", signed=True))
    with pytest.raises(ProtocolError):
        reader.receive(right)
