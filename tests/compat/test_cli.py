"""The `dmq` command as people run it, against a broker: ours, or any that DMQ_TEST_BOOTSTRAP names.

`dmq(…)` is a process of its own; `dmq.inside(…)` runs the same command line in this process, for
tables of cases in which half a second of imports each would teach nothing.
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from compat.eventually import eventually

from dmq.cli import produce
from dmq.cli.app import run
from dmq.cli.interrupts import take_over

pytestmark = pytest.mark.compat

OK, FAILURE, USAGE, NOT_REACHABLE, NOT_FOUND, PARTLY, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


KEEP = ("-c", "retention.ms=-1")
"""For topics with records of long ago: retention would take them in the middle of a test."""


class Dmq:
    """Runs the command with the broker's address in the environment."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("DMQ_")} | {
            "DMQ_BOOTSTRAP_SERVERS": bootstrap,
            "NO_COLOR": "1",
        }

    def __call__(
        self, *args: str, stdin: bytes = b"", code: int = OK
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [sys.executable, "-m", "dmq", *args],
            input=stdin,
            capture_output=True,
            env=self.environment,
            timeout=90,
            check=False,
        )
        assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
        assert b"Traceback" not in done.stderr
        return done

    def inside(self, *args: str, stdin: bytes = b"", code: int = OK) -> bytes:
        """The command in this process; returns what it printed."""
        out = io.TextIOWrapper(io.BytesIO(), write_through=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DMQ_BOOTSTRAP_SERVERS", self.bootstrap)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            patch.setattr(sys, "stdout", out)
            assert run(list(args)) == code, args
            printed = out.buffer
            assert isinstance(printed, io.BytesIO)
            return printed.getvalue()

    def json(self, *args: str, stdin: bytes = b"", code: int = OK) -> Any:
        return json.loads(self.inside(*args, "--json", stdin=stdin, code=code))

    def records(self, *args: str) -> list[Any]:
        """What `consume --json` prints."""
        lines = self.inside("consume", *args, "--json").splitlines()
        return [json.loads(line) for line in lines]

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "dmq", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )


@pytest.fixture(scope="module")
def dmq(bootstrap: str) -> Dmq:
    return Dmq(bootstrap)


def new_name() -> str:
    return f"cli-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic() -> str:
    return new_name()


def test_a_topic_from_creation_to_deletion(dmq: Dmq, topic: str) -> None:
    made = dmq.json("topic", "create", topic, "-p", "3", "-c", "retention.ms=3600000")
    assert made == {"done": [{"topic": topic, "outcome": "created"}], "failed": []}
    dmq("topic", "create", topic, code=FAILURE)
    again = dmq.json("topic", "create", topic, "--if-not-exists")
    assert again["done"][0]["outcome"] == "exists"

    listed = {t["topic"]: t for t in dmq.json("topic", "list")["topics"]}
    assert listed[topic] == {
        "topic": topic,
        "partitions": 3,
        "replication_factor": 1,
        "leaderless": 0,
        "under_replicated": 0,
    }

    dmq("topic", "alter", topic, "-c", "max.message.bytes=2000000", "-d", "retention.ms", "-p", "5")
    [described] = dmq.json("topic", "describe", topic)["topics"]
    assert len(described["partitions"]) == 5
    assert described["configs"]["max.message.bytes"] == {
        "value": "2000000",
        "source": "topic",
        "differs": True,
    }
    assert described["configs"]["retention.ms"]["source"] != "topic"
    assert described["record_count_max"] == 0

    dmq("topic", "delete", topic, code=USAGE)  # Nobody to ask.
    dmq("topic", "delete", topic, "--yes")
    dmq("topic", "describe", topic, code=NOT_FOUND)
    dmq("topic", "delete", topic, "--yes", code=NOT_FOUND)
    dmq("topic", "delete", topic, "--yes", "--if-exists")


def test_some_done_and_some_failed_is_told(dmq: Dmq, topic: str) -> None:
    dmq.inside("topic", "create", topic)
    done = dmq.json("topic", "create", topic, f"{topic}-2", code=PARTLY)
    assert [entry["topic"] for entry in done["done"]] == [f"{topic}-2"]
    assert [entry["topic"] for entry in done["failed"]] == [topic]
    assert done["failed"][0]["error"] == "TOPIC_ALREADY_EXISTS"
    dmq("topic", "describe", topic, "missing-topic", code=PARTLY)


def test_a_dry_run_changes_nothing(dmq: Dmq, topic: str) -> None:
    dmq("topic", "create", topic, "--dry-run")
    dmq("topic", "describe", topic, code=NOT_FOUND)


