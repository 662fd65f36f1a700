"""Sparse indexes: Kafka's bytes, lookups, and files that lie."""

import struct

from dmq.storage.index import Index, load


def filled(count: int = 10, interval: int = 100) -> Index:
    """Batches of 60 bytes with two records; the timestamps rise by ten."""
    index = Index()
    for n in range(count):
        index.note(n * 60, 60, 2 * n + 1, 1000 + 10 * n, interval)
    return index


def test_an_entry_per_interval_names_a_batch_by_its_last_offset() -> None:
    index = filled()
    assert [*index.offsets] == [5, 9, 13, 17]
    assert [*index.positions] == [120, 240, 360, 480]
    assert [*index.times] == [1020, 1040, 1060, 1080]
    assert [*index.time_offsets] == [5, 9, 13, 17]


def test_the_bytes_are_kafkas() -> None:
    index = filled()
    offset_raw = b"".join(
        struct.pack(">ii", *pair) for pair in zip(index.offsets, index.positions, strict=True)
    )
    time_raw = b"".join(
        struct.pack(">qi", *pair) for pair in zip(index.times, index.time_offsets, strict=True)
    )
    assert index.offset_bytes() == offset_raw
    assert index.time_bytes() == time_raw


def test_floors() -> None:
    index = filled()
    assert index.floor(4) is None
    assert index.floor(5) == (5, 120)
    assert index.floor(12) == (9, 240)
    assert index.floor(99) == (17, 480)
    assert index.time_floor(1020) is None
    assert index.time_floor(1021) == (1020, 5)
    assert index.time_floor(9999) == (1080, 17)


def test_an_index_loads_as_it_was_saved() -> None:
    index = filled()
    loaded = load(index.offset_bytes(), index.time_bytes(), 600)
    assert loaded.offsets == index.offsets
    assert loaded.positions == index.positions
    assert loaded.times == index.times
    assert loaded.covered == 480
    for n in range(8, 10):
        loaded.note(n * 60, 60, 2 * n + 1, 1000 + 10 * n, 100)
    assert loaded.offset_bytes() == index.offset_bytes()
    assert loaded.max_timestamp == index.max_timestamp


def test_what_lies_beyond_the_trusted_bytes_is_not_believed() -> None:
    index = filled()
    loaded = load(index.offset_bytes(), index.time_bytes(), 360)
    assert [*loaded.offsets] == [5, 9]
    assert [*loaded.time_offsets] == [5, 9]


def test_zeros_where_a_page_was_lost_end_the_index() -> None:
    index = filled()
    raw = bytearray(index.offset_bytes())
    raw[16:24] = bytes(8)
    assert [*load(bytes(raw), index.time_bytes(), 600).offsets] == [5, 9]


def test_garbage_is_no_index() -> None:
    assert load(b"\xff" * 33, b"\xff" * 25, 600).entries() == 0
    assert load(b"", b"", 600).covered == 0


def test_a_cut_forgets_what_lies_beyond_it() -> None:
    index = filled()
    index.cut(360, 12)
    assert [*index.offsets] == [5, 9]
    assert index.covered == 240
    assert index.max_timestamp == 1040


def test_a_closed_segment_ends_with_its_greatest_timestamp() -> None:
    index = filled()
    index.note_time()
    assert (index.times[-1], index.time_offsets[-1]) == (1090, 19)
    index.note_time()
    assert len(index.times) == 5
