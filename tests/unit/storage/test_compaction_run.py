"""The work of compaction, file by file: what is dropped, what stays to the byte, what is left."""

import random
from dataclasses import replace

import pytest
from fakes.disk import FakeDisk

from dmq.records import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    Record,
    build_batch,
    check_crc,
    iterate,
    scan,
    stamp_append_time,
)
from dmq.storage import compaction_points
from dmq.storage.compaction_job import Job, Result, Source
from dmq.storage.compaction_run import compact
from dmq.storage.index import Index
from dmq.storage.items import Damage
from dmq.storage.segment import BadBatchError

NOW = 1_700_000_000_000
KEEP_MS = 60_000
NAME = "logs/1"


class Bench:
    """Segments on a fake disk, written by hand."""

    def __init__(self) -> None:
        self.disk = FakeDisk(random.Random(1))
        self.disk.make_dir("logs")
        self.disk.make_dir(NAME)
        self.sources: list[Source] = []
        self.end = 0

    def batch(self, *pairs: tuple[bytes | None, bytes | None], **fields: int) -> bytearray:
        """A batch of (key, value) pairs that takes the next offsets."""
        records = [
            Record(self.end + n, NOW - 10 + n, key, value, (("n", b"%d" % n),))
            for n, (key, value) in enumerate(pairs)
        ]
        self.end += len(records)
        return build_batch(records, leader_epoch=3, **fields)

    def segment(self, *batches: bytearray) -> bytes:
        raw = b"".join(batches)
        base = next(iter(scan(raw)))[1].base_offset
        self.disk.open(f"{NAME}/{base:020d}.log", create=True).write_at(0, [raw])
        newest = max(header.max_timestamp for _, header in scan(raw))
        self.sources.append(Source(base, len(raw), newest))
        return raw

    def job(self, **fields: object) -> Job:
        made = Job(
            uid=1,
            directory=NAME,
            segments=tuple(self.sources),
            end=self.end,
            log_start=0,
            first_dirty=0,
            now=NOW,
            delete_retention_ms=KEEP_MS,
            producer_expiration_ms=1000,
            segment_bytes=1,
            index_interval_bytes=1,
            keys_max=1000,
            bytes_per_second=1e9,
            edges=(),
        )
        return replace(made, **fields)  # type: ignore[arg-type]

    def run(self, **fields: object) -> Result:
        """Clean, then take the new files for the old ones."""
        job = self.job(**fields)
        result = compact(self.disk, job, lambda byte_count: None)
        for swap in result.swaps:
            for base in swap.bases:
                self.disk.unlink(f"{NAME}/{base:020d}.log")
            self.disk.rename(job.swap_name(swap.bases[0]), f"{NAME}/{swap.bases[0]:020d}.log")
            kept = [source for source in self.sources if source.base not in swap.bases]
            kept.append(Source(swap.bases[0], swap.size, swap.max_timestamp))
            self.sources = sorted(kept)
        return result

    def bytes_of(self, base: int) -> bytes:
        file = self.disk.open(f"{NAME}/{base:020d}.log")
        return file.read_at(0, file.size())

    def headers(self) -> list[BatchHeader]:
        found = []
        for source in self.sources:
            raw = self.bytes_of(source.base)
            for position, header in scan(raw):
                assert check_crc(raw, position, header)
                found.append(header)
        return found

    def kept(self) -> list[BatchHeader]:
        """Those that stand for more than offsets."""
        return [h for h in self.headers() if h.record_count or h.producer_id >= 0]

    def spans(self) -> list[tuple[int, int]]:
        return [(header.base_offset, header.next_offset) for header in self.headers()]

    def records(self) -> list[Record]:
        found: list[Record] = []
        for source in self.sources:
            raw = self.bytes_of(source.base)
            for position, header in scan(raw):
                found += iterate(raw, position, header)
        return found

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]


@pytest.fixture
def bench() -> Bench:
    return Bench()


A, B, C = (b"a", b"1"), (b"b", b"2"), (b"c", b"3")
GONE = (b"a", None)


