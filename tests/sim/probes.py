"""Counts visits of rare places inside production code, which nothing outside it can see.

The functions are wrapped once, when the simulator is imported; the wrappers only count. Worlds read the
counts as differences, for a process runs one world at a time.
"""

from collections import Counter
from functools import wraps
from typing import Any

from dmq.broker.multiraft.node import GroupNode
from dmq.storage.log import Log

counts: Counter[str] = Counter()


def _flush_noted(self: Log, base: int, end_offset: int, cut_count: int) -> None:
    counts["flush note that followed a cut"] += cut_count != self.cut_count
    _FLUSH_NOTED(self, base, end_offset, cut_count)


_FLUSH_NOTED: Any = Log.flush_noted
Log.flush_noted = wraps(_FLUSH_NOTED)(_flush_noted)  # type: ignore[method-assign]


_EVENTS = (
    "digest mismatch",
    "leadership lost under a read",
    "read timed out",
    "read waits for a round",
    "repair of another length",
)


def _counted(self: GroupNode, event: str) -> None:
    if event in _EVENTS:
        counts[event] += 1
    _COUNT(self, event)


_COUNT: Any = GroupNode.count
GroupNode.count = wraps(_COUNT)(_counted)  # type: ignore[method-assign]
