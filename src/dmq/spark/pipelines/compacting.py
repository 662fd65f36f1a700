"""Small files of a table merged into large ones, without Spark.

Streams write a few small files per batch; readers want few and large ones. Only files of batches that
are finished for good are merged: a batch that Spark may repeat must stay removable. The swap is
written down first (`_dmq/merge.json`), so that a crash in its middle is finished at the next start.
A reader that lists the folder in the moment of the swap may see rows twice, or look for a file that
is gone: it should read again.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from dmq.spark.pipelines.tables import ParquetTable, batch_of

TARGET_BYTES = 128 << 20
FILES_MIN = 8
"""So many small files in a folder are worth a merge."""


def finish_interrupted(table: ParquetTable) -> None:
    """End a merge that a crash interrupted: it was decided when it was written down."""
    journal = table.own / "merge.json"
    if not journal.exists():
        draft = table.own / "merge.parquet"
        draft.unlink(missing_ok=True)
        return
    facts = json.loads(journal.read_text())
    _swap(table, Path(facts["new"]), [Path(each) for each in facts["old"]])


def compact(
    table: ParquetTable,
    before_batch: int | None,
    *,
    files_min: int = FILES_MIN,
    target_bytes: int = TARGET_BYTES,
) -> int:
    """Merge small files in folders that got files; how many are gone by it.

    `before_batch`: only files of batches below it; None when the stream has ended in order.
    """
    gone = 0
    for folder in sorted(table.touched):
        small = [
            path
            for path in sorted(folder.glob("part-*.parquet"))
            if path.stat().st_size < target_bytes // 2
            and (before_batch is None or batch_of(path) < before_batch)
        ]
        for group in _groups(small, target_bytes):
            if len(group) >= max(2, files_min):
                _merge(table, group)
                gone += len(group) - 1
    if before_batch is None:
        table.touched.clear()
    return gone


def _groups(files: Sequence[Path], target_bytes: int) -> Iterator[list[Path]]:
    """Files in order, in groups of about the target's size."""
    group: list[Path] = []
    size_bytes = 0
    for path in files:
        size_bytes += path.stat().st_size
        group.append(path)
        if size_bytes >= target_bytes:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


def _merge(table: ParquetTable, files: Sequence[Path]) -> None:
    import pyarrow.parquet as pq

    draft = table.own / "merge.parquet"
    schema = pq.read_schema(files[0])
    with pq.ParquetWriter(draft, schema, compression="snappy") as writer:
        for path in files:
            for batch in pq.ParquetFile(path).iter_batches():
                writer.write_batch(batch)
    _sync(draft)
    last = files[-1]
    new = last.with_name(last.stem + "m.parquet")
    journal = table.own / "merge.json"
    note = journal.with_suffix(".draft")
    note.write_text(json.dumps({"new": str(new), "old": [str(path) for path in files]}))
    _sync(note)
    note.replace(journal)
    _sync(table.own)
    _swap(table, new, files)


def _swap(table: ParquetTable, new: Path, old: Sequence[Path]) -> None:
    """Put the merged file into place and remove what is in it. May be done again."""
    draft = table.own / "merge.parquet"
    if draft.exists():
        draft.rename(new)
        _sync(new.parent)
    for path in old:
        path.unlink(missing_ok=True)
    _sync(new.parent)
    (table.own / "merge.json").unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
