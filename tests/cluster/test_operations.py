"""`dmq cluster` on three real brokers: watched, balanced, led otherwise, grown and shrunk.

The same commands pass on Apache Kafka; see tests/compat/test_cli_cluster.py for the requests.
"""

import io
import json
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from compat.eventually import eventually
from kafka import KafkaAdminClient, TopicPartition
from kafka import errors as Errors  # noqa: N812  as its documentation writes it

from dmq.cli.app import run
from dmq.cli.exits import Exit
from dmq.testing import Cluster

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]


class Cli:
    """Runs a command line in this process, on the brokers that are up."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __call__(self, *args: str, stdin: str = "", code: int = Exit.OK) -> str:
        out = io.TextIOWrapper(io.BytesIO(), write_through=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DMQ_BOOTSTRAP_SERVERS", self.cluster.bootstrap)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            patch.setattr(sys, "stdout", out)
            assert run(list(args)) == code, args
            printed = out.buffer
            assert isinstance(printed, io.BytesIO)
            return printed.getvalue().decode()

    def json(self, *args: str, code: int = Exit.OK) -> Any:
        return json.loads(self(*args, "--json", code=code))

    def status(self) -> Any:
        return self.json("cluster", "status")

    def replicas(self, topic: str) -> list[list[int]]:
        [told] = self.json("topic", "describe", topic)["topics"]
        return [each["replicas"] for each in told["partitions"]]

    def leaders(self, topic: str) -> list[int]:
        [told] = self.json("topic", "describe", topic)["topics"]
        return [each["leader"] for each in told["partitions"]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, network="direct") as running:
        yield running


@pytest.fixture
def cli(cluster: Cluster) -> Cli:
    cluster.wait_ready(in_sync=True)
    return Cli(cluster)


def new_topic(cli: Cli, *options: str) -> str:
    name = f"ops-{uuid.uuid4().hex[:12]}"
    cli("topic", "create", name, *options)
    return name


VALUES = [str(number) for number in range(200)]


def fill(cli: Cli, topic: str) -> None:
    cli("produce", topic, stdin="\n".join(VALUES) + "\n")


def is_whole(cli: Cli, topic: str) -> bool:
    return sorted(cli("consume", topic).split()) == sorted(VALUES)


EVENLY = {1: 2, 2: 2, 3: 2}


def test_three_brokers_and_their_quorum(cli: Cli) -> None:
    topic = new_topic(cli, "-p", "6")
    told = cli.status()
    assert [broker["broker"] for broker in told["brokers"]] == [1, 2, 3]
    assert all(broker["up"] for broker in told["brokers"])
    eventually(lambda: cli.status()["metadata"]["voters"] == [1, 2, 3], "three brokers vote")
    replicas = cli.replicas(topic)
    assert all(len(nodes) == 3 for nodes in replicas)  # By default.
    assert Counter(nodes[0] for nodes in replicas) == EVENLY
    eventually(lambda: Counter(cli.leaders(topic)) == EVENLY, "each leads two")


def test_two_replicas_are_warned_of(
    cluster: Cluster, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(cli, "-r", "2")
    assert "needs both brokers" in capsys.readouterr().err
    logs = [cluster.member(node).log() for node in cluster.brokers]
    assert any(f"topic {topic} has two replicas" in log for log in logs)


def test_a_broker_that_is_down_and_comes_back(cluster: Cluster, cli: Cli) -> None:
    topic = new_topic(cli, "-p", "3")
    fill(cli, topic)

    def names(told: Any, trouble: str) -> bool:
        return topic in json.dumps(told[trouble])

    cluster.kill(2)
    try:

        def is_noticed() -> bool:
            told = cli.status()
            down = [broker["broker"] for broker in told["brokers"] if not broker["up"]]
            # Other topics of these brokers may have had their only replica there.
            return down == [2] and names(told, "under_replicated") and not names(told, "leaderless")

        eventually(is_noticed, "the others go on without it")
        cli("cluster", "status", "--check", code=Exit.FAILURE)
        assert is_whole(cli, topic)
    finally:
        cluster.restart(2)
    eventually(lambda: cli.status()["healthy"], "it caught up")


def test_leaders_go_where_they_are_wanted(cli: Cli) -> None:
    topic = new_topic(cli, "-p", "3")
    before = cli.leaders(topic)[1]
    wanted = next(node for node in (1, 2, 3) if node != before)
    told = cli.json("cluster", "transfer-leader", f"{topic}:1", str(wanted))
    assert (told["leader"], told["was"]) == (wanted, before)
    assert cli.replicas(topic)[1][0] == wanted
    assert cli.leaders(topic)[1] == wanted
    assert cli.json("cluster", "elect", "--preferred", f"{topic}:1") == {"elections": []}
    fill(cli, topic)
    assert is_whole(cli, topic)


def test_another_client_moves_a_partition_and_elects_its_leader(cluster: Cluster, cli: Cli) -> None:
    topic = new_topic(cli, "-p", "1", "-r", "2")
    fill(cli, topic)
    before, place = cli.replicas(topic)[0], TopicPartition(topic, 0)
    (spare,) = {1, 2, 3} - {*before}
    wanted = [spare, before[0]]
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        refused = admin.alter_partition_reassignments({place: [1, 99]})
        assert refused[place] is Errors.for_code(39), "invalid replica assignment"
        idle = admin.alter_partition_reassignments({place: None})
        assert idle[place] is Errors.for_code(85), "no reassignment in progress"
        assert admin.alter_partition_reassignments({place: wanted}) == {place: None}
        eventually(lambda: not admin.list_partition_reassignments([place]), "it has moved")
        assert cli.replicas(topic) == [wanted]
        cluster.wait_ready(in_sync=True)
        admin.elect_leaders(0, [place])
        eventually(lambda: cli.leaders(topic) == [spare], "the preferred one leads")
        quorum = admin.describe_metadata_quorum()["topics"][0]["partitions"][0]
        assert {voter["replica_id"] for voter in quorum["current_voters"]} == {1, 2, 3}
    finally:
        admin.close()
    assert is_whole(cli, topic)


def test_a_broker_joins_gets_its_share_and_leaves(cluster: Cluster, cli: Cli) -> None:
    topic = new_topic(cli, "-p", "8")
    single = new_topic(cli, "-p", "4", "-r", "1")
    fill(cli, topic)
    fill(cli, single)
    fourth = cluster.add()
    eventually(lambda: len(cli.status()["brokers"]) == 4, "everybody knows it")
    plan = cli.json("cluster", "rebalance", "--dry-run")
    assert plan["moves"]
    done = cli.json("cluster", "rebalance", "--timeout", "120")
    assert (len(done["moved"]), done["refused"]) == (len(plan["moves"]), [])
    told = cli.status()
    counts = [broker["replicas"] for broker in told["brokers"]]
    assert max(counts) - min(counts) <= 1
    assert told["moving"] == []
    assert cli.json("cluster", "rebalance", "--dry-run")["moves"] == []
    assert is_whole(cli, topic)
    assert is_whole(cli, single)

    cluster.remove(fourth)  # That is `dmq cluster decommission`, and then its process is stopped.
    assert [broker["broker"] for broker in cli.status()["brokers"]] == [1, 2, 3]
    everywhere = cli.replicas(topic) + cli.replicas(single)
    assert not any(fourth in nodes for nodes in everywhere)
    assert all(len(nodes) == 3 for nodes in cli.replicas(topic))
    assert is_whole(cli, topic)
    assert is_whole(cli, single)


def test_a_broker_that_is_needed_stays(cli: Cli) -> None:
    new_topic(cli, "-p", "1", "-r", "3")
    cli("cluster", "decommission", "3", "--yes", code=Exit.FAILURE)
    assert 3 in [broker["broker"] for broker in cli.status()["brokers"]]


OLDER = """
import sys
from dmq.broker import introduction
from dmq.cli.main import main
from dmq.machines.records import FeatureRange

