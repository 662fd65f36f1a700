"""A compaction as a value: what is asked of the process that does it, and what it answers.

Both travel as JSON, one line each; an answer may also be the place of bytes that can't be believed
(`Damage`), or None for any other failure. Says nothing about how it is done (compaction_run.py) or when
(compaction.py). Used by both sides.
"""

import json
from dataclasses import asdict, dataclass
from typing import NamedTuple

from dmq.storage.items import Damage


class Source(NamedTuple):
    """A closed segment that is read."""

    base: int
    size: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class Job:
    """Clean these segments of one log."""

    uid: int
    directory: str
    """Of the log, relative to the data directory."""
    segments: tuple[Source, ...]
    """Neighbours, from the log's first on."""
    end: int
    """Base of the segment after the last of them."""
    log_start: int
    """Records below it are deleted; they need not be kept."""
    first_dirty: int
    """Everything below was cleaned before: no key is there twice."""
    now: int
    delete_retention_ms: int
    producer_expiration_ms: int
    segment_bytes: int
    """Small neighbours are merged up to this size."""
    index_interval_bytes: int
    keys_max: int
    """Keys held in memory. At the bound, the cleaning ends at the first key that has no place."""
    bytes_per_second: float
    edges: tuple[int, ...]
    """Offsets of marks: no batch may lie across one."""

    def swap_name(self, base: int, kind: str = "") -> str:
        """As `Log.swap_name`; with a kind, of the index that goes with it."""
        return f"{self.directory}/{base:020d}.{kind}{'.' if kind else ''}swap"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Job":
        fields = json.loads(text)
        fields["segments"] = tuple(Source(*segment) for segment in fields["segments"])
        fields["edges"] = tuple(fields["edges"])
        return cls(**fields)


class Swap(NamedTuple):
    """Segments that one new file is to replace; it lies, synced, in `Job.swap_name(bases[0])`."""

    bases: tuple[int, ...]
    size: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class Result:
    """What was done. Nothing of it counts before the log's journal says so."""

    uid: int
    clean_point: int
    """All below is clean once the swaps are done."""
    swaps: tuple[Swap, ...]
    keys: int
    records_read: int
    records_kept: int
    bytes_read: int
    bytes_kept: int
    batches_unreadable: int
    """Good by their CRC, but not made of records; kept as they are."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Result":
        fields = json.loads(text)
        fields["swaps"] = tuple(
            Swap(tuple(bases), size, newest) for bases, size, newest in fields["swaps"]
        )
        return cls(**fields)


Outcome = Result | Damage | None
"""What a compactor answers."""
