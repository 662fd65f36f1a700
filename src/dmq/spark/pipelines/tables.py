"""A table of Parquet files that a topic is landed in: each batch's files are there once.

Layout of the folder, which every reader of Parquet folders understands:

    day=2026-01-31/part-<landing>-<batch>-<n>.parquet     rows
    _dmq/landing.json        what is landed here, and how; readers skip names that begin with _
    _dmq/checkpoint/         how far Spark has read
    _dmq/staging/            files that are being written
    _dmq/run.json, spark.log

A batch is written aside, synced, and renamed into place under its number. When Spark repeats a batch
after a crash, files of that number are removed first, and what was merged already is left out: so
rows are there exactly once, whoever reads them. Folder and files must be reachable from the driver
and all executors under one path.
"""

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.values import Declared

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_FILE = re.compile(r"part-([0-9a-f]{8})-(\d{8,})-(\w+)\.parquet")


@dataclass(frozen=True, slots=True)
class Landing:
    """What is landed in a folder: said once, and true for all later runs."""

    id: str
    topic: str
    declared: Declared
    partition_by: tuple[str, ...]
    headers: bool
    dead_letters: str

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Landing":
        """As it was written."""
        declared = Declared(**facts["declared"])
        return cls(**facts | {"declared": declared, "partition_by": tuple(facts["partition_by"])})


class ParquetTable:
    """The folder, and the batches that are put into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().resolve()
        self.own = self.folder / "_dmq"
        self.checkpoint = self.own / "checkpoint"
        self.record = self.own / "run.json"
        self.log = self.own / "spark.log"
        self._landing_file = self.own / "landing.json"
        self._staging = self.own / "staging"
        self.touched: set[Path] = set()
        """Folders that got files and have not been looked at for compaction."""

    def landing(self) -> Landing | None:
        """What is landed here already. Raises PipelineError if its checkpoint is gone."""
        try:
            facts = json.loads(self._landing_file.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise PipelineError(f"{self._landing_file} can't be read: {error}") from error
        landing = Landing.of(facts)
        if not self.checkpoint.exists() and any(self.files()):
            raise PipelineError(
                f"{self.folder} holds rows, but how far its topic was read is lost",
                f"{self.checkpoint} is missing. Land into another folder, or remove this one.",
            )
        return landing

    def begin(self, landing: Landing) -> None:
        """Make the folder ready for batches; what a crash left half-done is put right."""
        if self._landing_file.exists():
            known = self.landing()
            if known != landing:
                raise PipelineError(
                    f"{self.folder} was landed in another way: {_differences(known, landing)}",
                    "Leave these options out, or land into another folder.",
                )
        elif self.folder.exists() and any(self.folder.rglob("*.parquet")):
            raise PipelineError(
                f"{self.folder} holds Parquet files of somebody else", "Land into another folder."
            )
        self.own.mkdir(parents=True, exist_ok=True)
        draft = self._landing_file.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(landing), indent=1) + "\n")
        draft.replace(self._landing_file)
        from dmq.spark.pipelines import compacting

        compacting.finish_interrupted(self)
        self._id = landing.id
        self._partition_by = landing.partition_by
        self.touched = {path.parent for path in self.files()}

    def refusal(self, row: "StructType") -> "Column | None":
        """Parquet takes whatever Spark has."""
        return None

    def put(self, rows: "DataFrame", batch: int) -> None:
        """Make these rows the batch's rows, whether it was put before or not."""
        shutil.rmtree(self._staging, ignore_errors=True)
        for path in self.files(batch):
            if not is_merged(path):  # In a merged file there are other batches too.
                path.unlink()
        writer = rows.write.mode("overwrite")
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.parquet(self._staging.as_uri())
        folders = set()
        for number, path in enumerate(sorted(self._staging.rglob("*.parquet"))):
            inside = path.parent.relative_to(self._staging)
            target = self.folder / inside / f"part-{self._id}-{batch:08d}-{number}.parquet"
            if has_merged(target.parent, batch):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            _sync(path)
            path.rename(target)
            folders.add(target.parent)
        for folder in folders:
            _sync(folder)
        self.touched |= folders
        shutil.rmtree(self._staging, ignore_errors=True)

    def tidy(self, before_batch: int | None) -> None:
        """Merge small files of batches that are done for good."""
        from dmq.spark.pipelines import compacting

        if before_batch is None:
            compacting.compact(self, None, files_min=2)
        else:
            compacting.compact(self, before_batch)

    def files(self, batch: int | None = None) -> Iterator[Path]:
        """The table's files, or those of one batch."""
        for path in self.folder.rglob("part-*.parquet"):
            match = _FILE.fullmatch(path.name)
            inside = path.relative_to(self.folder).parts[0]
            if match and inside != "_dmq" and (batch is None or int(match[2]) == batch):
                yield path


def batch_of(path: Path) -> int:
    """The number of the batch that a file is of; of a merged file, of the last in it."""
    match = _FILE.fullmatch(path.name)
    assert match is not None
    return int(match[2])


def is_merged(path: Path) -> bool:
    """Whether a file is made of several."""
    return path.stem.endswith("m")


def has_merged(folder: Path, batch: int) -> bool:
    """Whether a batch's rows of this folder are in a merged file already: they are the same again."""
    return any(batch_of(path) >= batch for path in folder.glob("part-*m.parquet"))


def new_id() -> str:
    """A landing's name in the names of its files."""
    return uuid.uuid4().hex[:8]


def _differences(known: Landing | None, asked: Landing) -> str:
    assert known is not None
    before, after = asdict(known), asdict(asked)
    return ", ".join(
        f"{name} was {before[name]!r}" for name in before if before[name] != after[name]
    )


def _sync(path: Path) -> None:
    """Have a file's bytes, or a folder's names, on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
