"""A log put together from a journal that lost a record."""

from uuid import UUID

import pytest
from fakes.batches import VOTERS

from dmq.raft.marks import Marks
from dmq.storage.image import ORDER_BITS, Event, Image, Told, event_of
from dmq.storage.items import SegmentState, State
from dmq.types import Mark, Position

STATE = State(
    uid=3,
    as_of=11,
    topic_id=UUID(int=1),
    partition=0,
    is_async=False,
    epoch=1,
    vote=None,
    log_start=0,
    end_offset=20,
    commit=Position(1, 0, 20),
    marks=Marks((Mark(1, 0, 0, VOTERS, 0),)),
    segments=(SegmentState(0, 500, 7), SegmentState(12, 300, 9)),
    damage=(),
)


def told() -> Told:
    """The STATE was noted in record 17, of the time of 11. A FLUSHED in 18 let the records before 17 go,
    and with them the first batches of segment 20: 18 is lost."""
    order = 17 << ORDER_BITS
    note: Event = event_of(STATE, order, 2)
    return Told([note], [(order + 1, 20, 1032, 521, 2, 60, 34, 11)])


def test_a_batch_may_lie_behind_what_a_lost_note_spoke_of() -> None:
    image = Image(3, may_lack=True)
    image.apply_all(told())
    image.doubt()
    assert image.segments == {0: (500, 7), 12: (0, -1)}, "files are read on from here"
    assert (image.flush_segment, image.flush_byte, image.end_offset) == (12, 0, 12)
    assert [pending[1:3] for pending in image.pending] == [(20, 1032)]


def test_nothing_may_be_missing_where_nothing_was_lost() -> None:
    with pytest.raises(KeyError):
        Image(3).apply_all(told())
