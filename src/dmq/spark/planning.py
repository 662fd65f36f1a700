"""How much a batch reads, and in which pieces: arithmetic on offsets, with the rules of Spark's Kafka
source, so that a job that moves keeps its tasks. Pure; called by the readers on the driver.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from dmq.spark.offsets import Offsets, Partition


@dataclass(frozen=True)
class Range:
    """Offsets of one partition, `end` excluded."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Offsets in it: at least as many as records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def ranges_between(start: Mapping[Partition, int], end: Mapping[Partition, int]) -> list[Range]:
    """What lies between two sets of offsets, by partition; nothing where the end is not behind."""
    return [
        Range(topic, partition, start[topic, partition], until)
        for (topic, partition), until in sorted(end.items())
        if until > start[topic, partition]
    ]


def split(
    ranges: Iterable[Range], min_partitions: int | None, max_records: int | None
) -> list[Range]:
    """Pieces for tasks: none larger than `max_records`, about `min_partitions` in all."""
    pieces = [range_ for range_ in ranges if range_.size > 0]
    if max_records is not None:
        pieces = [
            piece
            for range_ in pieces
            for piece in _in_parts(range_, -(-range_.size // max_records))
        ]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(piece.size for piece in pieces)
    # Small pieces stay whole, and do not count in the shares of the large ones.
    whole = {piece for piece in pieces if _share(piece.size, total, min_partitions) == 1}
    left = max(min_partitions - len(whole), 1)
    total_left = total - sum(piece.size for piece in whole)
    return [
        part
        for piece in pieces
        for part in _in_parts(piece, 1 if piece in whole else _share(piece.size, total_left, left))
    ]


def _share(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)


def _in_parts(range_: Range, parts: int) -> list[Range]:
    """Nearly equal parts, in order; fewer where there are fewer offsets."""
    parts = min(parts, range_.size)
    bounds = [range_.start + range_.size * part // parts for part in range(parts + 1)]
    return [Range(range_.topic, range_.partition, low, high) for low, high in pairwise(bounds)]


def limited(start: Mapping[Partition, int], end: Offsets, offsets_max: float) -> Offsets:
    """An end with at most about `offsets_max` offsets before it, shared in proportion.

    A partition with little gets at least one: it must not starve beside a large one.
    """
    return limited_by_weight(start, end, offsets_max, {})


def limited_by_weight(
    start: Mapping[Partition, int],
    end: Offsets,
    weight_max: float,
    weights: Mapping[Partition, float],
) -> Offsets:
    """The same for offsets that weigh something, such as the bytes of a record; 1 if not said."""
    backlog = {
        partition: (until - start[partition]) * weights.get(partition, 1.0)
        for partition, until in end.items()
        if until > start[partition]
    }
    total = sum(backlog.values())
    if total <= weight_max:
        return dict(end)
    found = dict(end)
    for partition, heavy in backlog.items():
        share = weight_max * (heavy / total) / weights.get(partition, 1.0)
        offsets = math.ceil(share) if share < 1 else math.floor(share)
        found[partition] = min(end[partition], start[partition] + offsets)
    return found


def backlog(start: Mapping[Partition, int], end: Mapping[Partition, int]) -> int:
    """How many offsets are waiting."""
    return sum(max(0, until - start.get(partition, 0)) for partition, until in end.items())
