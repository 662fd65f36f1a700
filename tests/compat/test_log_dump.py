"""Kafka's own log-dump tool reads our segments and indexes without complaint."""

import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from compat import batches, topics
from compat.clients.client import COMPRESSIONS, Record
from compat.clients.confluent import Confluent
from compat.conftest import NewTopic
from compat.eventually import eventually
from compat.matrix import now_ms
from compat.process import BrokerProcess
from compat.requests import produce
from compat.wire import NONE, Connection

pytestmark = [pytest.mark.foreign("dumplog"), pytest.mark.timeout(300)]
SEGMENT_BYTES = 1 << 20
COMPLAINT = re.compile(
    r"exception|mismatch|corrupt|invalid|non-secutive|found .* in|error|does not|isvalid: false",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def dump(foreign_command: Callable[[str], tuple[str, ...]]) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        done = subprocess.run(
            (*foreign_command("dumplog"), *arguments),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert COMPLAINT.search(done.stdout + done.stderr) is None, done.stdout[-4000:]
        return done.stdout

    return run


@pytest.fixture(scope="module")
def stopped(broker: BrokerProcess | None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a broker that was filled with every kind of batch, then stopped."""
    if broker is None:
        pytest.skip("the data folder of a foreign broker is not ours to read")
    process = BrokerProcess(tmp_path_factory.mktemp("dump"))
    process.start()
    try:
        fill(process.bootstrap)
        process.stop()
    finally:
        process.kill()
    return process.data


def fill(bootstrap: str) -> None:
    configs = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "4096"}
    topics.create(bootstrap, "plain", 1, configs)
    topics.create(bootstrap, "stamped", 1, {**configs, "message.timestamp.type": "LogAppendTime"})
    client = Confluent(bootstrap)
    try:
        for topic in ("plain", "stamped"):
            for compression in COMPRESSIONS:
                for _ in range(20):
                    client.produce(topic, varied(), compression=compression)
    finally:
        client.close()


def varied() -> list[Record]:
    at_ms = now_ms()
    noise = random.Random(at_ms).randbytes(2048)
    plain = [Record(b"k%d" % i, noise, (("h", None),), at_ms + i) for i in range(20)]
    return [*plain, Record(None, None, (), at_ms), Record(b"tombstone", None, (), at_ms)]


def files(folder: Path, suffix: str) -> list[Path]:
    found = sorted(path for path in folder.rglob(f"*{suffix}") if path.stat().st_size)
    return [path for path in found if re.fullmatch(r"\d{20}", path.stem)]


def test_every_segment_is_read_to_its_last_record(stopped: Path, dump: Callable[..., str]) -> None:
    logs = files(stopped, ".log")
    assert len(logs) >= 4, "the topics were to roll several segments"
    found = dump("--deep-iteration", "--files", ",".join(map(str, logs)))
    expected = 2 * len(COMPRESSIONS) * 20 * len(varied())
    assert len(re.findall(r"^\| offset: ", found, re.MULTILINE)) >= expected
    assert set(re.findall(r"isvalid: (\w+)", found)) == {"true"}
    assert set(re.findall(r"compresscodec: (\w+)", found)) >= set(COMPRESSIONS)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_indexes_agree_with_the_segments(
    suffix: str, stopped: Path, dump: Callable[..., str]
) -> None:
    indexes = files(stopped, suffix)
    assert indexes
    names = ",".join(map(str, indexes))
    dump("--verify-index-only", "--files", names)
    found = dump("--index-sanity-check", "--files", names)
    assert found.count("passed sanity check") == len(indexes)


def test_segments_in_use_are_read_too(
    data_folder: Path,
    bootstrap: str,
    new_topic: NewTopic,
    dump: Callable[..., str],
) -> None:
    topic = new_topic()
    values: list[bytes | None] = [b"a marker in the log %d" % i for i in range(100)]
    with Connection(bootstrap) as connection:
        assert produce(connection, topic, batches.build(values)).error_code == NONE

    def holder() -> Path | None:
        logs = files(data_folder, ".log")
        return next((path for path in logs if b"a marker in the log" in path.read_bytes()), None)

    log = eventually(holder, "the batch is in a segment")
    found = dump("--deep-iteration", "--files", str(log))
    assert len(re.findall(r"^\| offset: ", found, re.MULTILINE)) == 100
