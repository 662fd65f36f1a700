"""A coordinator sits down when all of its log can be read, and not before."""

from typing import Any

import pytest
from unit.broker.multiraft.wiring import World, produce

from dmq.broker import seats
from dmq.broker.seats import Seat
from dmq.records import BatchHeader, Record


class Guest:
    """An occupant that remembers what it was told."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.is_leading = False

    def load(self, header: BatchHeader, records: list[Record]) -> None:
        self.offsets += [record.offset for record in records]

    def lead(self, now: int) -> None:
        self.is_leading = True

    def resign(self) -> None:
        self.is_leading = False


def test_bytes_that_are_still_on_their_way_to_the_file_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large batch is written by the thread that syncs its turn: to look for it meanwhile, again and
    again, would be for ever."""
    world = World(1)
    leader = world.elected()
    read_piece, count = seats.read_piece, 0

    def counted(*args: Any) -> Any:
        nonlocal count
        count += 1
        assert count < 100, "it reads for ever"
        return read_piece(*args)

    monkeypatch.setattr(seats, "read_piece", counted)
    leader.is_syncing_by_hand = True
    produce(leader, b"large" * 20_000)
    leader.work()
    log = leader.replica.log
    assert not log.staged_bytes
    assert log.readable_end < log.end_offset
    guest = Guest()
    seat = Seat(leader.replica, lambda seat: guest, lambda: world.now, lambda: world.now)
    assert seat.occupant is None
    leader.is_syncing_by_hand = False
    leader.end()
    seat.tick(world.now)
    assert seat.occupant is guest
    assert guest.is_leading
    assert guest.offsets == [0]
