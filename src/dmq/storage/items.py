"""What a journal record says: its items, as values and as bytes (format version 1).

    STATE    everything small about one log at the time `as_of`; replaces what came before
    HARD     epoch and vote            MARK   an entry without an offset
    BATCH    record bytes, and where in which segment they lie
    CUT      the log ends at this position, in this segment at this byte
    START    the log starts here; first kept segment; first kept mark
    SWAP     segments replaced by one file (compaction)
    FLUSHED  the synced files hold the log as it was at `as_of`
    MODE     sync or async from here on
    DROP     the log is gone           OPEN, CLOSE   a broker's life begins, ends in order

Every item is kind (1), length of the rest (4), the rest. Bytes in, values out; touches no file.
Called by log, store, recovery and the log dump.
"""

import enum
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from dmq.errors import CorruptError
from dmq.raft.marks import Marks
from dmq.storage.files import Buffer
from dmq.types import NIL_UUID, Mark, Position, Voter

OWN_TIME = -1
"""`as_of` of an item that speaks of the moment at which it is written."""
UNKNOWN_TIMESTAMP = -2
"""A segment's greatest timestamp that must be looked up; -1 is a record without one."""

BATCH_ITEM = struct.Struct(">BIQqIqq")
BATCH_HEAD_SIZE = BATCH_ITEM.size - 5
"""Bytes of a BATCH's payload before the record bytes: uid, segment, byte, end, timestamp."""

FRAME = struct.Struct(">BI")
_UID = struct.Struct(">Q")
BATCH_HEAD = struct.Struct(">QqIqq")
_HARD = struct.Struct(">Qii16s")
_MARK_HEAD = struct.Struct(">iiqqB")
_VOTER = struct.Struct(">i16s")
_CUT = struct.Struct(">QiiqqI")
_START = struct.Struct(">Qqqii")
_SWAP = struct.Struct(">QQIqI")
_BASE = struct.Struct(">q")
_FLUSHED = struct.Struct(">QqqI")
_SEGMENT = struct.Struct(">qIq")
_STATE = struct.Struct(">Qq16siBii16sqqiiqIII")
_DAMAGE = struct.Struct(">qII")
_MODE = struct.Struct(">QB")
_OPEN = struct.Struct(">qH16s16sQ")
_CLOSE = struct.Struct(">16s")

FORMAT_VERSION = 1


class Kind(enum.IntEnum):
    """The first byte of an item."""

    STATE = 1
    HARD = 2
    MARK = 3
    BATCH = 4
    CUT = 5
    START = 6
    SWAP = 7
    FLUSHED = 8
    DROP = 9
    OPEN = 10
    CLOSE = 11
    MODE = 12


class SegmentState(NamedTuple):
    """A segment as the journal knows it."""

    base: int
    size: int
    max_timestamp: int


class Damage(NamedTuple):
    """Bytes of a segment that are not what was written there."""

    segment: int
    start: int
    end: int


class State(NamedTuple):
    """Everything small about one log. The last segment's size is the flush point."""

    uid: int
    as_of: int
    topic_id: UUID
    partition: int
    is_async: bool
    epoch: int
    vote: Voter | None
    log_start: int
    end_offset: int
    commit: Position
    marks: Marks
    segments: tuple[SegmentState, ...]
    damage: tuple[Damage, ...]
    is_recovering: bool = False
    """It may have lost unsynced records in this life or a former one, and was not well since."""


class Hard(NamedTuple):
    uid: int
    epoch: int
    vote: Voter | None


class MarkItem(NamedTuple):
    uid: int
    mark: Mark


class Batch(NamedTuple):
    """`position` and `length` say where the record bytes lie in the decoded buffer."""

    uid: int
    segment: int
    byte: int
    end_offset: int
    max_timestamp: int
    position: int
    length: int


class Cut(NamedTuple):
    uid: int
    position: Position
    segment: int
    byte: int


class Start(NamedTuple):
    uid: int
    log_start: int
    segment: int
    base_epoch: int
    base_change: int


class Swap(NamedTuple):
    """`bases` become one segment with the first one's base, out of the swap file `token`."""

    uid: int
    token: int
    bases: tuple[int, ...]
    size: int
    max_timestamp: int


class Flushed(NamedTuple):
    """The segments written since the last note; the last one's size is the flush point."""

    uid: int
    as_of: int
    end_offset: int
    segments: tuple[SegmentState, ...]


class Mode(NamedTuple):
    uid: int
    is_async: bool


class Drop(NamedTuple):
    uid: int


