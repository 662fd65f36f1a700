"""Messages: what is written is read, and any other bytes are a ProtocolError."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmq.doors.peer import messages
from dmq.doors.peer.messages import Kind, Role, Why
from dmq.errors import ErrorCode, ProtocolError

READERS = {
    Kind.HELLO: messages.read_hello,
    Kind.REFUSED: messages.read_refused,
    Kind.CALL: messages.read_call,
    Kind.ANSWER: messages.read_answer,
    Kind.FAILED: messages.read_failed,
    Kind.REJECTED: messages.read_rejected,
    Kind.CAST: messages.read_cast,
    Kind.KNOCK: messages.read_knock,
}


def opened(data: bytes) -> tuple[Kind, memoryview]:
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return messages.open_message(bytearray(data[4:]))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=50))
def test_calls_round_trip(number: int, timeout_ms: int, body: bytes) -> None:
    kind, rest = opened(messages.call(number, timeout_ms, "a.verb", body))
    assert kind is Kind.CALL
    assert messages.read_call(rest) == (number, timeout_ms, "a.verb", body)
    assert messages.read_answer(opened(messages.answer(number, body))[1]) == (number, body)


@given(st.text(max_size=50), st.binary(min_size=16, max_size=16), st.binary(max_size=30))
def test_the_others_round_trip(text: str, token: bytes, rest: bytes) -> None:
    said = text.encode(errors="replace").decode()
    assert messages.read_failed(opened(messages.failed(3, -1, said))[1]) == (3, -1, said)
    assert messages.read_rejected(opened(messages.rejected(3, said))[1]) == (3, said)
    refused = messages.refused(Why.MINE_WINS, said)
    assert messages.read_refused(opened(refused)[1]) == (Why.MINE_WINS, said)
    assert messages.read_cast(opened(messages.cast("verb", rest))[1]) == ("verb", rest)
    hello = messages.hello(Role.BULK, token, rest)
    assert messages.read_hello(opened(hello)[1]) == (Role.BULK, token, rest)
    assert messages.read_knock(opened(messages.knock(1, 3))[1]) == (1, 3)


@given(st.binary(max_size=80), st.booleans())
def test_any_bytes_are_a_message_or_a_protocol_error(data: bytes, looks_good: bool) -> None:
    if looks_good:
        data = b"\x01" + data
    try:
        kind, body = messages.open_message(bytearray(data))
        if kind in READERS:
            READERS[kind](body)
    except ProtocolError:
        pass


@pytest.mark.parametrize("number", [-2, 20_000])
def test_a_code_of_a_later_version_is_an_unknown_error(number: int) -> None:
    assert messages.code_of(number) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_long_reason_is_cut() -> None:
    kind, body = opened(messages.refused(Why.NOT_NOW, "ä" * 5000))
    assert kind is Kind.REFUSED
    assert len(body) <= messages.TEXT_BYTES_MAX + 1
    messages.read_refused(body)