@pytest.mark.parametrize(
    "args",
    [["-c", "no.such.setting=1"], ["-c", "retention.ms=soon"], ["-r", "99"]],
    ids=" ".join,
)
def test_what_the_broker_refuses_is_told_in_a_sentence(
    dmq: Dmq, topic: str, args: list[str]
) -> None:
    done = dmq("topic", "create", topic, *args, code=FAILURE)
    assert done.stderr.startswith(b"error: ")
    assert done.stderr.count(b"\n") == 1


def test_tables_are_plain_in_a_pipe(dmq: Dmq, topic: str) -> None:
    dmq.inside("topic", "create", topic, "-p", "2")
    dmq("produce", topic, "one", "two", "--partition", "1")
    lines = dmq("topic", "describe", topic).stdout.decode().splitlines()
    assert lines[0] == topic
    assert lines[2].split() == [
        "PARTITION",
        "LEADER",
        "REPLICAS",
        "IN",
        "SYNC",
        "START",
        "END",
        "SIZE",
    ]
    assert lines[4].split()[0] == "1"
    assert lines[4].split()[4:6] == ["0", "2"]


def test_sizes_are_known(dmq: Dmq, topic: str) -> None:
    dmq.inside("topic", "create", topic)
    dmq("produce", topic, "x" * 5000)
    [described] = dmq.json("topic", "describe", topic)["topics"]
    assert described["size_bytes"] > 5000


def test_values_from_arguments_lines_and_files(dmq: Dmq, topic: str, tmp_path: Path) -> None:
    dmq.inside("topic", "create", topic)
    dmq("produce", topic, "one", "zwei ü")
    dmq("produce", topic, stdin=b"three\n\nfive\n")
    path = tmp_path / "records"
    path.write_bytes(b"\x00\xff\n")
    dmq("produce", topic, "--file", str(path), "--whole")
    done = dmq("consume", topic)
    assert done.stdout == "one\nzwei ü\nthree\n\nfive\n".encode() + b"\x00\xff\n\n"
    assert b"6 records" in done.stderr
    assert dmq("consume", topic, "--quiet").stderr == b""


def test_keys_headers_nulls_partitions_and_timestamps(dmq: Dmq, topic: str) -> None:
    dmq.inside("topic", "create", topic, "-p", "2", *KEEP)
    dmq(
        *("produce", topic, "-K", r"\t", "-H", "a=1", "-H", "a=2", "--null", "-"),
        *("--partition", "1", "--timestamp", "@1700000000000"),
        stdin=b"k\tv\nk2\t-\n-\tv3\n",
    )
    dmq("produce", topic, "--key", "gone", "--tombstone", "--partition", "0")
    first, second, third = dmq.records(topic, "--partition", "1")
    headers = [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]
    assert first == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": "create",
        "key": "k",
        "value": "v",
        "headers": headers,
    }
    assert (second["key"], second["value"]) == ("k2", None)
    assert (third["key"], third["value"]) == (None, "v3")
    [tombstone] = dmq.records(topic, "--partition", "0")
    assert (tombstone["key"], tombstone["value"], tombstone["headers"]) == ("gone", None, [])


def test_compressions(dmq: Dmq, topic: str) -> None:
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    dmq.inside("topic", "create", topic, "-p", "5")
    value = "compress me " * 200
    for partition, codec in enumerate(codecs):
        line = json.dumps({"key": codec, "value": value, "partition": partition}).encode()
        assert dmq.json("produce", topic, "-z", codec, stdin=line)["delivered"] == 1
    found = {record["key"]: record["value"] for record in dmq.records(topic)}
    assert found == dict.fromkeys(codecs, value)


def test_acks(dmq: Dmq, topic: str) -> None:
    dmq.inside("topic", "create", topic)
    for count, acks in enumerate(["0", "1", "all"], 1):
        report = dmq.json("produce", topic, "--acks", acks, stdin=b'{"value": "v"}')
        assert report["delivered"] == 1
        [partition] = report["partitions"]
        assert partition["first_offset"] == (None if acks == "0" else count - 1)
        eventually(lambda n=count: len(dmq.records(topic)) == n, "the record can be read")  # type: ignore[misc]


def test_json_copies_a_topic_byte_for_byte(dmq: Dmq, topic: str) -> None:
    copy = f"{topic}-copy"
    dmq.inside("topic", "create", topic, "-p", "3", *KEEP)
    dmq.inside("topic", "create", copy, "-p", "3", *KEEP)
    lines = [
        {"key": f"k{i}", "value_base64": "/wD+", "headers": {"n": str(i)}, "timestamp": 1000 + i}
        for i in range(20)
    ]
    dmq("produce", topic, "--json", stdin="\n".join(map(json.dumps, lines)).encode())
    taken = dmq("consume", topic, "--json").stdout
    report = dmq.json("produce", copy, stdin=taken)
    assert (report["delivered"], report["failed"]) == (20, 0)
    originals, copies = dmq.records(topic), dmq.records(copy)
    for record in originals + copies:
        del record["topic"]

    def place(record: Any) -> tuple[int, int]:
        return record["partition"], record["offset"]

    assert sorted(originals, key=place) == sorted(copies, key=place)


