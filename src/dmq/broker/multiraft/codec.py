"""Frames and hellos as bytes (peer protocol version 1), and back.

Fixed widths, big endian, counts before lists; a frame says nothing of its own length, the transport
does. Bytes are the peer's: whatever they are, `decode` gives a frame or raises ProtocolError.
"""

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

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
from dmq.storage.files import Buffer
from dmq.types import Mark, Position, Voter

_U8 = struct.Struct(">B")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_KEY = struct.Struct(">16sI")
_HEAD = struct.Struct(">B16sII")
_VOTER = struct.Struct(">i16s")
_POSITION = struct.Struct(">iiq")
_MARK = struct.Struct(">iiqqB")
_HEARTBEAT = struct.Struct(">qqiIQIQ")
_REPLY = struct.Struct(">iiBB")
_HELLO = struct.Struct(">i16sqHH")

_HAS_HEARTBEAT, _HAS_TABLE = 1, 2
_COPY_BYTES_MAX = 16 * 1024
"""Below this a copy is cheaper than one more part."""


class _Writer:
    """Bytes being put together."""

    __slots__ = ("_done", "parts")

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self._done: list[Buffer] = []
        """What came before `parts`: joined, or large."""

    def put(self, form: struct.Struct, *values: Any) -> None:
        self.parts.append(form.pack(*values))

    def position(self, p: Position) -> None:
        self.parts.append(_POSITION.pack(*p))

    def mark(self, mark: Mark) -> None:
        self.put(_MARK, mark.epoch, mark.change, mark.offset, mark.log_start, len(mark.voters))
        for node, directory in mark.voters:
            self.put(_VOTER, node, directory.bytes)

    def blob(self, data: Buffer) -> None:
        self.put(_U32, len(data))
        if len(data) < _COPY_BYTES_MAX:
            self.parts.append(data)
        else:
            self._done += (b"".join(self.parts), data)
            self.parts = []

    def finish(self) -> list[Buffer]:
        """All of it, in order."""
        if self.parts:
            self._done.append(b"".join(self.parts))
        return self._done

    def claims(self, claims: tuple[Claim, ...]) -> None:
        self.put(_U32, len(claims))
        for (topic_id, partition), epoch in claims:
            self.put(_KEY, topic_id.bytes, partition)
            self.put(_I32, epoch)


class _Reader:
    """Bytes being read; raises struct.error where they end too early."""

    __slots__ = ("at", "data")

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self.at = 0

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        values = form.unpack_from(self.data, self.at)
        self.at += form.size
        return values

    def one(self, form: struct.Struct) -> Any:
        return self.take(form)[0]

    def flag(self) -> bool:
        value = self.one(_U8)
        if value > 1:
            raise ProtocolError(f"a flag is {value}")
        return bool(value)

    def position(self) -> Position:
        return Position._make(self.take(_POSITION))

    def voter(self) -> Voter:
        node, directory = self.take(_VOTER)
        return Voter(node, UUID(bytes=directory))

    def mark(self) -> Mark:
        epoch, change, offset, log_start, count = self.take(_MARK)
        voters = tuple(self.voter() for _ in range(count))
        return Mark(epoch, change, offset, voters, log_start)

    def key(self) -> GroupKey:
        topic_id, partition = self.take(_KEY)
        return GroupKey(UUID(bytes=topic_id), partition)

    def blob(self) -> Buffer:
        length = self.one(_U32)
        if length > len(self.data) - self.at:
            raise ProtocolError(
                f"{length} bytes are announced, {len(self.data) - self.at} are there"
            )
        start = self.at
        self.at += length
        return self.data[start : self.at]

    def count(self, least_bytes: int) -> int:
        """A length of a list whose items take at least so many bytes each."""
        count: int = self.one(_U32)
        if count * least_bytes > len(self.data) - self.at:
            raise ProtocolError(f"a list of {count} items in {len(self.data) - self.at} bytes")
        return count

    def claims(self) -> tuple[Claim, ...]:
        count = self.count(_KEY.size + _I32.size)
        return tuple(Claim(self.key(), self.one(_I32)) for _ in range(count))


