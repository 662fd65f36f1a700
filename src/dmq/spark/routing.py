"""Rows to partitions: which topic and partition each row of an Arrow batch goes to.

A row's own `partition` comes first, then its key's hash, and rows with neither stick to a partition
until it has got about a record batch, then move on to the next. Rows are then sorted by where they
go, in their order. How many partitions a topic has is asked of the caller. No input or output.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dmq.spark.encode import RECORD_OVERHEAD_MAX, Rows
from dmq.spark.failures import SparkSourceError
from dmq.spark.partitioner import Partitioner
from dmq.spark.sink_options import Columns

STICKY_BYTES = 900_000
"""What a partition gets of keyless rows before it is the next one's turn: about a record batch."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Partitions:
    """A topic's partitions: how many there are, and those that have a leader now."""

    count: int
    available: list[int]


class Target(NamedTuple):
    """Where rows go."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Routed:
    """Rows sorted by target; `bounds` has the first row of each target, and one past the last."""

    rows: Rows
    targets: list[Target]
    bounds: list[int]


class Router:
    """Routes the batches of one task; remembers where keyless rows stick."""

    def __init__(
        self,
        columns: Columns,
        topic: str | None,
        partitioner: Partitioner,
        partitions_of: Callable[[str], Partitions],
    ) -> None:
        self._columns = columns
        self._topic = topic
        self._partitioner = partitioner
        self._partitions_of = partitions_of
        self._sticky: dict[str, _Sticky] = {}

    def route(self, batch: Any) -> Routed:
        """One Arrow record batch, sorted. Raises SparkSourceError for rows that can't go anywhere."""
        columns = self._columns
        rows = Rows(
            _blobs(batch.column(columns.value)),
            None if columns.key is None else _blobs(batch.column(columns.key)),
            None if columns.headers is None else _headers(batch.column(columns.headers)),
        )
        topics, codes = self._topics(batch)
        places = np.full(len(rows), -1, np.int64)
        base, bases = 0, []
        for code, topic in enumerate(topics):
            chosen = slice(None) if len(topics) == 1 else np.flatnonzero(codes == code)
            partitions = self._partitions_of(topic)
            places[chosen] = base + self._place(batch, rows, topic, partitions, chosen)
            bases.append(base)
            base += partitions.count
        return _sorted(rows, topics, bases, places)

    def _topics(self, batch: Any) -> tuple[list[str], Integers]:
        if self._topic is not None or self._columns.topic is None:
            return [str(self._topic)], np.zeros(0, np.int64)
        column = batch.column(self._columns.topic)
        if column.null_count:
            raise SparkSourceError(
                f"{column.null_count} of {len(column)} rows have null in column 'topic'; give every"
                ' row a topic, or set option("topic", …), which goes before the column'
            )
        encoded = column.dictionary_encode()
        return encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64)

    def _place(
        self, batch: Any, rows: Rows, topic: str, partitions: Partitions, chosen: Any
    ) -> Integers:
        """The partition of each of the chosen rows, which all go to one topic."""
        count = len(rows) if isinstance(chosen, slice) else len(chosen)
        places = self._given(batch, topic, partitions.count, chosen, count)
        open_ = places < 0
        if rows.key is not None and open_.any():
            keys = rows.key if isinstance(chosen, slice) else rows.key.take(pa.array(chosen))
            hashed = open_ & ~self._partitioner.keyless(keys)
            if hashed.any():
                found = self._partitioner.partitions(keys, partitions.count)
                places[hashed] = found[hashed]
                open_ = places < 0
        if open_.any():
            sizes = rows.sizes()[chosen][open_] + RECORD_OVERHEAD_MAX
            sticky = self._sticky.setdefault(topic, _Sticky(partitions.available))
            places[open_] = sticky.assign(sizes, partitions.available)
        return places

    def _given(
        self, batch: Any, topic: str, partition_count: int, chosen: Any, count: int
    ) -> Integers:
        """What column `partition` says; -1 where it says nothing."""
        if self._columns.partition is None:
            return np.full(count, -1, np.int64)
        column = batch.column(self._columns.partition)
        given: Integers = np.asarray(pc.fill_null(column, -1)).astype(np.int64)[chosen]
        asked = np.asarray(column.is_valid())[chosen]
        wrong = asked & ((given < 0) | (given >= partition_count))
        if wrong.any():
            raise SparkSourceError(
                f"column 'partition' asks for partition {int(given[wrong][0])} of topic {topic!r},"
                f" which has partitions 0 to {partition_count - 1}; null lets the key decide"
            )
        return given


class _Sticky:
    """Where keyless rows of one topic go now, and how much has gone there already."""

    def __init__(self, available: list[int]) -> None:
        # Tasks start at different partitions, so that small batches spread too.
        self._turn = random.randrange(max(len(available), 1))  # noqa: S311
        self._bytes = 0

    def assign(self, sizes: Integers, available: list[int]) -> Integers:
        """A partition for each row of these sizes."""
        before = self._bytes + np.cumsum(sizes) - sizes
        turns = before // STICKY_BYTES
        chosen: Integers = np.array(available, np.int64)[(self._turn + turns) % len(available)]
        self._turn += int(turns[-1])
        self._bytes = int(before[-1] + sizes[-1] - turns[-1] * STICKY_BYTES)
        return chosen


def _sorted(rows: Rows, topics: list[str], bases: list[int], places: Integers) -> Routed:
    # Numbers of 16 bits are sorted by radix, several times as quick as by comparing.
    narrow = places.astype(np.uint16) if int(places.max(initial=0)) < 1 << 16 else places
    if len(places) and (narrow[1:] < narrow[:-1]).any():
        order = np.argsort(narrow, kind="stable")
        rows, places = rows.take(pa.array(order)), places[order]
    firsts = np.flatnonzero(np.diff(places, prepend=-1))
    targets = []
    for place in places[firsts].tolist():
        code = int(np.searchsorted(bases, place, side="right")) - 1
        targets.append(Target(topics[code], place - bases[code]))
    return Routed(rows, targets, [*firsts.tolist(), len(places)])


def _blobs(column: Any) -> Any:
    """Strings are their UTF-8 bytes: no copy, unless they came with 64-bit offsets."""
    return column.cast(pa.binary())


def _headers(column: Any) -> Any:
    names = pc.struct_field(pc.list_flatten(column), [0])
    if names.null_count:
        raise SparkSourceError(
            f"{names.null_count} headers have null for a key; give each header a name"
        )
    return column
