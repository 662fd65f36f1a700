"""The source and the sink on a real Spark cluster, over three brokers: clients of Connect, executors that
die, attempts that are overtaken, workers without dmq."""

import collections
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dmq.spark.pipelines.packing import pack
from dmq.testing import Cluster
from tests.spark.cluster.bare import bare_python
from tests.spark.cluster.connect import ROOT, ConnectServer, application, submit
from tests.spark.cluster.standalone import Standalone, environment
from tests.spark.feeding import create, numbered, produce, topic_name
from tests.spark.kills.running import committed, nothing_is_open

RECORDS = 4_000
PARTITIONS = 4
SUBMIT_S = 300.0
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
}
PAIRS = numbered(RECORDS)


@dataclass(frozen=True)
class Place:
    """Brokers with a topic of numbered records, and a Spark cluster."""

    servers: str
    source: str
    spark: Standalone

    def new_sink(self) -> str:
        return create(self.servers, topic_name("out"), 3)

    def judge(self, sink: str, times: int = 1) -> None:
        """All records are in the topic, so many times; and nobody waits for a transaction's end."""
        found = collections.Counter(committed(self.servers, sink))
        assert found == collections.Counter(dict.fromkeys(PAIRS, times))
        nothing_is_open(self.servers)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    starting = Standalone(tmp_path_factory.mktemp("standalone"))
    with starting as spark, Cluster(3, network="direct") as brokers:
        source = create(brokers.bootstrap, topic_name("in"), PARTITIONS)
        produce(brokers.bootstrap, source, PAIRS)
        yield Place(brokers.bootstrap, source, spark)