# --- messages of a group --------------------------------------------------------------------------


def _put_pre_vote(w: _Writer, m: PreVote) -> None:
    w.put(_I32, m.epoch)
    w.position(m.end)
    w.put(_U8, m.is_settled)


def _put_vote(w: _Writer, m: Vote) -> None:
    w.put(_I32, m.epoch)
    w.position(m.end)
    w.put(_U8, m.is_transfer)
    w.put(_U8, m.is_settled)


def _put_reply(w: _Writer, m: PreVoteReply | VoteReply) -> None:
    w.put(_REPLY, m.epoch, m.asked_epoch, m.refusal or 0, m.is_recovering)


def _put_append(w: _Writer, m: Append) -> None:
    w.put(_I32, m.epoch)
    w.position(m.prev)
    w.put(_U32, len(m.marks))
    for mark in m.marks:
        w.mark(mark)
    for p in (m.end, m.leader_end, m.commit):
        w.position(p)
    w.put(_U8, m.wants_ack)
    w.put(_I32, m.unclean_epoch)


def _put_reset(w: _Writer, m: Reset) -> None:
    w.put(_I32, m.epoch)
    w.mark(m.base)
    w.put(_I64, m.log_start)
    w.position(m.leader_end)
    w.put(_I32, m.unclean_epoch)


def _put_ack(w: _Writer, m: Ack) -> None:
    w.put(_I32, m.epoch)
    w.position(m.end)


def _put_nack(w: _Writer, m: Nack) -> None:
    w.put(_I32, m.epoch)
    w.position(m.prev)
    w.put(_U8, m.is_unable)
    w.put(_U8, m.floor is not None)
    if m.floor is not None:
        w.position(m.floor)


def _put_timeout_now(w: _Writer, m: TimeoutNow) -> None:
    w.put(_I32, m.epoch)
    w.put(_I32, m.number)


def _put_range_request(w: _Writer, m: RangeRequest) -> None:
    w.put(_I32, m.epoch)
    w.put(_I64, m.start)
    w.position(m.end)


def _put_range_reply(w: _Writer, m: RangeReply) -> None:
    w.put(_I32, m.epoch)
    w.put(_I64, m.start)
    w.put(_I64, m.stop)


def _get_reply(r: _Reader) -> tuple[int, int, Refusal | None, bool]:
    epoch, asked, refusal, is_recovering = r.take(_REPLY)
    try:
        why = Refusal(refusal) if refusal else None
    except ValueError as error:
        raise ProtocolError(f"unknown refusal {refusal}") from error
    return epoch, asked, why, bool(is_recovering)


def _get_append(r: _Reader) -> Append:
    epoch, prev = r.one(_I32), r.position()
    marks = tuple(r.mark() for _ in range(r.count(_MARK.size)))
    end, leader_end, commit = r.position(), r.position(), r.position()
    return Append(epoch, prev, marks, end, leader_end, commit, r.flag(), r.one(_I32))


def _get_nack(r: _Reader) -> Nack:
    epoch, prev, is_unable = r.one(_I32), r.position(), r.flag()
    return Nack(epoch, prev, r.position() if r.flag() else None, is_unable)


_PUT: dict[type, tuple[int, Callable[[_Writer, Any], None]]] = {
    PreVote: (1, _put_pre_vote),
    PreVoteReply: (2, _put_reply),
    Vote: (3, _put_vote),
    VoteReply: (4, _put_reply),
    Append: (5, _put_append),
    Reset: (6, _put_reset),
    Ack: (7, _put_ack),
    Nack: (8, _put_nack),
    TimeoutNow: (9, _put_timeout_now),
    RangeRequest: (10, _put_range_request),
    RangeReply: (11, _put_range_reply),
}
_GET: dict[int, Callable[[_Reader], Any]] = {
    1: lambda r: PreVote(r.one(_I32), r.position(), r.flag()),
    2: lambda r: PreVoteReply(*_get_reply(r)),
    3: lambda r: Vote(r.one(_I32), r.position(), r.flag(), r.flag()),
    4: lambda r: VoteReply(*_get_reply(r)),
    5: _get_append,
    6: lambda r: Reset(r.one(_I32), r.mark(), r.one(_I64), r.position(), r.one(_I32)),
    7: lambda r: Ack(r.one(_I32), r.position()),
    8: _get_nack,
    9: lambda r: TimeoutNow(r.one(_I32), r.one(_I32)),
    10: lambda r: RangeRequest(r.one(_I32), r.one(_I64), r.position()),
    11: lambda r: RangeReply(r.one(_I32), r.one(_I64), r.one(_I64)),
}
_CARGO = (5, 11)
"""Kinds that have record bytes beside them."""


