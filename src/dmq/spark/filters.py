"""Conditions of a query that narrow what is fetched: on topic, partition, offset and timestamp.

Spark hands the conditions of a batch query over when `spark.sql.python.filterPushdown.enabled` is on.
Those that are understood here are applied exactly, so Spark does not look again; the rest stay
Spark's. Offsets become ranges, times become the first offset that may match (ListOffsets), and what
is left of them is decided on the decoded vectors.
"""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_MILLISECOND = dt.timedelta(milliseconds=1)


@dataclass(frozen=True)
class Narrowing:
    """What remains to be read; None says everything. Bounds are both included; times are in ms."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_min: int | None = None
    partition_max: int | None = None
    offset_min: int | None = None
    offset_max: int | None = None
    time_min: int | None = None
    time_max: int | None = None

    def has(self, topic: str, partition: int) -> bool:
        """Whether anything of a partition is wanted."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and (self.partition_min is None or partition >= self.partition_min)
            and (self.partition_max is None or partition <= self.partition_max)
        )


def narrow(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """All conditions together, and those that are left to Spark."""
    found, left = Narrowing(), []
    for one in filters:
        narrowed = _apply(found, one)
        if narrowed is None:
            left.append(one)
        else:
            found = narrowed
    return found, left


def _apply(found: Narrowing, one: Filter) -> Narrowing | None:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    column = path[0] if len(path) == 1 else ""
    if column not in _NEVER_NULL:
        return None
    if isinstance(one, IsNotNull):
        return found
    if isinstance(one, In):
        return _one_of(found, column, set(one.value))
    if column == "topic":
        is_equal = isinstance(one, EqualTo | EqualNullSafe)
        return _one_of(found, "topic", {getattr(one, "value", None)}) if is_equal else None
    bounds = _bounds(one)
    if bounds is None or column == "timestampType":
        return None
    return _within(found, column, *bounds)


def _one_of(found: Narrowing, column: str, values: set[Any]) -> Narrowing | None:
    if column == "topic":
        return replace(found, topics=_and(found.topics, values))
    if column == "partition":
        return replace(found, partitions=_and(found.partitions, values))
    return None


def _and(known: frozenset[Any] | None, more: set[Any]) -> frozenset[Any]:
    return frozenset(more) if known is None else known & more


def _bounds(one: Any) -> tuple[int | None, int | None] | None:
    """Lowest and highest whole number that the condition allows, offsets or milliseconds."""
    number = _number(getattr(one, "value", None))
    if number is None:
        return None
    floor, is_whole = number
    if isinstance(one, EqualTo | EqualNullSafe):
        return (floor, floor) if is_whole else (1, 0)  # Between two milliseconds: nothing.
    if isinstance(one, GreaterThan):
        return floor + 1, None
    if isinstance(one, GreaterThanOrEqual):
        return (floor if is_whole else floor + 1), None
    if isinstance(one, LessThan):
        return None, (floor - 1 if is_whole else floor)
    if isinstance(one, LessThanOrEqual):
        return None, floor
    return None


def _number(value: Any) -> tuple[int, bool] | None:
    """A number, or a moment in milliseconds, rounded down, and whether it is exact."""
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return None
        since = value - _EPOCH
        return since // _MILLISECOND, not since % _MILLISECOND
    if isinstance(value, int) and not isinstance(value, bool):
        return value, True
    return None


def _within(found: Narrowing, column: str, low: int | None, high: int | None) -> Narrowing:
    names = {"partition": "partition", "offset": "offset", "timestamp": "time"}
    lowest, highest = f"{names[column]}_min", f"{names[column]}_max"
    changes: dict[str, Any] = {}
    if low is not None:
        known = getattr(found, lowest)
        changes[lowest] = low if known is None else max(known, low)
    if high is not None:
        known = getattr(found, highest)
        changes[highest] = high if known is None else min(known, high)
    return replace(found, **changes)