introduction.FEATURES["transaction.version"] = FeatureRange(0, 1)
sys.exit(main())
"""
"""`dmq` of a version that can't run what the cluster runs."""


def test_a_broker_that_lacks_a_feature_says_so_and_ends(
    cluster: Cluster, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(cli, "-p", "3")
    member = cluster.member(3)
    words = member._command
    with monkeypatch.context() as patch:
        patch.setattr(
            member, "_command", lambda way: [sys.executable, "-c", OLDER, *words(way)[3:]]
        )
        cluster.kill(3)
        cluster.restart(3, wait=False)
        eventually(lambda: not member.is_running, "it ends by itself")
    assert member.exit_code == Exit.FAILURE
    assert "The cluster runs transaction.version at level 2" in member.log()
    fill(cli, topic)
    cluster.restart(3)
    cluster.wait_ready(in_sync=True)
    assert is_whole(cli, topic)


def test_settings_reach_every_broker(cli: Cli) -> None:
    def values() -> list[Any]:
        told = [cli.json("config", "describe", "--broker", node) for node in ("1", "2", "3")]
        return [
            next((s["value"] for s in each["settings"] if s["name"] == "log.retention.ms"), None)
            for each in told
        ]

    everywhere, there = "864000001", "864000002"
    cli("config", "set", f"log.retention.ms={everywhere}", "--brokers")
    try:
        eventually(lambda: values() == [everywhere] * 3, "all know it")
        cli("config", "set", f"log.retention.ms={there}", "--broker", "2")
        try:
            eventually(lambda: values() == [everywhere, there, everywhere], "one has its own")
        finally:
            cli("config", "unset", "log.retention.ms", "--broker", "2")
        eventually(lambda: values() == [everywhere] * 3, "it has what all have")
    finally:
        cli("config", "unset", "log.retention.ms", "--brokers")


def test_a_broker_that_votes_on_the_metadata_leaves_and_ends() -> None:
    with Cluster(3, network="direct") as cluster:
        cli = Cli(cluster)
        cluster.add()
        eventually(lambda: len(cli.status()["brokers"]) == 4, "everybody knows it")
        told = cli.json("cluster", "decommission", "2", "--yes", "--timeout", "60")
        assert told["unregistered"]
        status = cli.status()
        assert 2 not in [broker["broker"] for broker in status["brokers"]]
        assert 2 not in status["metadata"]["voters"]
        process = cluster.member(2)
        eventually(lambda: not process.is_running, "its process ends by itself")
        assert process.exit_code == 0, process.log()


def test_brokers_that_are_cut_off_or_dead_can_be_removed_and_the_rest_end_well() -> None:
    with Cluster(3) as few:
        added = few.add()
        few.isolate(added)
        few.remove(added)
        dead = few.add()
        few.kill(dead)
        few.remove(dead)
        assert few.brokers == [1, 2, 3]
        members = [few.member(node) for node in few.brokers]
        few.isolate(2)
    assert [member.exit_code for member in members] == [0, 0, 0]
