"""What is pickled for executors arrives, or says what is missing; no Spark is started here."""

import pickle
import subprocess
import zipfile
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructField, StructType

from dmq.spark.datasource import DmqDataSource
from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.packing import pack
from tests.spark.cluster.bare import bare_python

VALUES = StructType([StructField("value", StringType())])
SOURCE = {"kafka.bootstrap.servers": "nobody:9092", "subscribe": "orders"}
SINK = {"kafka.bootstrap.servers": "nobody:9092", "topic": "orders"}
UNPICKLE = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))._options.settings)"


def shipped(kind: str) -> object:
    """What Spark sends to executors."""
    source, sink = DmqDataSource(SOURCE), DmqDataSource(SINK)
    made = {
        "read": lambda: source.reader(source.schema()),
        "readStream": lambda: source.streamReader(source.schema()),
        "write": lambda: sink.writer(VALUES, False),
        "writeStream": lambda: sink.streamWriter(VALUES, False),
    }
    return made[kind]()


def unpickled(
    python: Path, folder: Path, kind: str, path: str = ""
) -> subprocess.CompletedProcess[str]:
    file = folder / f"{kind}.pickle"
    file.write_bytes(cloudpickle.dumps(shipped(kind)))
    env = {"PYTHONPATH": path} if path else {}
    command = [str(python), "-c", UNPICKLE, str(file)]
    return subprocess.run(command, env=env, text=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("kind", ["read", "readStream", "write", "writeStream"])
def test_readers_and_writers_arrive_as_they_were(kind: str) -> None:
    sent = shipped(kind)
    arrived = pickle.loads(cloudpickle.dumps(sent))
    assert type(arrived) is type(sent)
    assert vars(arrived) == vars(sent)


def test_a_python_without_dmq_says_how_to_get_it(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "bare")
    for kind in ("read", "writeStream"):
        ended = unpickled(python, tmp_path, kind)
        assert ended.returncode != 0
        assert f"({python} on " in ended.stderr
        assert "has no module 'dmq'; install it there" in ended.stderr
        assert "`dmq pipeline package dmq.zip`" in ended.stderr


def test_a_package_is_all_that_such_a_python_needs(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "bare")
    count = pack(tmp_path / "dmq.zip")
    with zipfile.ZipFile(tmp_path / "dmq.zip") as packed:
        assert len(packed.namelist()) == count
    for kind in ("readStream", "write"):
        ended = unpickled(python, tmp_path, kind, str(tmp_path / "dmq.zip"))
        assert ended.returncode == 0, ended.stderr
        assert "nobody" in ended.stdout


def test_a_package_without_its_libraries_says_which_is_missing(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "bare", without="cramjam")
    pack(tmp_path / "dmq.zip")
    ended = unpickled(python, tmp_path, "read", str(tmp_path / "dmq.zip"))
    assert ended.returncode != 0
    assert "has no module 'cramjam'" in ended.stderr
    assert "install it on every host" in ended.stderr


def test_the_same_packages_make_the_same_file(tmp_path: Path) -> None:
    pack(tmp_path / "one.zip")
    pack(tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


@pytest.mark.parametrize("name", ["dmq.tar", "nowhere/dmq.zip"])
def test_a_package_that_spark_would_not_take_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError):
        pack(tmp_path / name)