def test_bad_records_fail_and_the_others_go(dmq: Dmq, topic: str) -> None:
    dmq.inside("topic", "create", topic)
    done = dmq("produce", topic, "-K", ":", stdin=b"a:1\nbad\nb:2\n", code=PARTLY)
    assert b"record 2" in done.stderr
    assert b"2 records delivered, 1 failed" in done.stderr
    report = dmq.json("produce", topic, "--partition", "7", stdin=b'{"value": "v"}', code=NOT_FOUND)
    assert (report["delivered"], report["failed"]) == (0, 1)


def test_a_record_that_is_too_large_fails(dmq: Dmq, topic: str) -> None:
    dmq("topic", "create", topic, "-c", "max.message.bytes=1000")
    done = dmq("produce", topic, "x" * 5000, code=FAILURE)
    assert b"max.message.bytes" in done.stderr


def test_how_large_a_record_may_be_is_for_the_broker_to_say(dmq: Dmq, topic: str) -> None:
    # librdkafka by itself stops at a million bytes.
    dmq.inside("topic", "create", topic, "-c", "max.message.bytes=4000000")
    value = os.urandom(1_500_000) * 2
    dmq.inside("produce", topic, "--whole", stdin=value)
    assert dmq.inside("consume", topic, "--format", "{value}") == value


