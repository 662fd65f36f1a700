"""`dmq txn` with real transactional producers, against ours or the broker of DMQ_TEST_BOOTSTRAP."""

import io
import json
import sys
import uuid
from typing import Any

import pytest
from compat.eventually import eventually
from confluent_kafka import KafkaException, Producer

from dmq.cli.app import run
from dmq.cli.exits import Exit

pytestmark = pytest.mark.compat


class Cli:
    """Runs a command line in this process."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = bootstrap
        self._capsys = capsys

    def __call__(self, *args: str, code: int = Exit.OK) -> str:
        out = io.TextIOWrapper(io.BytesIO(), write_through=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DMQ_BOOTSTRAP_SERVERS", self.bootstrap)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stdin", io.StringIO())
            assert run(list(args)) == code, (args, self._capsys.readouterr().err)
        printed = out.buffer
        assert isinstance(printed, io.BytesIO)
        return printed.getvalue().decode()

    def json(self, *args: str, code: int = Exit.OK) -> Any:
        return json.loads(self(*args, "--json", code=code))

    def error(self, *args: str, code: int) -> str:
        """What the command says when it fails."""
        self._capsys.readouterr()
        self(*args, code=code)
        return self._capsys.readouterr().err


@pytest.fixture
def cli(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(bootstrap, capsys)


@pytest.fixture
def topic(cli: Cli) -> str:
    name = f"txn-{uuid.uuid4().hex[:12]}"
    cli("topic", "create", name, "-p", "1")
    return name


def begun(cli: Cli, topic: str) -> tuple[str, Producer]:
    """A producer in the middle of a transaction with one record that the broker has."""
    name = f"id-{uuid.uuid4().hex[:12]}"
    producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"never read")
    assert producer.flush(30) == 0
    return name, producer


def committed_values(cli: Cli, topic: str) -> list[str]:
    return cli("consume", topic, "--timeout", "20").splitlines()


def test_a_transaction_is_seen_and_aborted_by_its_id(cli: Cli, topic: str) -> None:
    name, producer = begun(cli, topic)
    [told] = cli.json("txn", "describe", name)["transactions"]
    assert told["state"] == "Ongoing"
    assert told["partitions"] == [{"topic": topic, "partition": 0, "start_offset": 0}]
    assert told["age_ms"] >= 0
    listed = cli.json(
        "txn", "list", "--state", "ongoing", "--producer-id", str(told["producer_id"])
    )
    assert [each["transactional_id"] for each in listed["transactions"]] == [name]
    old = cli.json("txn", "list", "--longer-than", "1d")["transactions"]
    assert name not in {each["transactional_id"] for each in old}
    assert name in cli("txn", "list", "--longer-than", "0s")

    place = ("txn", "abort", "--partition", f"{topic}:0", "--start-offset", "0", "--yes")
    assert f"`dmq txn abort {name}`" in cli.error(*place, code=Exit.FAILURE)
    assert "nobody to ask" in cli.error("txn", "abort", name, code=Exit.USAGE)
    done = cli.json("txn", "abort", name, "--yes")
    assert done == {"transactional_id": name, "aborted": True, "was": "Ongoing"}
    [after] = cli.json("txn", "describe", name)["transactions"]
    assert after["state"] in ("Empty", "CompleteAbort")
    assert after["partitions"] == []
    assert (after["started"], after["age_ms"]) == (None, None)
    assert name not in cli("txn", "list", "--longer-than", "0s")
    assert after["timeout_ms"] == told["timeout_ms"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    cli("produce", topic, "plain")
    assert committed_values(cli, topic) == ["plain"]
    assert not cli.json("txn", "abort", name, "--yes")["aborted"]


def test_a_marker_frees_a_partition(cli: Cli, topic: str) -> None:
    name, _producer = begun(cli, topic)
    cli("produce", topic, "behind it")
    place = ("txn", "abort", "--partition", f"{topic}:0", "--yes")
    assert "offset 0 (producer" in cli.error(*place, "--start-offset", "5", code=Exit.NOT_FOUND)
    [told] = cli.json("txn", "describe", name)["transactions"]
    # Its coordinator lives, so it does not truly hang: to the partition that makes no difference.
    done = cli.json(*place, "--producer-id", str(told["producer_id"]), "--force")
    assert (done["start_offset"], done["aborted"]) == (0, True)
    eventually(
        lambda: committed_values(cli, topic) == ["behind it"], "the last stable offset moves on"
    )
    assert "None is open" in cli.error(*place, "--start-offset", "0", code=Exit.NOT_FOUND)
    cli("txn", "abort", name, "--yes")


def test_what_is_not_there(cli: Cli, topic: str) -> None:
    assert "There is no transactional id" in cli.error(
        "txn", "describe", "no-such-id", code=Exit.NOT_FOUND
    )
    cli("txn", "abort", "no-such-id", "--yes", code=Exit.NOT_FOUND)
    cli("txn", "abort", "--partition", f"{topic}:9", "--producer-id", "1", code=Exit.NOT_FOUND)
    cli("txn", "abort", "--partition", "gone:0", "--producer-id", "1", code=Exit.NOT_FOUND)
    cli("txn", "abort", "--partition", f"{topic}:0", code=Exit.USAGE)
