"""Frames as bytes: there and back, and nothing but ProtocolError on any other bytes."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq.broker.multiraft.codec import (
    decode,
    decode_hello,
    encode,
    encode_hello,
    encode_parts,
)
from dmq.broker.multiraft.frames import (
    Claim,
    Digest,
    Frame,
    GroupKey,
    GroupMessage,
    Heartbeat,
    Hello,
    RangeReply,
    RangeRequest,
    Table,
)
from dmq.errors import ProtocolError
from dmq.raft.messages import (
    Ack,
    Append,
    Nack,
    PreVote,
    PreVoteReply,
    Refusal,
    Reset,
    TimeoutNow,
    Vote,
    VoteReply,
)
from dmq.types import Mark, Position, Voter

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
uuids = st.integers(0, 2**128 - 1).map(lambda n: UUID(int=n))
flags = st.booleans()
positions = st.builds(Position, i32, i32, i64)
voters = st.builds(Voter, i32, uuids)
marks = st.builds(Mark, i32, i32, i64, st.lists(voters, max_size=3).map(tuple), i64)
keys = st.builds(GroupKey, uuids, u32)
refusals = st.none() | st.sampled_from(Refusal)
digests = st.builds(Digest, u32, u64)
claims = st.lists(st.builds(Claim, keys, i32), max_size=3).map(tuple)
plain = st.one_of(
    st.builds(PreVote, i32, positions),
    st.builds(PreVoteReply, i32, i32, refusals, flags),
    st.builds(Vote, i32, positions, flags),
    st.builds(VoteReply, i32, i32, refusals, flags),
    st.builds(Reset, i32, marks, i64, positions, i32),
    st.builds(Ack, i32, positions),
    st.builds(Nack, i32, positions, st.none() | positions, flags),
    st.builds(TimeoutNow, i32, i32),
    st.builds(RangeRequest, i32, i64, positions),
)
loaded: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        Append,
        i32,
        positions,
        st.lists(marks, max_size=2).map(tuple),
        positions,
        positions,
        positions,
        flags,
        i32,
    ),
    st.builds(RangeReply, i32, i64, i64),
)
messages = st.one_of(
    st.builds(GroupMessage, keys, plain, st.just(b""), u32),
    st.builds(GroupMessage, keys, loaded, st.binary(max_size=50), u32),
)
frames = st.builds(
    Frame,
    st.none() | st.builds(Heartbeat, i64, i64, i32, digests, digests),
    st.none() | st.builds(Table, i64, claims, claims, flags),
    st.lists(messages, max_size=4).map(tuple),
)
hellos = st.builds(
    Hello,
    st.text(max_size=20),
    voters,
    i64,
    st.integers(0, 65535),
    st.integers(0, 65535),
)


@given(frames)
@settings(max_examples=100, deadline=None)
def test_frames_there_and_back(frame: Frame) -> None:
    back = decode(encode(frame))
    assert back == frame
    assert [type(m.message) for m in back.messages] == [type(m.message) for m in frame.messages]


@given(hellos)
@settings(deadline=None)
def test_hellos_there_and_back(hello: Hello) -> None:
    assert decode_hello(encode_hello(hello)) == hello
    assert decode_hello(encode_hello(hello) + b"of a later version") == hello


@given(frames, st.data())
@settings(max_examples=100, deadline=None)
def test_a_frame_that_is_cut_short_or_too_long_is_refused(
    frame: Frame, data: st.DataObject
) -> None:
    raw = encode(frame)
    with pytest.raises(ProtocolError):
        decode(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(ProtocolError):
        decode(raw + b"\0")


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_are_a_frame_or_refused(raw: bytes) -> None:
    for function in (decode, decode_hello):
        try:
            function(raw)
        except ProtocolError:
            continue


@given(frames, st.data())
@settings(max_examples=100, deadline=None)
def test_a_frame_with_a_flipped_bit_is_a_frame_or_refused(
    frame: Frame, data: st.DataObject
) -> None:
    raw = bytearray(encode(frame))
    at = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[at // 8] ^= 1 << at % 8
    try:
        decode(bytes(raw))
    except ProtocolError:
        return


def test_large_cargo_is_referred_to_and_small_parts_are_joined() -> None:
    key, reply = GroupKey(UUID(int=7), 3), RangeReply(1, 2, 3)
    cargo = [bytes([n]) * size for n, size in enumerate((10, 100_000, 20, 200_000))]
    frame = Frame(messages=tuple(GroupMessage(key, reply, memoryview(data)) for data in cargo))
    parts = encode_parts(frame)
    assert [len(part) for part in parts if len(part) > 1000] == [100_000, 200_000]
    assert len(parts) == 4
    assert memoryview(parts[1]).obj is cargo[1], "not copied"
    found = decode(b"".join(parts))
    assert [bytes(message.cargo) for message in found.messages] == cargo
    assert encode(found) == b"".join(parts)
