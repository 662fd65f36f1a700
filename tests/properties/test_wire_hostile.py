"""Whatever the bytes, decoding gives a message or `ProtocolError`, quickly and in bounded memory.

Random bytes rarely get past the first length, so most cases here start from a valid message of
every API, version and direction and damage it: cut, flip, stretch a count, add tags.
"""

import tracemalloc
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.wire import samples

from dmq.errors import ProtocolError
from dmq.wire import registry
from dmq.wire.primitives import encode_uvarint
from dmq.wire.schema import layout

WOUNDED_PER_CASE = 60
TRUNCATIONS_MAX = 600
COUNTS = [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08", b"\xfe\xff\xff\xff\x07", b"\x80\x01"]
LENGTHS = [b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xfe", b"\x00\xff\xff\xff"]

cases = st.sampled_from(samples.CASES)


def decode_or_refuse(case: tuple[registry.Api, int, str], raw: Any) -> Any:
    """The message, or None if it was refused; any other exception is the finding."""
    api, version, direction = case
    try:
        return samples.decode(api, version, direction, raw)
    except ProtocolError:
        return None


def valid_bytes(case: tuple[registry.Api, int, str], seed: object) -> bytes:
    api, version, direction = case
    cls = samples.message_type(api, direction)
    message = samples.random_message(cls, version, Random(str(seed)))
    return samples.encode(api, version, direction, message)


@settings(max_examples=2000, deadline=None)
@given(cases, st.binary(max_size=300))
def test_random_bytes(case: tuple[registry.Api, int, str], raw: bytes) -> None:
    decode_or_refuse(case, raw)
    decode_or_refuse(case, memoryview(raw))


@settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=80))
def test_random_headers(raw: bytes) -> None:
    try:
        header = registry.decode_request_header(raw)
    except ProtocolError:
        return
    assert header.end <= len(raw)


@pytest.mark.parametrize("api", registry.APIS.values(), ids=lambda api: api.name)
def test_every_truncation_is_refused(api: registry.Api) -> None:
    for case in (case for case in samples.CASES if case[0] is api):
        raw = valid_bytes(case, case[1:])
        for size in range(min(len(raw), TRUNCATIONS_MAX)):
            assert decode_or_refuse(case, raw[:size]) is None, (case, size)


@pytest.mark.parametrize("api", registry.APIS.values(), ids=lambda api: api.name)
def test_damaged_messages_are_refused_or_make_sense(api: registry.Api) -> None:
    for case in (case for case in samples.CASES if case[0] is api):
        rng = Random(samples.case_id(case))
        raw = valid_bytes(case, rng.random())
        for _ in range(WOUNDED_PER_CASE):
            message = decode_or_refuse(case, damage(raw, rng))
            if message is not None:
                assert_can_be_said_again(case, message)


def assert_can_be_said_again(case: tuple[registry.Api, int, str], message: Any) -> None:
    """What was taken for a message is one: it encodes, and the bytes mean the same."""
    api, version, direction = case
    raw = samples.encode(api, version, direction, message)
    again = samples.decode(api, version, direction, raw)
    assert samples.encode(api, version, direction, again) == raw


def damage(raw: bytes, rng: Random) -> bytes:
    """Raw with one to three wounds of the kinds that decoders stumble over."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(raw) + 1)
        match rng.randrange(5):
            case 0:
                raw = raw[:at] + rng.randbytes(1) + raw[at + 1 :]
            case 1:
                raw = raw[:at] + rng.choice(COUNTS) + raw[at + 1 :]
            case 2:
                raw = raw[:at] + rng.choice(LENGTHS) + raw[at + 4 :]
            case 3:
                raw = raw[:at] + raw[at + rng.randint(1, 9) :]
            case 4:
                raw = raw[:at] + rng.randbytes(rng.randint(1, 9)) + raw[at:]
    return raw


@settings(max_examples=1000, deadline=None)
@given(cases, st.integers(), st.data())
def test_unknown_tags_are_stepped_over(
    case: tuple[registry.Api, int, str], seed: int, data: st.DataObject
) -> None:
    """A newer peer may add tags at the end of the message that we don't know."""
    api, version, direction = case
    cls = samples.message_type(api, direction)
    if not api.is_flexible(version) or any(field.tag is not None for field in layout(cls, version)):
        return
    raw = valid_bytes(case, seed)
    assert raw[-1] == 0, "the section of no tags"
    message = samples.decode(api, version, direction, raw)
    tags = sorted(data.draw(st.sets(st.integers(100, 2**31), min_size=1, max_size=5)))
    section = encode_uvarint(len(tags))
    for tag in tags:
        body = data.draw(st.binary(max_size=200))
        section += encode_uvarint(tag) + encode_uvarint(len(body)) + body
    assert samples.decode(api, version, direction, raw[:-1] + section) == message


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07"])
def test_a_huge_count_allocates_nothing(count: bytes) -> None:
    """The bytes with which another decoder asked for 34 GB (FetchRequest v12)."""
    body = bytes.fromhex("00000000 000001f4 00000001 7fffffff 00 00000000 ffffffff") + count
    with pytest.raises(ProtocolError):
        registry.api(1).decode_request(12, b"")  # Compiled before memory is watched.
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="topics"):
            registry.api(1).decode_request(12, body)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
