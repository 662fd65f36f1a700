"""`dmq cluster`, `dmq partition`, `dmq config set`: their requests, answered by a real broker.

Ours, or any that DMQ_TEST_BOOTSTRAP names: the requests are Kafka's. What they do to a cluster of
several brokers is tested in tests/cluster.
"""

import io
import json
import sys
import uuid
from typing import Any

import pytest

from dmq.cli.app import run
from dmq.cli.exits import Exit

pytestmark = pytest.mark.compat


class Cli:
    """Runs a command line in this process."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __call__(self, *args: str, code: int = Exit.OK) -> str:
        out = io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DMQ_BOOTSTRAP_SERVERS", self._bootstrap)
            patch.setattr(sys, "stdout", out)
            assert run(list(args)) == code, args
        return out.getvalue()

    def json(self, *args: str, code: int = Exit.OK) -> Any:
        return json.loads(self(*args, "--json", code=code))


@pytest.fixture(scope="module")
def cli(bootstrap: str) -> Cli:
    return Cli(bootstrap)


@pytest.fixture
def topic(cli: Cli) -> str:
    name = f"cluster-{uuid.uuid4().hex[:12]}"
    cli("topic", "create", name, "-p", "2", "-r", "1")
    return name


def test_the_status_of_a_cluster(cli: Cli, topic: str) -> None:
    told = cli.json("cluster", "status")
    assert told["cluster_id"]
    assert told["brokers"]
    first = told["brokers"][0]
    assert first["up"]
    assert first["replicas"] >= 1
    assert first["disk_total_bytes"] >= first["disk_free_bytes"] > 0
    assert told["partitions"] >= 2
    quorum = told["metadata"]
    assert quorum["leader"] in quorum["voters"]
    assert quorum["high_watermark"] > 0
    assert "healthy" in cli("cluster", "status", "--check")


def test_preferred_leaders_lead_already(cli: Cli, topic: str) -> None:
    told = cli.json("cluster", "elect", "--preferred", f"{topic}:0", f"{topic}:1")
    assert told == {"elections": []}
    unknown = cli.json("cluster", "elect", f"{topic}:7", code=Exit.NOT_FOUND)
    assert unknown["elections"][0]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_the_leader_that_it_has(cli: Cli, topic: str) -> None:
    [described] = cli.json("topic", "describe", topic)["topics"]
    leader = described["partitions"][0]["leader"]
    told = cli.json("cluster", "transfer-leader", f"{topic}:0", str(leader))
    assert (told["leader"], told["was"], told["replicas"]) == (leader, leader, [leader])


def test_there_is_nothing_to_recover(cli: Cli, topic: str) -> None:
    told = cli.json("partition", "recover", f"{topic}:0", "--yes")
    assert told["recovered"] is False
    cli("partition", "recover", f"{topic}:9", "--yes", code=Exit.NOT_FOUND)


def test_a_broker_with_the_only_replica_can_not_leave(cli: Cli, topic: str) -> None:
    nodes = [broker["broker"] for broker in cli.json("cluster", "status")["brokers"]]
    if len(nodes) == 1:
        cli("cluster", "decommission", str(nodes[0]), "--yes", code=Exit.FAILURE)
    cli("cluster", "decommission", "999", "--yes", code=Exit.NOT_FOUND)


def values(cli: Cli, *whose: str) -> dict[str, tuple[str | None, str]]:
    told = cli.json("config", "describe", *whose)["settings"]
    return {each["name"]: (each["value"], each["source"]) for each in told}


def test_settings_of_a_topic(cli: Cli, topic: str) -> None:
    whose = ("--topic", topic)
    cli("config", "set", "retention.ms=1000000", "max.message.bytes=2000000", *whose)
    assert values(cli, *whose)["retention.ms"] == ("1000000", "topic")
    cli("config", "unset", "retention.ms", *whose, "--dry-run")
    assert values(cli, *whose)["retention.ms"] == ("1000000", "topic")
    cli("config", "unset", "retention.ms", *whose)
    assert values(cli, *whose).get("retention.ms", ("", "default"))[1] != "topic"
    assert values(cli, *whose)["max.message.bytes"] == ("2000000", "topic")
    cli("config", "set", "no.such=1", *whose, code=Exit.FAILURE)
    cli("config", "describe", "--topic", f"{topic}-missing", code=Exit.NOT_FOUND)


def test_settings_of_brokers(cli: Cli) -> None:
    node = str(cli.json("cluster", "status")["brokers"][0]["broker"])
    cli("config", "set", "log.retention.ms=864000001", "--brokers")
    try:
        assert values(cli, "--brokers")["log.retention.ms"] == ("864000001", "cluster")
        cli("config", "set", "log.retention.ms=864000002", "--broker", node)
        assert values(cli, "--broker", node)["log.retention.ms"] == ("864000002", "broker")
        cli("config", "unset", "log.retention.ms", "--broker", node)
        assert values(cli, "--broker", node)["log.retention.ms"] == ("864000001", "cluster")
    finally:
        cli("config", "unset", "log.retention.ms", "--brokers")
    assert "log.retention.ms" not in values(cli, "--brokers")
    cli("config", "set", "log.retention.ms=1", "--broker", "999", code=Exit.NOT_FOUND)


def test_settings_of_a_group(cli: Cli, topic: str) -> None:
    whose = ("--group", f"{topic}-group")
    cli("config", "set", "consumer.heartbeat.interval.ms=6000", *whose)
    assert values(cli, *whose) == {"consumer.heartbeat.interval.ms": ("6000", "group")}
    cli("config", "unset", "consumer.heartbeat.interval.ms", *whose)