class Open(NamedTuple):
    """The broker's own state; `uid` 0, restated by the cleaner like a log's."""

    as_of: int
    version: int
    boot_id: UUID
    directory_id: UUID
    next_uid: int


class Close(NamedTuple):
    boot_id: UUID


Item = State | Hard | MarkItem | Batch | Cut | Start | Swap | Flushed | Mode | Drop | Open | Close


def encode_hard(item: Hard) -> bytes:
    return _framed(Kind.HARD, _HARD.pack(item.uid, item.epoch, *_vote_fields(item.vote)))


def encode_mark(item: MarkItem) -> bytes:
    return _framed(Kind.MARK, _UID.pack(item.uid) + _mark_bytes(item.mark))


def encode_cut(item: Cut) -> bytes:
    return _framed(Kind.CUT, _CUT.pack(item.uid, *item.position, item.segment, item.byte))


def encode_start(item: Start) -> bytes:
    return _framed(Kind.START, _START.pack(*item))


def encode_swap(item: Swap) -> bytes:
    head = _SWAP.pack(item.uid, item.token, item.size, item.max_timestamp, len(item.bases))
    return _framed(Kind.SWAP, head + b"".join(_BASE.pack(base) for base in item.bases))


def encode_flushed(item: Flushed) -> bytes:
    head = _FLUSHED.pack(item.uid, item.as_of, item.end_offset, len(item.segments))
    return _framed(Kind.FLUSHED, head + b"".join(_SEGMENT.pack(*s) for s in item.segments))


def encode_mode(item: Mode) -> bytes:
    return _framed(Kind.MODE, _MODE.pack(item.uid, item.is_async))


def encode_drop(item: Drop) -> bytes:
    return _framed(Kind.DROP, _UID.pack(item.uid))


def encode_open(item: Open) -> bytes:
    return _framed(
        Kind.OPEN,
        _OPEN.pack(
            item.as_of, item.version, item.boot_id.bytes, item.directory_id.bytes, item.next_uid
        ),
    )


def encode_close(item: Close) -> bytes:
    return _framed(Kind.CLOSE, _CLOSE.pack(item.boot_id.bytes))


def encode_state(item: State) -> bytes:
    head = _STATE.pack(
        item.uid,
        item.as_of,
        item.topic_id.bytes,
        item.partition,
        item.is_async | item.is_recovering << 1,
        item.epoch,
        *_vote_fields(item.vote),
        item.log_start,
        item.end_offset,
        *item.commit,
        len(item.marks),
        len(item.segments),
        len(item.damage),
    )
    parts = [head]
    parts += [_mark_bytes(mark) for mark in item.marks]
    parts += [_SEGMENT.pack(*segment) for segment in item.segments]
    parts += [_DAMAGE.pack(*damage) for damage in item.damage]
    return _framed(Kind.STATE, b"".join(parts))


def decode(buf: Buffer, position: int, end: int) -> Iterator[Item]:
    """The items of one record body. Raises CorruptError on bytes that no writer of ours made."""
    while position < end:
        kind, length = FRAME.unpack_from(buf, position)
        position += FRAME.size
        yield decode_item(buf, kind, position, length)
        position += length
    if position != end:
        raise CorruptError("journal items do not fill their record")


def decode_item(buf: Buffer, kind: int, position: int, length: int) -> Item:
    """One item, by its kind and the place of what follows its frame."""
    if kind == Kind.BATCH:
        head = BATCH_HEAD.unpack_from(buf, position)
        return Batch._make((*head, position + BATCH_HEAD_SIZE, length - BATCH_HEAD_SIZE))
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise CorruptError(f"journal item of unknown kind {kind}")
    return decoder(buf, position)


def _framed(kind: Kind, payload: bytes) -> bytes:
    return FRAME.pack(kind, len(payload)) + payload


def _vote_fields(vote: Voter | None) -> tuple[int, bytes]:
    return (-1, NIL_UUID.bytes) if vote is None else (vote.node, vote.directory.bytes)


def _vote(node: int, directory: bytes) -> Voter | None:
    return None if node < 0 else _voter(node, directory)


@lru_cache(maxsize=4096)
def _voter(node: int, directory: bytes) -> Voter:
    """One object for the same voter of ten thousand logs."""
    return Voter(node, UUID(bytes=directory))


@lru_cache(maxsize=4096)
def _topic_id(raw: bytes) -> UUID:
    return UUID(bytes=raw)


def _mark_bytes(mark: Mark) -> bytes:
    head = _MARK_HEAD.pack(mark.epoch, mark.change, mark.offset, mark.log_start, len(mark.voters))
    return head + b"".join(_VOTER.pack(v.node, v.directory.bytes) for v in mark.voters)


