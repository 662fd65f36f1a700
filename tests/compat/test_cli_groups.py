"""`dmq group` with real consumers of both protocols: ours, or any broker DMQ_TEST_BOOTSTRAP names.

Everything about one group is asked while its members are there and once they have gone, so that the
members need to join only once per protocol.
"""

import io
import json
import sys
import time
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from compat.eventually import eventually
from confluent_kafka import Consumer, Producer, TopicPartition

from dmq.cli.app import run
from dmq.cli.exits import Exit
from dmq.cli.group_facts import _by_librdkafka
from dmq.cli.session import Session

pytestmark = pytest.mark.compat

FIRST_MS = 1_700_000_000_000
PER_PARTITION = 10


class Cli:
    """Runs a command line in this process."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = bootstrap
        self._capsys = capsys

    def __call__(self, *args: str, code: int = Exit.OK) -> str:
        out = io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DMQ_BOOTSTRAP_SERVERS", self.bootstrap)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stdin", io.StringIO())
            assert run(list(args)) == code, (args, self._capsys.readouterr().err)
        return out.getvalue()

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
    """Two partitions with ten records each, one a minute."""
    name = f"groups-{uuid.uuid4().hex[:12]}"
    cli("topic", "create", name, "-p", "2", "-c", "retention.ms=-1")
    producer = Producer({"bootstrap.servers": cli.bootstrap})
    for number in range(PER_PARTITION):
        for partition in (0, 1):
            moment = FIRST_MS + 60_000 * number
            producer.produce(name, b"x", partition=partition, timestamp=moment)
    assert producer.flush(30) == 0
    return name


@pytest.fixture(params=["classic", "consumer"])
def member(request: pytest.FixtureRequest, cli: Cli, topic: str) -> Iterator[tuple[str, Consumer]]:
    """A group's name and its only member, which has both partitions and committed 4 in the first."""
    group = f"g-{uuid.uuid4().hex[:12]}"
    consumer = Consumer(
        {
            "bootstrap.servers": cli.bootstrap,
            "group.id": group,
            "group.protocol": request.param,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while len(consumer.assignment()) < 2:
            consumer.poll(0.1)
            assert time.monotonic() < deadline, "the member got no partitions"
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        yield group, consumer
    finally:
        consumer.close()


def offsets(cli: Cli, group: str) -> dict[int, int]:
    [told] = cli.json("group", "describe", group)["groups"]
    return {each["partition"]: each["committed_offset"] for each in told["partitions"]}


def watched(cli: Cli, group: str, looks: int) -> list[str]:
    """What `describe --watch` prints until Ctrl-C comes in the pause after so many looks."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == looks:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmq.cli.group.time", SimpleNamespace(sleep=pause))
        command = ("group", "describe", group, "--watch", "--interval", "0.5", "--json")
        text = cli(*command, code=Exit.INTERRUPTED)
    assert pauses == [0.5] * looks
    return text.splitlines()


def test_a_group_from_its_members_to_its_deletion(
    cli: Cli, topic: str, member: tuple[str, Consumer], request: pytest.FixtureRequest
) -> None:
    group, consumer = member
    type_ = request.node.callspec.params["member"].capitalize()

    def settled() -> bool:
        consumer.poll(0)
        [told] = cli.json("group", "describe", group)["groups"]
        return bool(told["state"] == "Stable" and told["members"][0]["partitions"])

    eventually(settled, "the group is stable", within_s=60)
    [told] = cli.json("group", "describe", group)["groups"]
    assert (told["state"], told["type"], told["lag"]) == ("Stable", type_, 6)
    [reader] = told["members"]
    assert (reader["client_id"], len(reader["partitions"])) == ("reader", 2)
    assert reader["host"]
    common = {"topic": topic, "log_start_offset": 0, "log_end_offset": 10, "metadata": None}
    common |= {"member": reader["member"]}
    first = {"partition": 0, "committed_offset": 4, "lag": 6}
    second = {"partition": 1, "committed_offset": None, "lag": None}
    assert told["partitions"][0] == common | first
    assert told["partitions"][1] == common | second
    text = cli("group", "describe", group)
    assert "total lag 6" in text
    assert f"{topic}:0-1" in text

    listed = cli.json("group", "list", "--state", "stable", "--type", type_)["groups"]
    [mine] = [each for each in listed if each["group"] == group]
    assert (mine["type"], mine["protocol"]) == (type_, "consumer")
    others = cli.json("group", "list", "--state", "empty")["groups"]
    assert group not in {each["group"] for each in others}

    reset = ("group", "reset-offsets", group, "--topic", topic, "--to-earliest")
    plan = cli.json(*reset)
    assert not plan["executed"]
    assert [(p["old_offset"], p["new_offset"]) for p in plan["partitions"]] == [(4, 0), (None, 0)]
    said = cli.error(*reset, "--execute", code=Exit.FAILURE)
    assert "has 1 member (reader)" in said
    assert "Stop the members" in said
    assert "Stop them" in cli.error("group", "delete", group, "--yes", code=Exit.FAILURE)
    forget = ("group", "delete-offsets", group, "--topic", f"{topic}:0", "--yes")
    assert "subscribed" in cli.error(*forget, code=Exit.FAILURE)
    assert offsets(cli, group)[0] == 4

    consumer.close()

    def left() -> bool:
        return not cli.json("group", "describe", group)["groups"][0]["members"]

    eventually(left, "the member has left", within_s=60)
    cli(*reset, "--execute")
    assert offsets(cli, group) == {0: 0, 1: 0}
    assert cli.json(*forget)["offsets"] == [
        {"topic": topic, "partition": 0, "error": None, "message": None}
    ]
    assert offsets(cli, group) == {1: 0}
    assert "nobody to ask" in cli.error("group", "delete", group, code=Exit.USAGE)
    assert cli.json("group", "delete", group, "--yes")["done"][0]["outcome"] == "deleted"
    assert "There is no group" in cli.error("group", "describe", group, code=Exit.NOT_FOUND)
    cli("group", "delete", group, "--yes", code=Exit.NOT_FOUND)
    cli("group", "delete", group, "--yes", "--if-exists")


def test_offsets_go_where_they_are_sent(cli: Cli, topic: str) -> None:
    group = f"g-{uuid.uuid4().hex[:12]}"
    third = "2023-11-14T22:15:20Z"  # FIRST_MS and two minutes.

    def reset(*aim: str, which: tuple[str, ...] = ("--all-topics",)) -> dict[int, int]:
        told = cli.json("group", "reset-offsets", group, *which, *aim, "--execute")
        assert told["executed"]
        assert {p["error"] for p in told["partitions"]} == {None}
        return offsets(cli, group)

    cli("group", "reset-offsets", group, "--all-topics", "--to-latest", code=Exit.NOT_FOUND)
    assert reset("--to-latest", which=("--topic", f"{topic}:1")) == {1: 10}
    assert reset("--to-current", which=("--topic", topic)) == {0: 10, 1: 10}
    assert reset("--to-datetime", third) == {0: 2, 1: 2}
    assert reset("--shift-by", "-1") == {0: 1, 1: 1}
    assert reset("--shift-by", "5", which=("--topic", f"{topic}:0")) == {0: 6, 1: 1}
    assert reset("--to-offset", "99") == {0: 10, 1: 10}
    assert reset("--by-duration", "P9999D") == {0: 0, 1: 0}
    assert reset("--by-duration", "5m") == {0: 10, 1: 10}
    assert reset("--to-earliest") == {0: 0, 1: 0}
    for wrong, code in (
        (("--topic", f"{topic}:2", "--to-latest"), Exit.NOT_FOUND),
        (("--topic", "no-such-topic", "--to-latest"), Exit.NOT_FOUND),
        (("--topic", topic), Exit.USAGE),
        (("--to-latest",), Exit.USAGE),
        (("--topic", topic, "--to-latest", "--to-earliest"), Exit.USAGE),
        (("--topic", topic, "--to-datetime", "soon"), Exit.USAGE),
    ):
        cli("group", "reset-offsets", group, *wrong, "--execute", code=code)
    assert offsets(cli, group) == {0: 0, 1: 0}
    looks = [json.loads(line) for line in watched(cli, group, looks=3)]
    assert [look["groups"][0]["lag"] for look in looks] == [20, 20, 20]
    [mine] = [e for e in cli.json("group", "list")["groups"] if e["group"] == group]
    assert (mine["state"], mine["protocol"]) == ("Empty", "")
    # The way that is taken where our own requests can't go, over TLS.
    listed, problems = _by_librdkafka(Session(cli.bootstrap, {}))
    assert problems == []
    [same] = [each for each in listed if each.group == group]
    assert same.as_json() == mine | {"coordinator": None}
    cli("group", "delete", group, "--yes")
