"""What an audit found, as plain values: for the report that people read and for programs.

A *finding* is something that is wrong and makes the audit fail; a *note* is something to know.
Imports no Spark.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

SAMPLES_MAX = 10


@dataclass(slots=True)
class Finding:
    """One thing that is wrong: what, where, how often, and some examples."""

    check: str
    where: str
    count: int
    what: str
    samples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class PartitionCount:
    """One partition of one topic on one cluster."""

    cluster: str
    topic: str
    partition: int
    first: int | None
    """Offset of the first record."""
    last: int | None
    records: int
    gaps: int
    """Offsets from the start of the log to the end for readers that hold no record for them."""
    checksum: str
    """Of keys and values, whatever their order."""


@dataclass(slots=True)
class Report:
    """An audit's result."""

    partitions: list[PartitionCount] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    """What was looked at."""
    seconds: float = 0.0

    @property
    def records(self) -> int:
        """Records that were looked at, on all clusters."""
        return sum(each.records for each in self.partitions)

    def find(
        self, check: str, where: str, count: int, what: str, samples: list[dict[str, Any]]
    ) -> None:
        """Note something wrong, if there is any of it."""
        if count:
            self.findings.append(Finding(check, where, count, what, samples[:SAMPLES_MAX]))

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "is_good": not self.findings,
            "records": self.records,
            "seconds": round(self.seconds, 1),
            "checks": self.checks,
            "findings": [asdict(each) for each in self.findings],
            "notes": self.notes,
            "partitions": [asdict(each) for each in self.partitions],
        }
