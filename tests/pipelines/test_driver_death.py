"""A run whose Spark driver dies under it: a sentence soon, a record that says so, nothing hung."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from compat.eventually import eventually
from spark.feeding import create, topic_name

from dmq.testing import Cluster

DMQ = str(Path(sys.executable).parent / "dmq")


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_a_driver_that_is_killed_ends_the_run_with_a_sentence(
    cluster: Cluster, tmp_path: Path
) -> None:
    if shutil.which("java") is None:
        pytest.skip("no Java: see scripts/java.sh")
    env = os.environ | {"DMQ_BOOTSTRAP_SERVERS": cluster.bootstrap}
    topic = create(cluster.bootstrap, topic_name("changes"), 1)
    init = [DMQ, "pipeline", "init", "gone", "--template", "cdc", "--topic", topic]
    subprocess.run([*init, "--schema", "n BIGINT"], cwd=tmp_path, env=env, check=True)
    record = tmp_path / "gone" / ".dmq" / "run.json"
    run = subprocess.Popen(
        [DMQ, "pipeline", "run", "gone", "--every", "1", "--master", "local[2]"],
        cwd=tmp_path, env=env, text=True, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:

        def is_at_work() -> bool:
            assert run.poll() is None, "ended before its driver was killed"
            return record.exists() and json.loads(record.read_text())["update"] > 0

        eventually(is_at_work, "the first update", 300)
        for child in psutil.Process(run.pid).children():
            child.kill()
        _, said = run.communicate(timeout=120)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 1, said
    assert "Spark's driver (local[2]) has gone away in the middle of the run" in said
    assert "Traceback" not in said
    assert json.loads(record.read_text())["state"] == "failed"
