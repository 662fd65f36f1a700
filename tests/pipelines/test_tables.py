"""Merging the small files of a landed table, and crashes in the middle of it. No Spark is needed."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dmq.spark.pipelines import compacting
from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.tables import Landing, ParquetTable
from dmq.spark.pipelines.values import Declared

LANDING = Landing(
    "0a1b2c3d", "orders", Declared("json", "n BIGINT"), ("day",), False, "orders-dead"
)
DAY = "day=2026-01-31"


@pytest.fixture
def table(tmp_path: Path) -> ParquetTable:
    table = ParquetTable(tmp_path / "orders")
    (table.folder / DAY).mkdir(parents=True)
    table.checkpoint.mkdir(parents=True)
    table.begin(LANDING)
    return table


def put(table: ParquetTable, batch: int, rows: int = 3) -> None:
    """What a batch leaves behind."""
    path = table.folder / DAY / f"part-{LANDING.id}-{batch:08d}-0.parquet"
    numbers = pa.table({"n": pa.array([batch * 100 + i for i in range(rows)], pa.int64())})
    pq.write_table(numbers, path)
    table.touched.add(path.parent)


def rows(table: ParquetTable) -> list[int]:
    found = [n for path in table.files() for n in pq.read_table(path)["n"].to_pylist()]
    return sorted(found)


def test_small_files_become_one_and_no_row_is_lost(table: ParquetTable) -> None:
    for batch in range(10):
        put(table, batch)
    before = rows(table)
    assert compacting.compact(table, before_batch=9) == 8
    assert len(list(table.files())) == 2  # The last batch may be repeated: its file stays alone.
    assert rows(table) == before
    assert not (table.own / "merge.json").exists()


def test_few_files_and_large_files_are_left_alone(table: ParquetTable) -> None:
    for batch in range(7):
        put(table, batch)
    assert compacting.compact(table, before_batch=9) == 0
    assert compacting.compact(table, before_batch=9, files_min=2, target_bytes=64) == 0
    assert len(list(table.files())) == 7


def test_a_merged_file_is_merged_again(table: ParquetTable) -> None:
    for batch in range(4):
        put(table, batch)
    assert compacting.compact(table, None, files_min=2) == 3
    put(table, 4)
    before = rows(table)
    assert compacting.compact(table, None, files_min=2) == 1
    assert rows(table) == before


@pytest.mark.parametrize("done", ["nothing", "the rename", "some removals"])
def test_a_merge_that_was_interrupted_is_finished(table: ParquetTable, done: str) -> None:
    for batch in range(4):
        put(table, batch)
    before = rows(table)
    old = sorted(table.files())
    new = old[-1].with_name(old[-1].stem + "m.parquet")
    pq.write_table(pa.concat_tables([pq.read_table(p) for p in old]), table.own / "merge.parquet")
    facts = {"new": str(new), "old": [str(path) for path in old]}
    (table.own / "merge.json").write_text(json.dumps(facts))
    if done != "nothing":
        (table.own / "merge.parquet").rename(new)
    if done == "some removals":
        old[0].unlink()
    again = ParquetTable(table.folder)
    again.begin(LANDING)
    assert rows(again) == before
    assert list(again.files()) == [new]


def test_a_merge_that_was_not_decided_is_forgotten(table: ParquetTable) -> None:
    put(table, 0)
    (table.own / "merge.parquet").write_bytes(b"half of i")
    before = rows(table)
    ParquetTable(table.folder).begin(LANDING)
    assert rows(table) == before
    assert not (table.own / "merge.parquet").exists()


def test_a_table_keeps_the_way_it_was_landed(table: ParquetTable) -> None:
    assert table.landing() == LANDING
    other = Landing(
        "0a1b2c3d", "orders", Declared("json", "m BIGINT"), ("day",), False, "orders-dead"
    )
    with pytest.raises(PipelineError, match="landed in another way"):
        ParquetTable(table.folder).begin(other)


def test_rows_whose_checkpoint_is_gone_are_not_landed_twice(table: ParquetTable) -> None:
    put(table, 0)
    table.checkpoint.rmdir()
    with pytest.raises(PipelineError, match="is lost"):
        ParquetTable(table.folder).landing()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "x.parquet")
    with pytest.raises(PipelineError, match="somebody else"):
        ParquetTable(tmp_path).begin(LANDING)