def _read_mark(buf: Buffer, position: int) -> tuple[Mark, int]:
    epoch, change, offset, log_start, count = _MARK_HEAD.unpack_from(buf, position)
    position += _MARK_HEAD.size
    voters = []
    for _ in range(count):
        node, directory = _VOTER.unpack_from(buf, position)
        voters.append(_voter(node, directory))
        position += _VOTER.size
    return Mark(epoch, change, offset, tuple(voters), log_start), position


def _read_segments(buf: Buffer, position: int, count: int) -> tuple[SegmentState, ...]:
    end = position + count * _SEGMENT.size
    return tuple(SegmentState._make(s) for s in _SEGMENT.iter_unpack(bytes(buf[position:end])))


def _decode_hard(buf: Buffer, position: int) -> Hard:
    uid, epoch, node, directory = _HARD.unpack_from(buf, position)
    return Hard(uid, epoch, _vote(node, directory))


def _decode_mark(buf: Buffer, position: int) -> MarkItem:
    (uid,) = _UID.unpack_from(buf, position)
    return MarkItem(uid, _read_mark(buf, position + _UID.size)[0])


def _decode_cut(buf: Buffer, position: int) -> Cut:
    uid, epoch, change, offset, segment, byte = _CUT.unpack_from(buf, position)
    return Cut(uid, Position(epoch, change, offset), segment, byte)


def _decode_start(buf: Buffer, position: int) -> Start:
    return Start._make(_START.unpack_from(buf, position))


def _decode_swap(buf: Buffer, position: int) -> Swap:
    uid, token, size, max_timestamp, count = _SWAP.unpack_from(buf, position)
    position += _SWAP.size
    raw = bytes(buf[position : position + count * _BASE.size])
    bases = tuple(base for (base,) in _BASE.iter_unpack(raw))
    return Swap(uid, token, bases, size, max_timestamp)


def _decode_flushed(buf: Buffer, position: int) -> Flushed:
    uid, as_of, end_offset, count = _FLUSHED.unpack_from(buf, position)
    return Flushed(uid, as_of, end_offset, _read_segments(buf, position + _FLUSHED.size, count))


def _decode_mode(buf: Buffer, position: int) -> Mode:
    uid, is_async = _MODE.unpack_from(buf, position)
    return Mode(uid, bool(is_async))


def _decode_drop(buf: Buffer, position: int) -> Drop:
    return Drop(*_UID.unpack_from(buf, position))


def _decode_open(buf: Buffer, position: int) -> Open:
    as_of, version, boot_id, directory_id, next_uid = _OPEN.unpack_from(buf, position)
    return Open(as_of, version, UUID(bytes=boot_id), UUID(bytes=directory_id), next_uid)


def _decode_close(buf: Buffer, position: int) -> Close:
    (boot_id,) = _CLOSE.unpack_from(buf, position)
    return Close(UUID(bytes=boot_id))


def _decode_state(buf: Buffer, position: int) -> State:
    fields = _STATE.unpack_from(buf, position)
    uid, as_of, topic_id, partition, flags, epoch, node, directory = fields[:8]
    log_start, end_offset, c_epoch, c_change, c_offset = fields[8:13]
    mark_count, segment_count, damage_count = fields[13:]
    position += _STATE.size
    marks = []
    for _ in range(mark_count):
        mark, position = _read_mark(buf, position)
        marks.append(mark)
    segments = _read_segments(buf, position, segment_count)
    position += segment_count * _SEGMENT.size
    raw = bytes(buf[position : position + damage_count * _DAMAGE.size])
    return State(
        uid,
        as_of,
        _topic_id(topic_id),
        partition,
        bool(flags & 1),
        epoch,
        _vote(node, directory),
        log_start,
        end_offset,
        Position(c_epoch, c_change, c_offset),
        Marks(tuple(marks)),
        segments,
        tuple(Damage._make(d) for d in _DAMAGE.iter_unpack(raw)),
        bool(flags & 2),
    )


_DECODERS: dict[int, Callable[[Buffer, int], Item]] = {
    Kind.STATE: _decode_state,
    Kind.HARD: _decode_hard,
    Kind.MARK: _decode_mark,
    Kind.CUT: _decode_cut,
    Kind.START: _decode_start,
    Kind.SWAP: _decode_swap,
    Kind.FLUSHED: _decode_flushed,
    Kind.MODE: _decode_mode,
    Kind.DROP: _decode_drop,
    Kind.OPEN: _decode_open,
    Kind.CLOSE: _decode_close,
}
