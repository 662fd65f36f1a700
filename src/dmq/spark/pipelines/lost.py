"""Offsets that were gone before a landing came to them, because retention was faster: how many.

Read off Spark's checkpoint, where each batch's end is kept before the batch is read, and the brokers'
word where the log begins by then. Offsets are counted, not records: nobody knows what was there.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from dmq.spark.cluster import Cluster
from dmq.spark.offsets import OffsetFinder, Offsets, from_json
from dmq.spark.options import SourceOptions


def lost_offsets(checkpoint: Path, batch: int, topic: str, source: Mapping[str, str]) -> int:
    """How many offsets of a batch that is about to be read are not there any more."""
    begins, ends = _ends(checkpoint, batch - 1), _ends(checkpoint, batch)
    asked = [where for where, end in ends.items() if where in begins and begins[where] < end]
    if not asked:
        return 0
    options = SourceOptions.of({**source, "subscribe": topic})
    cluster = Cluster(options.settings)
    try:
        first = OffsetFinder(cluster, options).earliest(asked)
    finally:
        cluster.close()
    return sum(max(0, min(first[where], ends[where]) - begins[where]) for where in asked)


def _ends(checkpoint: Path, batch: int) -> Offsets:
    """Up to where a batch reads: the third line, behind the version and Spark's own settings."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    except FileNotFoundError:
        return {}
    return from_json(json.loads(lines[2]))