# --- frames ---------------------------------------------------------------------------------------


def encode(frame: Frame) -> bytes:
    return b"".join(encode_parts(frame))


def encode_parts(frame: Frame) -> list[Buffer]:
    """The same in parts, without a copy of large ones: they must not change until they are sent."""
    w = _Writer()
    beat, table = frame.heartbeat, frame.table
    w.put(_U8, (beat is not None) * _HAS_HEARTBEAT | (table is not None) * _HAS_TABLE)
    if beat is not None:
        w.put(
            _HEARTBEAT, beat.sent_at, beat.echo, beat.sync_ms, *beat.leads, *beat.follows
        )  # fmt: skip
    if table is not None:
        w.put(_I64, table.sent_at)
        w.claims(table.leads)
        w.claims(table.follows)
        w.put(_U8, table.wants_reply)
    w.put(_U32, len(frame.messages))
    for (topic_id, partition), message, cargo, tag in frame.messages:
        kind, put = _PUT[type(message)]
        w.put(_HEAD, kind, topic_id.bytes, partition, tag)
        put(w, message)
        if kind in _CARGO:
            w.blob(cargo)
    return w.finish()


def decode(data: Buffer) -> Frame:
    """Raises ProtocolError."""
    r = _Reader(data)
    try:
        frame = _decode(r)
    except struct.error as error:
        raise ProtocolError(f"a frame is cut short: {error}") from error
    if r.at != len(data):
        raise ProtocolError(f"{len(data) - r.at} bytes behind a frame")
    return frame


def _decode(r: _Reader) -> Frame:
    flags = r.one(_U8)
    if flags > (_HAS_HEARTBEAT | _HAS_TABLE):
        raise ProtocolError(f"unknown frame flags {flags}")
    beat = table = None
    if flags & _HAS_HEARTBEAT:
        sent_at, echo, sync_ms, *digests = r.take(_HEARTBEAT)
        beat = Heartbeat(sent_at, echo, sync_ms, Digest(*digests[:2]), Digest(*digests[2:]))
    if flags & _HAS_TABLE:
        table = Table(r.one(_I64), r.claims(), r.claims(), r.flag())
    count = r.count(_HEAD.size)
    return Frame(beat, table, tuple(_message(r) for _ in range(count)))


def _message(r: _Reader) -> GroupMessage:
    kind, topic_id, partition, tag = r.take(_HEAD)
    get = _GET.get(kind)
    if get is None:
        raise ProtocolError(f"unknown message kind {kind}")
    message = get(r)
    cargo = r.blob() if kind in _CARGO else b""
    return GroupMessage(GroupKey(UUID(bytes=topic_id), partition), message, cargo, tag)


def encode_hello(hello: Hello) -> bytes:
    w = _Writer()
    node, directory = hello.me
    w.put(
        _HELLO, node, directory.bytes, hello.incarnation, hello.protocol_min, hello.protocol_max
    )  # fmt: skip
    w.blob(hello.cluster_id.encode())
    w.put(_U16, 0)  # Reserved, and part of version 1.
    return b"".join(w.finish())


def decode_hello(data: Buffer) -> Hello:
    """Raises ProtocolError. More bytes may follow: a later version's."""
    r = _Reader(data)
    try:
        node, directory, incarnation, low, high = r.take(_HELLO)
        cluster_id = bytes(r.blob()).decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"no hello: {error}") from error
    return Hello(cluster_id, Voter(node, UUID(bytes=directory)), incarnation, low, high)
