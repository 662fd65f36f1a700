"""The meta file: written whole or not at all, read with care."""

import contextlib

import pytest
from fakes.batches import make_disk
from fakes.disk import Crash

from dmq.errors import CorruptError
from dmq.storage import meta
from dmq.storage.meta import Meta


def test_it_comes_back_as_it_went() -> None:
    disk = make_disk()
    assert meta.load(disk) is None
    made = Meta(disk.new_id()).identified("cluster", 3)
    meta.save(disk, made)
    disk.power_cut()
    assert meta.load(disk) == made


def test_it_is_set_once() -> None:
    mine = Meta(make_disk().new_id()).identified("a", 1)
    assert mine.identified("a", 1) == mine
    with pytest.raises(CorruptError, match="belongs to cluster a"):
        mine.identified("b", 1)
    with pytest.raises(CorruptError, match="belongs to node 1"):
        mine.identified("a", 2)


@pytest.mark.parametrize("position", range(0, 60, 7))
def test_a_flipped_bit_is_seen(position: int) -> None:
    disk = make_disk()
    meta.save(disk, Meta(disk.new_id()))
    disk.flip(meta.NAME, position, 0x01)
    with pytest.raises(CorruptError):
        meta.load(disk)


def test_a_newer_format_is_refused() -> None:
    raw = meta.encode(Meta(make_disk().new_id(), version=99))
    with pytest.raises(CorruptError, match="newer"):
        meta.decode(raw)


def test_a_format_that_is_read_no_more_is_refused_with_what_to_do() -> None:
    raw = meta.encode(Meta(make_disk().new_id(), version=1))
    with pytest.raises(CorruptError, match=r"format 1 .* begin with an empty data directory"):
        meta.decode(raw)


def test_a_crash_while_saving_leaves_the_old_or_the_new() -> None:
    for seed in range(40):
        disk = make_disk(seed)
        old = Meta(disk.new_id())
        meta.save(disk, old)
        new = old.identified("c", 1)
        disk.budget = disk.rng.randint(0, 5)
        with contextlib.suppress(Crash):
            meta.save(disk, new)
        disk.power_cut()
        assert meta.load(disk) in (old, new)