def test_the_last_record_of_each_key_stays(bench: Bench) -> None:
    bench.segment(bench.batch(A, B, A), bench.batch(C))
    bench.segment(bench.batch(B))
    before = {record.offset: record for record in bench.records()}
    result = bench.run()
    assert bench.offsets() == [2, 3, 4]
    assert bench.records() == [before[offset] for offset in (2, 3, 4)]
    assert (result.records_read, result.records_kept, result.keys) == (5, 3, 3)


def test_nothing_to_drop_makes_no_file(bench: Bench) -> None:
    bench.segment(bench.batch(A), bench.batch(B))
    bench.segment(bench.batch(C))
    assert bench.run().swaps == ()
    assert [name for name in bench.disk.list(NAME) if name.endswith("swap")] == []


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_stays_whole_stays_to_the_byte(bench: Bench, codec: int) -> None:
    whole = bytes(bench.batch(A, B, codec=codec))
    bench.segment(bytearray(whole), bench.batch(C, codec=codec), bench.batch(C, codec=codec))
    bench.run()
    assert bench.bytes_of(0).startswith(whole)
    assert bench.offsets() == [0, 1, 3]


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_loses_records_keeps_its_frame(bench: Bench, codec: int) -> None:
    frame = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 40, "codec": codec}
    bench.segment(bench.batch(A, B, C, A, **frame), bench.batch(C))
    before = bench.headers()[0]
    bench.run()
    header = bench.headers()[0]
    assert bench.offsets() == [1, 3, 4]
    same = ("base_offset", "last_offset_delta", "leader_epoch", "attributes", "base_timestamp")
    for field in (*same, "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(header, field) == getattr(before, field), field
    assert header.record_count == 2


def test_the_greatest_timestamp_is_of_what_stays(bench: Bench) -> None:
    bench.segment(bench.batch(A, B, C), bench.batch(C), bench.batch(C))
    bench.run()
    assert [header.max_timestamp for header in bench.kept()] == [NOW - 9, NOW - 10]


def test_records_without_a_key_go(bench: Bench) -> None:
    bench.segment(bench.batch(A, (None, b"x")), bench.batch((None, b"y")), bench.batch(B))
    bench.run()
    assert bench.offsets() == [0, 3]


def test_an_empty_key_is_a_key(bench: Bench) -> None:
    bench.segment(bench.batch((b"", b"1")), bench.batch((b"", b"2")), bench.batch(A))
    bench.run()
    assert bench.offsets() == [1, 2]


def test_long_keys_that_differ_are_different(bench: Bench) -> None:
    one, other = (b"x" * 100, b"1"), (b"x" * 99 + b"y", b"2")
    bench.segment(bench.batch(one, other), bench.batch(one))
    bench.run()
    assert bench.offsets() == [1, 2]


# ---- tombstones


def test_a_tombstone_is_marked_with_its_end_and_kept_until_then(bench: Bench) -> None:
    bench.segment(bench.batch(A), bench.batch(GONE, B), bench.batch(C))
    before = {record.offset: record for record in bench.records()}
    bench.run()
    assert bench.offsets() == [1, 2, 3]
    assert bench.records() == [before[offset] for offset in (1, 2, 3)], "times and headers too"
    header = bench.kept()[0]
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW + KEEP_MS
    assert header.max_timestamp == NOW - 9
    assert bench.run(now=NOW + KEEP_MS - 1).swaps == (), "the end is set once"
    bench.run(now=NOW + KEEP_MS)
    assert bench.offsets() == [2, 3]
    assert bench.kept()[0].attributes & DELETE_HORIZON


@pytest.mark.parametrize("codec", range(5))
def test_a_marked_batch_reads_as_before(bench: Bench, codec: int) -> None:
    bench.segment(bench.batch(GONE, B, codec=codec), bench.batch(C))
    before = bench.records()
    bench.run()
    assert bench.headers()[0].attributes == DELETE_HORIZON | codec
    assert bench.records() == before


def test_append_time_survives_the_mark(bench: Bench) -> None:
    batch = bench.batch(GONE, B)
    stamp_append_time(batch, 0, NOW - 5)
    bench.segment(batch, bench.batch(C))
    bench.run()
    header = bench.headers()[0]
    assert header.attributes == DELETE_HORIZON | LOG_APPEND_TIME
    assert [record.timestamp for record in bench.records()[:2]] == [NOW - 5, NOW - 5]


def test_endless_retention_does_not_overflow(bench: Bench) -> None:
    bench.segment(bench.batch(GONE), bench.batch(C))
    bench.run(delete_retention_ms=2**63 - 1)
    before = bench.records()
    bench.run(now=NOW + 10 * 365 * 86_400_000)
    assert bench.records() == before


# ---- what must not vanish with its records


def test_the_end_of_a_file_keeps_its_offset(bench: Bench) -> None:
    bench.segment(bench.batch(B), bench.batch(A, A))
    bench.segment(bench.batch(A))
    bench.run()
    assert bench.offsets() == [0, 3]
    assert [header.last_offset for header in bench.headers()] == [0, 2, 3]
    assert bench.headers()[1].record_count == 0
    assert bench.run().swaps == (), "an empty batch is not written again"


def test_one_batch_stands_for_all_that_went_between_two(bench: Bench) -> None:
    bench.segment(bench.batch(A, B), bench.batch(A), bench.batch(A, A), bench.batch(C))
    bench.segment(bench.batch(A))
    bench.run()
    assert bench.spans() == [(0, 2), (2, 5), (5, 6), (6, 7)]
    assert [header.record_count for header in bench.headers()] == [1, 0, 1, 1]
    assert bench.run().swaps == (), "it is not written again"
    bench.segment(bench.batch(C))
    bench.run(segment_bytes=10_000)
    assert bench.spans() == [(0, 2), (2, 6), (6, 7), (7, 8)], "it grows"
    assert len({header.leader_epoch for header in bench.headers()}) == 1


@pytest.mark.parametrize("edge", [2, 3])
def test_no_batch_lies_across_a_mark(bench: Bench, edge: int) -> None:
    bench.segment(*[bench.batch(A) for _ in range(6)], bench.batch(B))
    bench.run(edges=(0, edge, 7))
    assert bench.spans() == [(0, edge), (edge, 5), (5, 6), (6, 7)]
    assert bench.run(edges=(0, edge, 7)).swaps == ()


def test_no_batch_stands_for_two_epochs(bench: Bench) -> None:
    late = bench.batch(A), bench.batch(A)
    for batch in late:
        batch[15] = 4
    bench.segment(*late, bench.batch(A), bench.batch(A), bench.batch(A))
    bench.run()
    assert bench.spans() == [(0, 2), (2, 4), (4, 5)]
    assert [header.leader_epoch for header in bench.headers()] == [4, 3, 3]


def test_an_empty_batch_in_the_middle_is_one_with_what_goes_beside_it(bench: Bench) -> None:
    bench.segment(bench.batch(B), bench.batch(A, A))
    bench.segment(bench.batch(A))
    bench.run()
    bench.segment(bench.batch(A))
    bench.run(segment_bytes=10_000)
    assert bench.spans() == [(0, 1), (1, 4), (4, 5)]


def test_the_last_batch_of_a_producer_keeps_its_sequence(bench: Bench) -> None:
    mine = {"producer_id": 5, "producer_epoch": 1}
    bench.segment(bench.batch(A, base_sequence=0, **mine), bench.batch(A, base_sequence=1, **mine))
    bench.segment(bench.batch(A), bench.batch(B))
    bench.run(segment_bytes=10_000)
    assert bench.offsets() == [2, 3]
    assert [(h.base_offset, h.base_sequence) for h in bench.kept()] == [(1, 1), (2, -1), (3, -1)]
    bench.run(first_dirty=4)
    assert len(bench.kept()) == 3, "though the cleaning looks at no key of it"
    bench.run(now=NOW + 5000)
    assert [header.base_offset for header in bench.kept()] == [2, 3], "it is long idle"


# ---- transactions

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def written(bench: Bench, producer_id: int, *pairs: tuple[bytes | None, bytes | None]) -> bytearray:
    return bench.batch(*pairs, attributes=TRANSACTIONAL, producer_id=producer_id)


def ended(bench: Bench, producer_id: int, key: bytes) -> bytearray:
    marks = TRANSACTIONAL | CONTROL
    return bench.batch((key, b"\0\0\0\0\0\0"), attributes=marks, producer_id=producer_id)


LATER = NOW + 5000
"""When producers are long idle, but markers not yet due."""


def test_what_a_transaction_committed_is_compacted_like_the_rest(bench: Bench) -> None:
    bench.segment(written(bench, 4, A, B), ended(bench, 4, COMMIT), bench.batch(A))
    bench.segment(written(bench, 4, B), ended(bench, 4, COMMIT), bench.batch(C))
    bench.run(now=LATER)
    assert bench.offsets() == [2, 3, 4, 5, 6], "0 and 1 are overtaken"


def test_a_marker_goes_some_time_after_the_last_of_its_transaction(bench: Bench) -> None:
    for _ in range(3):
        bench.segment(written(bench, 4, A), ended(bench, 4, COMMIT), bench.batch(B))
    whole = {"segment_bytes": 10_000, "now": LATER}
    bench.run(**whole)
    assert bench.offsets() == [1, 4, 6, 7, 8]
    marked = [bool(header.attributes & DELETE_HORIZON) for header in bench.kept()]
    assert marked == [True, True, False, False, False]
    assert bench.run(**whole).swaps == (), "the end is set once"
    bench.run(segment_bytes=10_000, now=LATER + KEEP_MS)
    assert bench.offsets() == [6, 7, 8], "a marker stays with its records"


def test_what_was_aborted_overtakes_nothing_and_stays_with_its_marker(bench: Bench) -> None:
    bench.segment(bench.batch(A), written(bench, 4, A, GONE), ended(bench, 4, ABORT))
    bench.segment(written(bench, 4, B), ended(bench, 4, COMMIT), bench.batch(C))
    before = bench.records()
    for now in (LATER, LATER + 2 * KEEP_MS):
        bench.run(now=now, segment_bytes=10_000)
        assert bench.records() == before
    bench.segment(bench.batch(A, B))
    bench.run(now=LATER + 4 * KEEP_MS, segment_bytes=10_000)
    assert bench.offsets() == [1, 2, 3, 5, 6, 7, 8], "the abort index points at 1 to 3"


def test_the_cleaning_ends_at_a_transaction_without_an_end(bench: Bench) -> None:
    bench.segment(bench.batch(A, B), bench.batch(B))
    bench.segment(written(bench, 4, GONE), bench.batch(C), bench.batch(C))
    result = bench.run(now=LATER)
    assert result.clean_point == 3
    assert bench.offsets() == [0, 2, 3, 4, 5], "nothing is judged that may not have happened"
    bench.segment(ended(bench, 4, COMMIT), bench.batch(B))
    result = bench.run(now=LATER, first_dirty=result.clean_point)
    assert result.clean_point == 8
    assert bench.offsets() == [3, 5, 6, 7]
    bench.run(now=LATER + KEEP_MS, first_dirty=8)
    assert bench.offsets() == [5, 6, 7], "the tombstone is gone, and what it deletes before it"


def test_the_last_transaction_of_a_producer_keeps_its_epoch_and_sequence(bench: Bench) -> None:
    for _ in range(2):
        bench.segment(written(bench, 4, A), ended(bench, 4, COMMIT), bench.batch(A))
    bench.run(segment_bytes=10_000)
    bench.run(segment_bytes=10_000, now=NOW + KEEP_MS, producer_expiration_ms=2 * KEEP_MS)
    assert [header.base_offset for header in bench.kept()] == [3, 4, 5]
    assert [header.record_count for header in bench.kept()] == [0, 1, 1]


Found = dict[bytes, tuple[int, bytes]]
"""Key -> the offset and value of its last record."""


@pytest.mark.parametrize("seed", range(20))
def test_readers_of_committed_records_find_the_last_of_each_key(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    open_: dict[int, Found] = {}
    latest: Found = {}
    batches: list[bytearray] = []
    for n in range(200):
        producer, offset = rng.randrange(4), bench.end
        key, value = b"k%d" % rng.randrange(6), b"v%d" % n
        if producer == 0:
            batches.append(bench.batch((key, value)))
            latest = newest(latest, {key: (offset, value)})
        elif producer in open_ and rng.random() < 0.4:
            is_commit = rng.random() < 0.6
            batches.append(ended(bench, producer, COMMIT if is_commit else ABORT))
            done = open_.pop(producer)
            latest = newest(latest, done) if is_commit else latest
        else:
            batches.append(written(bench, producer, (key, value)))
            open_.setdefault(producer, {})[key] = (offset, value)
        if len(batches) >= 7:
            bench.segment(*batches)
            batches = []
            bench.run(now=LATER + n * KEEP_MS, segment_bytes=2000)
    for producer, done in open_.items():
        batches.append(ended(bench, producer, COMMIT))
        latest = newest(latest, done)
    bench.segment(*batches, bench.batch((b"end", b"")))
    for rounds in (300, 600):
        bench.run(now=LATER + rounds * KEEP_MS, segment_bytes=100_000)
    found = committed(bench)
    found.pop(b"end")
    assert found == latest


def newest(one: Found, other: Found) -> Found:
    return {key: max(one.get(key, (-1, b"")), other.get(key, (-1, b""))) for key in one | other}


def committed(bench: Bench) -> Found:
    """What a reader of committed records sees."""
    pending: dict[int, Found] = {}
    found: Found = {}
    for source in bench.sources:
        raw = bench.bytes_of(source.base)
        for position, header in scan(raw):
            read = iterate(raw, position, header)
            records = {record.key or b"": (record.offset, record.value or b"") for record in read}
            if header.is_control:
                done = pending.pop(header.producer_id, {})
                found = newest(found, done) if COMMIT in records else found
            elif header.is_transactional:
                pending[header.producer_id] = pending.get(header.producer_id, {}) | records
            else:
                found = newest(found, records)
    assert not pending, "every transaction has its marker"
    return found


# ---- how far back


def test_what_lies_below_the_log_start_goes(bench: Bench) -> None:
    bench.segment(bench.batch(A), bench.batch(B, C))
    bench.run(log_start=2, first_dirty=2)
    assert bench.offsets() == [2]


# ---- how far it goes


def test_clean_records_are_overtaken_by_dirty_ones(bench: Bench) -> None:
    bench.segment(bench.batch(A), bench.batch(B))
    bench.segment(bench.batch(A))
    result = bench.run(first_dirty=2)
    assert bench.offsets() == [1, 2]
    assert (result.clean_point, result.keys) == (3, 1)


def test_a_full_map_ends_the_cleaning_there(bench: Bench) -> None:
    bench.segment(bench.batch(A, A, B, C, A))
    result = bench.run(keys_max=2)
    assert result.clean_point == 3
    assert bench.offsets() == [1, 2, 3, 4], "nothing beyond is judged, nor what only it overtakes"
    result = bench.run(keys_max=2, first_dirty=3)
    assert result.clean_point == 5
    assert bench.offsets() == [2, 3, 4]


def test_nothing_beyond_a_full_map_goes_for_any_reason(bench: Bench) -> None:
    bench.segment(bench.batch(B))
    # The end of the tombstone has come, but what it deletes has not been looked for yet.
    bench.segment(bench.batch(A, C, (None, b"x"), (b"b", None), attributes=DELETE_HORIZON))
    result = bench.run(first_dirty=1, keys_max=1)
    assert result.clean_point == 2
    assert bench.offsets() == [0, 1, 2, 3, 4]
    result = bench.run(first_dirty=2, keys_max=2)
    assert result.clean_point == 5
    assert bench.offsets() == [1, 2], "now both are gone, together"


def test_the_end_of_tombstones_is_set_when_all_of_their_batch_is_reached(bench: Bench) -> None:
    bench.segment(bench.batch(GONE, B, (b"c", None)))
    bench.run(keys_max=1)
    assert not bench.headers()[0].attributes & DELETE_HORIZON
    bench.run(keys_max=2, first_dirty=1)
    assert bench.kept()[0].attributes & DELETE_HORIZON


def test_small_neighbours_become_one(bench: Bench) -> None:
    for pair in (A, B, C, A):
        bench.segment(bench.batch(pair))
    size = bench.sources[0].size
    result = bench.run(segment_bytes=3 * size)
    assert [swap.bases for swap in result.swaps] == [(0, 1, 2)]
    assert bench.offsets() == [1, 2, 3]
    assert result.swaps[0].max_timestamp == NOW - 10


def test_files_are_not_merged_beyond_what_an_index_can_address(bench: Bench) -> None:
    bench.segment(bench.batch(A, last_offset=2**31 - 1))
    bench.end = 2**31
    bench.segment(bench.batch(B))
    assert bench.run(segment_bytes=10_000).swaps == ()


# ---- the disk


def test_the_new_file_and_its_name_survive_a_power_cut(bench: Bench) -> None:
    bench.segment(bench.batch(A), bench.batch(A), bench.batch(B))
    bench.disk.sync_all()
    job = bench.job()
    result = compact(bench.disk, job, lambda byte_count: None)
    file = bench.disk.open(job.swap_name(0))
    made = file.read_at(0, file.size())
    bench.disk.power_cut()
    file = bench.disk.open(job.swap_name(0))
    assert file.read_at(0, file.size()) == made
    assert len(made) == result.swaps[0].size
    assert bench.disk.exists(f"{NAME}/{0:020d}.log")


def test_the_indexes_are_those_of_the_new_file(bench: Bench) -> None:
    bench.segment(*[bench.batch(pair) for pair in (A, B, C, A, B, C)])
    job = bench.job(index_interval_bytes=60)
    bench.run(index_interval_bytes=60)
    index = Index()
    position = 0
    for header in bench.headers():
        index.note(position, header.size, header.last_offset, header.max_timestamp, 60)
        position += header.size
    index.note_time()
    for kind, raw in (("index", index.offset_bytes()), ("timeindex", index.time_bytes())):
        file = bench.disk.open(job.swap_name(0, kind))
        assert file.read_at(0, file.size()) == raw
    assert index.entries() > 0


def test_leftovers_go(bench: Bench) -> None:
    bench.segment(bench.batch(A))
    for name in (f"{7:020d}.swap", f"{0:020d}.index.swap"):
        bench.disk.open(f"{NAME}/{name}", create=True).write_at(0, [b"old"])
    bench.run()
    assert bench.disk.list(NAME) == [f"{0:020d}.log"]


@pytest.mark.parametrize("kind", ["20", "salvage"])
def test_files_with_names_of_their_own_are_no_leftovers(bench: Bench, kind: str) -> None:
    """The journal may speak of one already; who made it knows whether it is needed."""
    bench.segment(bench.batch(A))
    name = f"{0:020d}.{kind}.swap"
    bench.disk.open(f"{NAME}/{name}", create=True).write_at(0, [b"new"])
    bench.run()
    assert name in bench.disk.list(NAME)


def test_rotten_bytes_end_it(bench: Bench) -> None:
    bench.segment(bench.batch(A), bench.batch(A))
    bench.disk.flip(f"{NAME}/{0:020d}.log", bench.sources[0].size - 3)
    assert bad_place(bench) == Damage(0, bench.sources[0].size // 2, bench.sources[0].size)


def test_a_sector_that_can_not_be_read_ends_it_like_rotten_bytes(bench: Bench) -> None:
    bench.segment(bench.batch(A), bench.batch(A))
    bench.segment(bench.batch(A), bench.batch(A))
    first, second = bench.sources
    bench.disk.spoil(f"{NAME}/{second.base:020d}.log", second.size - 3, 1)
    assert bad_place(bench) == Damage(second.base, 0, second.size)
    bench.disk.spoil(f"{NAME}/{first.base:020d}.log", 0, first.size)
    assert bad_place(bench) == Damage(0, 0, first.size)
    assert bad_place(bench, first_dirty=second.base, producer_expiration_ms=KEEP_MS) == Damage(
        0, 0, first.size
    )


def bad_place(bench: Bench, **fields: object) -> Damage:
    with pytest.raises(BadBatchError) as raised:
        bench.run(**fields)
    return raised.value.place


@pytest.mark.parametrize("byte", [0, 3, 6, 7])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rotten_offset_ends_it(bench: Bench, byte: int, victim: int) -> None:
    """It lies outside of the CRC; by it, the batch would overtake others that have its keys."""
    first = bench.batch(A)
    bench.segment(first, bench.batch(A), bench.batch(A))
    bench.segment(bench.batch(A))
    bench.disk.flip(f"{NAME}/{0:020d}.log", victim * len(first) + byte, 0x02)
    with pytest.raises(BadBatchError):
        bench.run()


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_rotten_offset_in_a_compacted_file_ends_it(bench: Bench, victim: int) -> None:
    """There is room between the batches that stayed, but no offset that nobody speaks of."""
    bench.segment(*[bench.batch(pair) for pair in (A, A, A, B, A, A, A, A, C)])
    bench.run()
    sizes = [header.size for header in bench.headers()]
    assert bench.spans() == [(0, 3), (3, 4), (4, 7), (7, 8), (8, 9)]
    bench.disk.flip(f"{NAME}/{0:020d}.log", sum(sizes[:victim]) + 7, 0x01)
    with pytest.raises(BadBatchError):
        bench.run()


def test_a_file_that_ends_too_early_ends_it(bench: Bench) -> None:
    bench.segment(bench.batch(A), bench.batch(A))
    bench.end += 1
    assert bad_place(bench) == Damage(0, 0, bench.sources[0].size)


def test_a_file_that_is_cut_short_ends_it(bench: Bench) -> None:
    bench.segment(bench.batch(A), bench.batch(A))
    bench.disk.open(f"{NAME}/{0:020d}.log").cut(bench.sources[0].size - 1)
    with pytest.raises(BadBatchError):
        bench.run()


def test_a_batch_that_is_no_records_inside_stays(bench: Bench) -> None:
    strange = bench.batch(A)
    strange[HEADER_SIZE:] = bytes(len(strange) - HEADER_SIZE)
    stamp_append_time(strange, 0, NOW)  # And with that a good CRC.
    bench.segment(strange, bench.batch(A), bench.batch(A))
    result = bench.run()
    assert result.batches_unreadable == 1
    assert bench.bytes_of(0).startswith(strange)
    assert [header.base_offset for header in bench.kept()] == [0, 2]


def test_batches_larger_than_a_read_are_no_trouble(bench: Bench) -> None:
    large = (b"big", random.Random(2).randbytes(3 << 20))
    bench.segment(bench.batch(A), bench.batch(large), bench.batch(A), bench.batch(large))
    bench.run()
    assert bench.offsets() == [2, 3]


def test_progress_is_told(bench: Bench) -> None:
    bench.segment(bench.batch(A), bench.batch(A))
    told: list[int] = []
    result = compact(bench.disk, bench.job(), told.append)
    assert sum(told) == 3 * bench.sources[0].size + result.swaps[0].size


# ---- clean points


def test_points_come_back() -> None:
    disk = FakeDisk(random.Random(1))
    assert compaction_points.load(disk) == {}
    compaction_points.save(disk, {3: 70, 1: 5})
    assert compaction_points.load(disk) == {1: 5, 3: 70}
    compaction_points.save(disk, {})
    assert compaction_points.load(disk) == {}


@pytest.mark.parametrize("at", range(0, 32, 3))
def test_points_that_are_not_good_are_none(at: int) -> None:
    disk = FakeDisk(random.Random(1))
    compaction_points.save(disk, {3: 70})
    if at not in (6, 7):  # Unused bytes of the head.
        disk.flip(compaction_points.NAME, at)
    assert compaction_points.load(disk) == ({3: 70} if at in (6, 7) else {})
    disk.open(compaction_points.NAME).cut(at)
    assert compaction_points.load(disk) == {}
