"""Items round trip; bytes of an unknown kind are refused."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmq.errors import CorruptError
from dmq.raft.marks import Marks
from dmq.storage import items
from dmq.types import Mark, Position, Voter

UIDS = st.integers(0, 2**64 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
EPOCHS = st.integers(0, 2**31 - 1)
BYTES = st.integers(0, 2**32 - 1)
TIMES = st.integers(-2, 2**63 - 1)
IDS = st.uuids()
VOTERS = st.builds(Voter, st.integers(0, 2**31 - 1), IDS)
MARKS = st.builds(Mark, EPOCHS, EPOCHS, OFFSETS, st.lists(VOTERS, max_size=5).map(tuple), OFFSETS)
SEGMENTS = st.builds(items.SegmentState, OFFSETS, BYTES, TIMES)
SEQS = st.integers(-1, 2**63 - 1)

STATES = st.builds(
    items.State,
    uid=UIDS,
    as_of=SEQS,
    topic_id=IDS,
    partition=EPOCHS,
    is_async=st.booleans(),
    epoch=EPOCHS,
    vote=st.none() | VOTERS,
    log_start=OFFSETS,
    end_offset=OFFSETS,
    commit=st.builds(Position, EPOCHS, EPOCHS, OFFSETS),
    marks=MARKS.map(lambda mark: Marks((mark,))),
    segments=st.lists(SEGMENTS, max_size=4).map(tuple),
    damage=st.lists(st.builds(items.Damage, OFFSETS, BYTES, BYTES), max_size=2).map(tuple),
)

ENCODED = st.one_of(
    STATES.map(lambda i: (i, items.encode_state(i))),
    st.builds(items.Hard, UIDS, EPOCHS, st.none() | VOTERS).map(
        lambda i: (i, items.encode_hard(i))
    ),
    st.builds(items.MarkItem, UIDS, MARKS).map(lambda i: (i, items.encode_mark(i))),
    st.builds(items.Cut, UIDS, st.builds(Position, EPOCHS, EPOCHS, OFFSETS), OFFSETS, BYTES).map(
        lambda i: (i, items.encode_cut(i))
    ),
    st.builds(items.Start, UIDS, OFFSETS, OFFSETS, EPOCHS, EPOCHS).map(
        lambda i: (i, items.encode_start(i))
    ),
    st.builds(items.Swap, UIDS, UIDS, st.lists(OFFSETS, max_size=4).map(tuple), BYTES, TIMES).map(
        lambda i: (i, items.encode_swap(i))
    ),
    st.builds(items.Flushed, UIDS, SEQS, OFFSETS, st.lists(SEGMENTS, max_size=4).map(tuple)).map(
        lambda i: (i, items.encode_flushed(i))
    ),
    st.builds(items.Mode, UIDS, st.booleans()).map(lambda i: (i, items.encode_mode(i))),
    st.builds(items.Drop, UIDS).map(lambda i: (i, items.encode_drop(i))),
    st.builds(items.Open, SEQS, st.just(1), IDS, IDS, UIDS).map(
        lambda i: (i, items.encode_open(i))
    ),
    st.builds(items.Close, IDS).map(lambda i: (i, items.encode_close(i))),
)


@given(st.lists(ENCODED, max_size=5))
def test_items_come_back_as_they_went(pairs: list[tuple[items.Item, bytes]]) -> None:
    raw = b"".join(encoded for _, encoded in pairs)
    assert [*items.decode(raw, 0, len(raw))] == [item for item, _ in pairs]


def test_a_batch_says_where_its_bytes_lie() -> None:
    head = items.BATCH_ITEM.pack(items.Kind.BATCH, items.BATCH_HEAD_SIZE + 5, 7, 100, 20, 105, 999)
    raw = head + b"bytes" + items.encode_drop(items.Drop(7))
    batch, drop = items.decode(raw, 0, len(raw))
    assert batch == items.Batch(7, 100, 20, 105, 999, len(head), 5)
    assert raw[batch.position : batch.position + batch.length] == b"bytes"
    assert drop == items.Drop(7)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(CorruptError, match="unknown kind 99"):
        [*items.decode(bytes([99, 0, 0, 0, 0]), 0, 5)]


def test_items_must_fill_their_record() -> None:
    raw = items.encode_close(items.Close(UUID(int=1)))
    with pytest.raises(CorruptError, match="fill"):
        [*items.decode(raw, 0, len(raw) - 1)]