@pytest.fixture(scope="module")
def server(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    folder = tmp_path_factory.mktemp("connect")
    with ConnectServer(folder, place.spark.url, SPECULATION) as running:
        yield running


def run(server: ConnectServer, job: str, place: Place, sink: str, folder: Path) -> str:
    return server.run(job, servers=place.servers, source=place.source, sink=sink, folder=folder)


def test_a_client_of_connect_reads_and_writes_topics(
    server: ConnectServer, place: Place, tmp_path: Path
) -> None:
    sink = place.new_sink()
    assert run(server, "copy", place, sink, tmp_path).split() == [str(RECORDS), str(RECORDS)]
    place.judge(sink, times=2)  # A job has written them, and a stream.


@pytest.mark.crash
def test_an_executor_that_dies_in_mid_write_costs_no_record_and_doubles_none(
    server: ConnectServer, place: Place, tmp_path: Path
) -> None:
    sink = place.new_sink()
    before = {each.pid for each in place.spark.executors()}
    run(server, "kill", place, sink, tmp_path)
    assert (tmp_path / "killed").exists(), "no executor was killed"
    assert before - {each.pid for each in place.spark.executors()}, "all executors live"
    place.judge(sink)


@pytest.mark.parametrize(
    "job",
    [
        # Whether Spark begins a second attempt in time is up to it: on a busy machine it may not.
        pytest.param("late-begin", marks=pytest.mark.slow),
        pytest.param("late-flush", marks=pytest.mark.slow),
        pytest.param("late-job", marks=pytest.mark.slow),
    ],
)
def test_an_attempt_that_a_speculative_one_overtakes_writes_nothing_and_leaves_nothing_open(
    job: str, server: ConnectServer, place: Place, tmp_path: Path
) -> None:
    sink = place.new_sink()
    run(server, job, place, sink, tmp_path)
    assert (tmp_path / "slow").exists(), "no attempt was slow"
    place.judge(sink)


@pytest.mark.parametrize("where", ["remote", pytest.param("master", marks=pytest.mark.slow)])
def test_a_project_of_two_templates_runs_on_the_cluster(
    where: str, server: ConnectServer, place: Place, tmp_path: Path
) -> None:
    """`dmq pipeline run --remote` and `--master`; exactly one record per key and window.

    The server's catalog is Spark's default, which is stricter than the one that `--master` gets.
    """
    orders, totals = create(place.servers, topic_name("orders"), 2), place.new_sink()
    hour_ago = int(time.time() // 60 - 60) * 60_000
    pairs = [(b"key-%d" % (n % 4), b'{"amount": 1.5}') for n in range(200)]
    times = [hour_ago + n // 100 * 60_000 for n in range(200)]
    produce(place.servers, orders, pairs, timestamps=times)
    produce(place.servers, orders, [(b"late", b'{"amount": 1}')], timestamps=[hour_ago + 1_800_000])
    dmq(
        place,
        tmp_path,
        "init",
        "sums",
        "--template",
        "aggregate",
        "--topic",
        orders,
        "--to",
        totals,
    )
    dmq(place, tmp_path, "init", "each", "--topic", orders)
    name = "transformations/each.py"
    (tmp_path / "each" / name).rename(tmp_path / "sums" / name)
    spark = ["--remote", server.url] if where == "remote" else ["--master", place.spark.url]
    if where == "master":
        for name, value in application(tmp_path).items():
            spark += ["--conf", f"{name}={value}"]
    told = dmq(place, tmp_path, "run", "sums", *spark)
    assert "completed, 804 rows read" in told, "four flows read the topic"
    found = [json.loads(value or b"") for _, value in committed(place.servers, totals)]
    assert sorted((each["key"], each["records"], each["total"]) for each in found) == sorted(
        (f"key-{n}", 25, 37.5) for n in range(4) for _ in range(2)
    )
    nothing_is_open(place.servers)


def dmq(place: Place, folder: Path, *words: str) -> str:
    ended = subprocess.run(
        [str(Path(sys.executable).parent / "dmq"), "pipeline", *words],
        env=environment(DMQ_BOOTSTRAP_SERVERS=place.servers), timeout=SUBMIT_S, text=True,
        capture_output=True, cwd=folder, start_new_session=True,
    )  # fmt: skip
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def submitted(
    place: Place, folder: Path, python: Path, options: list[str], arguments: list[str]
) -> subprocess.CompletedProcess[str]:
    """A job with this Python, on the driver's machine and on the workers'."""
    settings = application(folder) | {"spark.master": place.spark.url}
    job = str(ROOT / "tests" / "spark" / "cluster" / "job.py")
    command = submit(settings, *options, job, place.servers, place.source, *arguments)
    return subprocess.run(
        command, env=environment(PYSPARK_PYTHON=str(python)), timeout=SUBMIT_S, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True,
    )  # fmt: skip


@pytest.mark.slow
def test_dmq_goes_with_a_job_as_py_files(place: Place, tmp_path: Path) -> None:
    pack(tmp_path / "dmq.zip")
    sink = place.new_sink()
    options = ["--py-files", str(tmp_path / "dmq.zip")]
    bare = bare_python(tmp_path / "bare")
    ended = submitted(place, tmp_path, bare, options, [sink, "register"])
    assert ended.returncode == 0, ended.stdout[-8000:]
    place.judge(sink)


@pytest.mark.slow
def test_workers_without_dmq_say_how_to_get_it(place: Place, tmp_path: Path) -> None:
    """The driver's machine has dmq. The workers' Python has the same path, and no dmq."""
    bare = bare_python(tmp_path / "bare")
    python = tmp_path / "python"
    python.write_text(f"""#!/bin/sh
[ "$ON_A_WORKER" ] && exec {bare} "$@"
exec {sys.executable} "$@"
""")
    python.chmod(0o755)
    options = ["--conf", "spark.executorEnv.ON_A_WORKER=yes"]
    ended = submitted(place, tmp_path, python, options, [place.new_sink()])
    assert ended.returncode != 0
    assert f"({bare} on " in ended.stdout, ended.stdout[-8000:]
    assert "has no module 'dmq'; install it there" in ended.stdout
    assert "--py-files dmq.zip" in ended.stdout
