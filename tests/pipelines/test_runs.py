"""The record of a run, and stopping who wrote it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dmq.spark.pipelines import runs
from dmq.spark.pipelines.failures import PipelineError

RUNS_UNTIL_TOLD = """
import signal, sys, pathlib
from dmq.spark.pipelines import runs
path = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: (runs.write(path, {"state": "stopped"}), sys.exit(0)))
runs.write(path, {"state": "running"})
print("there", flush=True)
signal.pause()
"""


def another(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", RUNS_UNTIL_TOLD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "there\n"
    return child


def test_nothing_was_run_here(tmp_path: Path) -> None:
    assert runs.read(tmp_path / "run.json") is None


def test_who_lives_is_looked_up_and_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    runs.write(path, {"state": "running"})
    record = runs.read(path)
    assert record is not None
    assert record.state == "running"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"process_started": "1"}))  # The number was given out again.
    record = runs.read(path)
    assert record is not None
    assert record.state == "died"


def test_a_second_run_is_refused_and_the_first_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with another(path) as child:
        with pytest.raises(PipelineError, match=f"runs already, as process {child.pid}"):
            runs.claim(path)
        record = runs.read(path)
        assert record is not None
        assert runs.stop(record)
        assert child.stdout is not None
    after = runs.read(path)
    assert after is not None
    assert after.state == "stopped"
    assert not runs.stop(after)
    runs.claim(path)


def test_a_run_that_was_killed_has_died(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with another(path) as child:
        os.kill(child.pid, signal.SIGKILL)
    record = runs.read(path)
    assert record is not None
    assert record.state == "died"
    runs.claim(path)
