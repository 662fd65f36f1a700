"""What the flows of a run have done: plain values, filled from Spark's events.

Owns the reading of two streams of events: the pipeline's own messages ("Flow x is RUNNING.") and
the progress reports of streaming queries. Imports no Spark.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dmq.spark.pipelines.failures import our_words

_FLOW = re.compile(r"^(?:Flow|Failed to resolve flow:?)\s+'?([^\s']+?)'?[.:]?\s+(?:is|has)\s+(\w+)")
_RUN = re.compile(r"^Run (?:is|has) (\w+)")
_STATE = re.compile(r"^.*?\b(?:is|has) \w+\.?", re.DOTALL)
_GIVEN_UP = re.compile(r"more than \d+ times")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+;?$")
_HOME = "spark_catalog.default."
"""Where tables live unless somebody says otherwise: nothing to repeat on every line."""


@dataclass(slots=True)
class Flow:
    """One flow: a table, a view or a sink that is being filled."""

    name: str
    state: str = "queued"
    batch: int | None = None
    rows: int = 0
    """Read in this update."""
    rows_per_s: float | None = None
    lag: int | None = None
    """Records in the topics that this flow has not read yet, as of its last batch."""
    error: str | None = None


@dataclass(slots=True)
class Progress:
    """All flows of the update that runs or ran last."""

    flows: dict[str, Flow] = field(default_factory=dict)
    state: str = "starting"
    error: str | None = None
    dead_letters: int = 0
    """Records that did not parse; counted by landings."""
    skipped: int = 0
    """Offsets that were gone before they were read; counted by landings that go on then."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why flows failed last: Spark's word that it gives one up does not repeat it."""

    def flow(self, name: str) -> Flow:
        """The flow of that name, known from now on."""
        short = name.replace("`", "").removeprefix(_HOME)
        return self.flows.setdefault(short, Flow(short))

    def begin_update(self) -> None:
        """Nothing has been read yet in the update that begins."""
        self.state = "running"
        self.error = None
        self.flows.clear()
        self.reasons.clear()

    def on_message(self, message: str) -> Flow | None:
        """A message of the pipeline; the flow that it is about, if it is about one."""
        if match := _FLOW.match(message):
            flow = self.flow(match[1])
            flow.state = match[2].lower()
            flow.error = None
            if flow.state in ("failed", "stopped"):
                flow.error = self._why(flow.name, _reason(message))
            return flow
        if match := _RUN.match(message):
            self.state = match[1].lower()
            if self.state == "failed":
                self.error = _reason(message)
        return None

    def _why(self, name: str, reason: str | None) -> str | None:
        if reason is None or _GIVEN_UP.match(reason):
            return self.reasons.get(name, reason)
        self.reasons[name] = reason
        return reason

    def on_query(self, report: Mapping[str, Any]) -> Flow | None:
        """A progress report of a streaming query, as its JSON says; the flow that it belongs to."""
        if not report.get("name"):
            return None
        flow = self.flow(str(report["name"]))
        put_report(flow, report)
        return flow

    @property
    def rows(self) -> int:
        """Read by all flows."""
        return sum(flow.rows for flow in self.flows.values())

    def as_json(self) -> dict[str, Any]:
        """For the run's record and for programs."""
        flows = [asdict(flow) for flow in self.flows.values()]
        return {"state": self.state, "error": self.error, "flows": flows}


def put_report(flow: Flow, report: Mapping[str, Any]) -> None:
    """Take a streaming query's report into its flow."""
    flow.batch = int(report["batchId"])
    rows = int(report.get("numInputRows") or 0)
    flow.rows += rows
    if rows:
        flow.rows_per_s = _number(report.get("processedRowsPerSecond"))
    lags = [lag_of(source) for source in report.get("sources", ())]
    if known := [lag for lag in lags if lag is not None]:
        flow.lag = sum(known)


def lag_of(source: Mapping[str, Any]) -> int | None:
    """How far a source is behind: the latest offsets less those that were read up to."""
    ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if ends is None or latest is None:
        return None
    return sum(max(0, offset - ends.get(where, 0)) for where, offset in latest.items())


def _offsets(value: Any) -> dict[tuple[str, str], int] | None:
    """`{"orders": {"0": 12}}`, as text or as an object; None for offsets of another kind."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict):
        return None
    found: dict[tuple[str, str], int] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            return None
        for partition, offset in partitions.items():
            if not isinstance(offset, int):
                return None
            found[topic, partition] = offset
    return found


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number == number and number not in (float("inf"),) else None


def _reason(message: str) -> str | None:
    """The reason in `Flow x has FAILED.` and what follows, without Spark's words around it."""
    lines = [line.strip() for line in _STATE.sub("", message, count=1).splitlines()]
    if ours := our_words(lines):
        return ours
    line = next((each for each in lines if each), "").removeprefix("Error:").strip()
    line = line.rpartition("terminated with exception: ")[2]
    return _SQLSTATE.sub("", line) or None
