"""The record of a run: who runs a pipeline, since when and how far it is. One file of JSON.

Written by the run itself, read by `dmq pipeline status` and `stop`. Whether the run still lives is
not written but looked up: a process that was killed writes nothing. Imports no Spark.
"""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmq.spark.pipelines.failures import PipelineError

_LIVE = ("starting", "running", "waiting", "stopping")
STOP_PATIENCE_S = 90.0
_LOOK_EACH_S = 0.1


@dataclass(frozen=True, slots=True)
class Record:
    """What the file says, and whether its process is there."""

    facts: dict[str, Any]
    is_alive: bool

    @property
    def state(self) -> str:
        """As written; `died` if it says that it runs and nobody does."""
        written = str(self.facts.get("state", "unknown"))
        return "died" if written in _LIVE and not self.is_alive else written

    @property
    def pid(self) -> int:
        """The process of the run."""
        return int(self.facts["pid"])


def write(path: Path, facts: dict[str, Any]) -> None:
    """Replace the record, as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = {"pid": os.getpid(), "process_started": _started(os.getpid()), "written_at": time.time()}
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(facts | mine, indent=1) + "\n")
    draft.replace(path)


def read(path: Path) -> Record | None:
    """The record, or None if nothing was ever run here."""
    try:
        facts = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise PipelineError(f"The run's record {path} can't be read: {error}") from error
    return Record(facts, _is_alive(facts))


def claim(path: Path) -> None:
    """Raise PipelineError if another process runs this already: they would share checkpoints."""
    record = read(path)
    if record is not None and record.state in _LIVE and record.pid != os.getpid():
        raise PipelineError(
            f"It runs already, as process {record.pid}", "Stop it with `dmq pipeline stop`."
        )


def stop(record: Record, patience_s: float = STOP_PATIENCE_S) -> bool:
    """Ask the run to end and wait until it has. False if there was nothing to stop."""
    if record.state not in _LIVE:
        return False
    os.kill(record.pid, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while _is_alive(record.facts):
        if time.monotonic() > deadline:
            raise PipelineError(
                f"Process {record.pid} does not end within {patience_s:.0f} s",
                f"`kill -9 {record.pid}` ends it; its checkpoints stay good.",
            )
        time.sleep(_LOOK_EACH_S)
    return True


def _is_alive(facts: dict[str, Any]) -> bool:
    """The process is there, and is no later one that got the same number."""
    pid = facts.get("pid")
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    started = _started(pid)
    return started is None or started == facts.get("process_started")


def _started(pid: int) -> str | None:
    """When the system started a process, in its own clock; None where that can't be known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    # A process that has ended and that nobody has asked about yet is as good as gone.
    return None if len(fields) < 20 else ("" if fields[0] == "Z" else fields[19])
