"""What travels on a connection between brokers: `length version kind body`, big endian.

    length   4 bytes, of all that follows
    version  1 byte: how this message is laid out (1)
    kind     1 byte: a `Kind`

    dialer                                acceptor
    HELLO on control, HELLO on bulk  -->
                                     <--  WELCOME, or REFUSED and the end
    READY                            -->
    FRAME CALL ANSWER FAILED REJECTED CAST, both ways, on either connection

    KNOCK                            -->  from a broker that does not belong yet, on one connection
    CALL                             -->
                                     <--  ANSWER, FAILED or REJECTED

Bytes are the peer's: every reader here gives a value or raises ProtocolError. Pure.
"""

import enum
import struct
from typing import Any, NamedTuple

from dmq.errors import ErrorCode, ProtocolError

VERSION = 1
HEAD = struct.Struct(">IBB")
_LENGTH_BYTES = 4
_HELLO = struct.Struct(">B16s")
_CALL = struct.Struct(">QIB")
_ID = struct.Struct(">Q")
_FAILED = struct.Struct(">Qh")
_KNOCK = struct.Struct(">HH")

FIRST_BYTES_MAX = 64 * 1024
"""A message of somebody who has not said who it is."""
STRANGER_BYTES_MAX = 1024 * 1024
"""A message of a broker that does not belong yet: its registration."""
BYTES_MAX = 1 << 30
"""A message of a peer. Its frames have a megabyte, but a batch is never split, and how large one may be
is each topic's setting; memory is only taken as the bytes come."""
TEXT_BYTES_MAX = 2000
"""Of a reason."""


class Kind(enum.IntEnum):
    """What a message is."""

    HELLO = 1
    WELCOME = 2
    READY = 3
    REFUSED = 4
    FRAME = 5
    CALL = 6
    ANSWER = 7
    FAILED = 8
    REJECTED = 9
    CAST = 10
    KNOCK = 11


class Role(enum.IntEnum):
    """Which of a session's two connections this one is."""

    CONTROL = 0
    BULK = 1


class Why(enum.IntEnum):
    """Why a dialer is refused: what it should do about it."""

    NOT_NOW = 0
    """Try again."""
    MINE_WINS = 1
    """An attempt of the acceptor's own is under way; wait for that."""
    NOT_WELCOME = 2
    """It does not belong here; somebody must look after it."""


class Greeting(NamedTuple):
    """A dialer's HELLO: two connections with one token become one session."""

    role: Role
    token: bytes
    hello: memoryview


class Call(NamedTuple):
    """A question; `number` is the asker's."""

    number: int
    timeout_ms: int
    verb: str
    body: memoryview


class Failed(NamedTuple):
    """A handler's answer that is an error."""

    number: int
    code: int
    text: str


# ---- out


def head(kind: Kind, size: int) -> bytes:
    return HEAD.pack(size + 2, VERSION, kind)


def message(kind: Kind, body: bytes = b"") -> bytes:
    return head(kind, len(body)) + body


def hello(role: Role, token: bytes, said: bytes) -> bytes:
    return message(Kind.HELLO, _HELLO.pack(role, token) + said)


def refused(why: Why, text: str) -> bytes:
    return message(Kind.REFUSED, bytes([why]) + _short(text))


def knock(protocol_min: int, protocol_max: int) -> bytes:
    return message(Kind.KNOCK, _KNOCK.pack(protocol_min, protocol_max))


def call(number: int, timeout_ms: int, verb: str, body: bytes) -> bytes:
    name = verb.encode()
    return message(Kind.CALL, _CALL.pack(number, timeout_ms, len(name)) + name + body)


def cast(verb: str, body: bytes) -> bytes:
    name = verb.encode()
    return message(Kind.CAST, bytes([len(name)]) + name + body)


def answer(number: int, body: bytes) -> bytes:
    return message(Kind.ANSWER, _ID.pack(number) + body)


def failed(number: int, code: int, text: str) -> bytes:
    return message(Kind.FAILED, _FAILED.pack(number, code) + _short(text))


def rejected(number: int, text: str) -> bytes:
    """Nothing was done."""
    return message(Kind.REJECTED, _ID.pack(number) + _short(text))


def _short(text: str) -> bytes:
    return text.encode()[:TEXT_BYTES_MAX]


# ---- in


def open_message(data: bytearray) -> tuple[Kind, memoryview]:
    """Kind and body of what followed a length. Raises ProtocolError."""
    if len(data) < HEAD.size - _LENGTH_BYTES:
        raise ProtocolError(f"a message of {len(data)} bytes")
    if data[0] != VERSION:
        raise ProtocolError(f"a message of version {data[0]}, we read {VERSION}")
    try:
        kind = Kind(data[1])
    except ValueError as error:
        raise ProtocolError(f"a message of unknown kind {data[1]}") from error
    return kind, memoryview(data)[2:]


def read_hello(body: memoryview) -> Greeting:
    role, token = _take(_HELLO, body)
    if role > Role.BULK:
        raise ProtocolError(f"a connection of unknown role {role}")
    return Greeting(Role(role), token, body[_HELLO.size :])


def read_refused(body: memoryview) -> tuple[Why, str]:
    if not body or body[0] > Why.NOT_WELCOME:
        raise ProtocolError("a refusal without a reason")
    return Why(body[0]), _text(body[1:])


def read_knock(body: memoryview) -> tuple[int, int]:
    """The versions of the peer protocol that a stranger speaks."""
    low, high = _take(_KNOCK, body)
    return low, high


def read_call(body: memoryview) -> Call:
    number, timeout_ms, size = _take(_CALL, body)
    verb, rest = _verb(body[_CALL.size :], size)
    return Call(number, timeout_ms, verb, rest)


def read_cast(body: memoryview) -> tuple[str, memoryview]:
    if not body:
        raise ProtocolError("a cast without a verb")
    return _verb(body[1:], body[0])


def read_answer(body: memoryview) -> tuple[int, bytes]:
    (number,) = _take(_ID, body)
    return number, bytes(body[_ID.size :])


def read_failed(body: memoryview) -> Failed:
    number, code = _take(_FAILED, body)
    return Failed(number, code, _text(body[_FAILED.size :]))


def read_rejected(body: memoryview) -> tuple[int, str]:
    (number,) = _take(_ID, body)
    return number, _text(body[_ID.size :])


def code_of(number: int) -> ErrorCode:
    """A later version's codes are not ours to know."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _verb(rest: memoryview, size: int) -> tuple[str, memoryview]:
    if len(rest) < size:
        raise ProtocolError("a verb is cut short")
    try:
        return str(rest[:size], "ascii"), rest[size:]
    except UnicodeDecodeError as error:
        raise ProtocolError("a verb that is no word") from error


def _text(rest: memoryview) -> str:
    return str(rest, "utf-8", "replace")


def _take(form: struct.Struct, body: memoryview) -> tuple[Any, ...]:
    try:
        return form.unpack_from(body)
    except struct.error as error:
        raise ProtocolError(f"a message is cut short: {error}") from error