@pytest.fixture(scope="module")
def ten(dmq: Dmq) -> str:
    """A topic with values 0 to 9, one second apart."""
    topic = new_name()
    dmq.inside("topic", "create", topic, *KEEP)
    lines = [
        json.dumps({"value": str(i), "timestamp": 1_700_000_000_000 + i * 1000}) for i in range(10)
    ]
    dmq.inside("produce", topic, "--json", stdin="\n".join(lines).encode())
    return topic


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "0123456789"),
        (["--from", "beginning", "--to", "end"], "0123456789"),
        (["--from", "7"], "789"),
        (["--from", "10"], ""),
        (["--from", "2", "--to", "5"], "234"),
        (["--from", "-2"], "89"),
        (["--from", "-99"], "0123456789"),
        (["--to", "-8"], "01"),
        (["--from", "@1700000003000"], "3456789"),
        (["--from", "@1700000002001", "--to", "@1700000005000"], "34"),
        (["--from", "2023-11-14T22:13:27Z"], "789"),
        (["--from", "1m"], ""),
        (["--to", "1m"], "0123456789"),
        (["--from", "5", "--to", "5"], ""),
        (["--count", "3"], "012"),
        (["--from", "8", "--count", "99"], "89"),
        (["--follow", "--from", "4", "--count", "2"], "45"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_from_and_to(dmq: Dmq, ten: str, options: list[str], expected: str) -> None:
    assert dmq.inside("consume", ten, *options).decode().split() == list(expected)


def test_places_that_are_not_there(dmq: Dmq, ten: str) -> None:
    done = dmq("consume", ten, "--from", "11", code=NOT_FOUND)
    assert b"it has 0 to 10" in done.stderr
    dmq("consume", ten, "--partition", "1", code=NOT_FOUND)
    dmq("consume", f"{ten}-missing", code=NOT_FOUND)


def test_quiet_seconds_end_a_wait(dmq: Dmq, ten: str) -> None:
    assert dmq("consume", ten, "--follow", "--timeout", "0.5").stdout == b""
    done = dmq("consume", ten, "--follow", "-n", "1", "--timeout", "0.5", code=FAILURE)
    assert b"0 of 1" in done.stderr


def test_columns_and_templates(dmq: Dmq, topic: str) -> None:
    dmq.inside("topic", "create", topic, *KEEP)
    dmq("produce", topic, "v", "-k", "k", "-H", "h=1", "--timestamp", "@1700000000000")
    line = dmq("consume", topic, "--keys", "--headers", "--offsets", "--times").stdout
    assert line == b"0\t0\t2023-11-14T22:13:20.000Z\th=1\tk\tv\n"
    assert dmq("consume", topic, "--format", r"{offset}:{key}={value};{header.h}\n").stdout == (
        b"0:k=v;1\n"
    )
    assert dmq("consume", topic, "--base64").stdout == b"dg==\n"


def test_several_topics_and_many_partitions(dmq: Dmq, topic: str) -> None:
    names = [f"{topic}-{i}" for i in range(2)]
    dmq("topic", "create", *names, "-p", "8")
    values = [str(i) for i in range(1000)]
    for name in names:
        report = dmq.json(
            "produce",
            name,
            stdin="\n".join(json.dumps({"key": v, "value": v}) for v in values).encode(),
        )
        assert report["delivered"] == 1000
        assert len(report["partitions"]) == 8
    found = dmq("consume", *names).stdout.decode().split()
    assert sorted(found) == sorted(values * 2)


def test_following_shows_new_records_and_ctrl_c_ends_it(dmq: Dmq, topic: str) -> None:
    dmq.inside("topic", "create", topic)
    with dmq.start("consume", topic, "--follow", "--from", "beginning") as follower:
        try:
            dmq("produce", topic, "first")
            assert follower.stdout is not None
            assert follower.stdout.readline() == b"first\n"
            dmq("produce", topic, "second")
            assert follower.stdout.readline() == b"second\n"
            follower.send_signal(signal.SIGINT)
            out, err = follower.communicate(timeout=30)
        finally:
            follower.kill()
    assert follower.returncode == INTERRUPTED
    assert out == b""
    assert b"Traceback" not in err
    assert b"2 records" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_producer_says_what_arrived(dmq: Dmq, topic: str, number: int) -> None:
    dmq.inside("topic", "create", topic)
    with dmq.start("produce", topic) as producer:
        try:
            assert producer.stdin is not None
            producer.stdin.write(b"one\ntwo\n")
            producer.stdin.flush()
            eventually(lambda: len(dmq.records(topic)) == 2, "both records arrived")
            producer.send_signal(number)
            _, err = producer.communicate(timeout=30)
        finally:
            producer.kill()
    assert producer.returncode == INTERRUPTED
    assert b"2 records delivered" in err
    assert b"Traceback" not in err


def test_ctrl_c_while_librdkafka_calls_back(
    dmq: Dmq, topic: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Raised in a delivery report it would be lost in C code and come out as a SystemError.
    delivered = produce.Run._delivered

    def interrupted(self: produce.Run, error: Any, message: Any) -> None:
        if self._tally.delivered == 0:
            signal.raise_signal(signal.SIGINT)
        delivered(self, error, message)

    monkeypatch.setattr(produce.Run, "_delivered", interrupted)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    take_over()
    try:
        dmq.inside("topic", "create", topic)
        dmq.inside("produce", topic, stdin=b"record\n" * 5000, code=INTERRUPTED)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    told = re.search(r"([\d,]+) records delivered", capfd.readouterr().err)
    assert told is not None
    assert len(dmq.records(topic)) == int(told[1].replace(",", ""))


def test_topics_are_completed(dmq: Dmq, topic: str) -> None:
    dmq.inside("topic", "create", topic)
    line = {"COMP_WORDS": f"dmq consume {topic[:-1]}", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "dmq"],
        env=dmq.environment | line | {"_DMQ_COMPLETE": "complete_bash"},
        capture_output=True,
        check=True,
    )
    assert topic in done.stdout.decode().split()
    assert done.stderr == b""


def test_a_reader_that_leaves_is_no_failure(dmq: Dmq, topic: str) -> None:
    dmq.inside("topic", "create", topic)
    dmq("produce", topic, stdin=b"x" * 70 + b"\n" + b"y\n" * 50_000)
    with dmq.start("consume", topic) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"x" * 70 + b"\n"
        reader.stdout.close()
        assert reader.stderr is not None
        err = reader.stderr.read()
        assert reader.wait(timeout=60) == OK
    assert b"Traceback" not in err
    assert b"Broken" not in err


def test_the_doctor_makes_a_round_trip_and_cleans_up(dmq: Dmq) -> None:
    report = dmq.json("doctor", "--remote")
    assert report["ok"]
    assert [(c["check"], c["verdict"]) for c in report["checks"]] == [
        ("broker", "ok"),
        ("API versions", "ok"),
        ("round trip", "ok"),
    ]

    def cleaned_up() -> bool:
        names = [t["topic"] for t in dmq.json("topic", "list")["topics"]]
        return not any(name.startswith("dmq-doctor-") for name in names)

    eventually(cleaned_up, "the doctor's topic is gone")


def test_client_settings_reach_librdkafka(dmq: Dmq, tmp_path: Path) -> None:
    dmq("topic", "list", "--client-config", "no.such.property=1", code=USAGE)
    path = tmp_path / "client.properties"
    path.write_text(f"# where\nbootstrap.servers={dmq.bootstrap}\nclient.id=me\n")
    dmq = Dmq(dmq.bootstrap)
    dmq.environment |= {"DMQ_CLIENT_CONFIG": str(path), "DMQ_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    dmq("topic", "list")
    # Flags come after the file of the environment.
    dmq("topic", "list", "--client-config", "bootstrap.servers=127.0.0.1:1", code=NOT_REACHABLE)
