"""Altering configs. Codes are what a real Kafka 4.3 answered, where it answered one."""

import pytest
from unit.machines.cluster_of import Cluster

from dmq.machines.commands import AlterConfigs, AlterOp, ConfigChange

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = AlterOp.SET, AlterOp.DELETE, AlterOp.APPEND, AlterOp.SUBTRACT


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.create("t", configs=(("retention.ms", "1000"),))
    return cluster


@pytest.mark.parametrize(
    ("resource", "name", "changes", "code", "said"),
    [
        (TOPIC, "t", [("retention.ms", SET, "zz")], 40, "Invalid value zz"),
        (TOPIC, "t", [("zz", SET, "zz")], 40, "Unknown topic config name: zz"),
        (TOPIC, "none", [("retention.ms", SET, "5")], 3, "There is no topic"),
        (TOPIC, "", [("retention.ms", SET, "5")], 42, "needs a name"),
        (TOPIC, "a b", [("retention.ms", SET, "5")], 17, "Topic name is invalid"),
        (TOPIC, "t", [("retention.ms", APPEND, "5")], 40, "needs a list"),
        (TOPIC, "t", [("segment.ms", SET, "10"), ("segment.ms", DELETE, None)], 42, "named twice"),
        (TOPIC, "t", [("segment.ms", SET, None)], 42, "must not be null"),
        (TOPIC, "t", [("cleanup.policy", APPEND, None)], 42, "must not be null"),
        (TOPIC, "t", [("segment.ms", 9, "1")], 42, "Unknown operation 9"),
        (BROKER, "1", [("num.partitions", SET, "3")], 42, "num.partitions"),
        (BROKER, "", [("advertised.listeners", SET, "PLAINTEXT://h:1")], 42, "Fixed"),
        (BROKER, "1", [("log.retention.ms", SET, "q")], 42, "Not a number of type LONG"),
        (BROKER, "x", [("log.retention.ms", SET, "7")], 42, "named by its number"),
        (BROKER, "-1", [("log.retention.ms", SET, "7")], 42, "named by its number"),
        (BROKER, "9", [("log.retention.ms", SET, "7")], 102, "No broker has the id 9"),
        (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")], 42, "needs a name"),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "5")], 40, "is less than"),
        (METRICS, "", [("metrics", SET, "x")], 42, "needs a name"),
        (METRICS, "m", [("interval.ms", SET, "5")], 42, "Invalid value 5"),
        (LOGGER, "1", [("root", SET, "DEBUG")], 42, "Unknown resource type 8"),
        (99, "m", [("x", SET, "x")], 42, "Unknown resource type 99"),
    ],
)
def test_refused(
    cluster: Cluster,
    resource: int,
    name: str,
    changes: list[tuple[str, int, str | None]],
    code: int,
    said: str,
) -> None:
    before = len(cluster.log)
    altered = cluster.alter(resource, name, *changes)
    assert altered.error is not None
    assert altered.error.code == code
    assert said in str(altered.error)
    assert len(cluster.log) == before


def test_set_and_delete(cluster: Cluster) -> None:
    assert cluster.alter(TOPIC, "t", ("segment.ms", SET, " 7 ")).error is None
    assert cluster.state.topics["t"].config == {"retention.ms": "1000", "segment.ms": "7"}
    assert cluster.alter(TOPIC, "t", ("retention.ms", DELETE, None)).error is None
    assert cluster.alter(TOPIC, "t", ("segment.ms", DELETE, None)).error is None
    assert cluster.state.topics["t"].config == {}
    assert (TOPIC, "t") not in cluster.state.configs


def test_deleting_what_is_not_set_or_not_known_changes_nothing(cluster: Cluster) -> None:
    before = len(cluster.log)
    assert cluster.alter(TOPIC, "t", ("segment.ms", DELETE, None)).error is None
    assert cluster.alter(TOPIC, "t", ("segment.foo", DELETE, None)).error is None
    assert cluster.alter(TOPIC, "t").error is None
    assert len(cluster.log) == before


def test_append_and_subtract(cluster: Cluster) -> None:
    def policy() -> str | None:
        return cluster.state.topics["t"].config.get("cleanup.policy")

    assert cluster.alter(TOPIC, "t", ("cleanup.policy", APPEND, "compact")).error is None
    assert policy() == "delete,compact"
    assert cluster.alter(TOPIC, "t", ("cleanup.policy", APPEND, "compact, delete")).error is None
    assert policy() == "delete,compact"
    assert cluster.alter(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")).error is None
    assert policy() == "compact"
    assert cluster.alter(TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact")).error is None
    assert policy() == ""


def test_replace_unsets_what_is_not_mentioned(cluster: Cluster) -> None:
    assert cluster.alter(TOPIC, "t", ("segment.ms", SET, "7"), replace=True).error is None
    assert cluster.state.topics["t"].config == {"segment.ms": "7"}
    assert cluster.alter(TOPIC, "t", replace=True).error is None
    assert cluster.state.topics["t"].config == {}


def test_validate_only(cluster: Cluster) -> None:
    assert cluster.alter(TOPIC, "t", ("segment.ms", SET, "7"), validate_only=True).error is None
    assert cluster.alter(TOPIC, "t", ("segment.ms", SET, "x"), validate_only=True).error is not None
    assert cluster.state.topics["t"].config == {"retention.ms": "1000"}


def test_every_resource_by_itself(cluster: Cluster) -> None:
    good = ConfigChange(TOPIC, "t", (("segment.ms", SET, "7"),))
    bad = ConfigChange(TOPIC, "none", (("segment.ms", SET, "7"),))
    dynamic = ConfigChange(BROKER, "", (("log.retention.ms", SET, "7"),))
    results = cluster.do(AlterConfigs((good, bad, dynamic)))
    assert [result.error is None for result in results] == [True, False, True]
    assert cluster.state.config(BROKER, "") == {"log.retention.ms": "7"}


def test_a_resource_twice_in_one_request(cluster: Cluster) -> None:
    change = ConfigChange(TOPIC, "t", (("segment.ms", SET, "7"),))
    (result,) = cluster.do(AlterConfigs((change, change)))
    assert result.error is not None
    assert result.error.code.name == "INVALID_REQUEST"


def test_brokers_groups_and_client_metrics(cluster: Cluster) -> None:
    assert cluster.alter(BROKER, "1", ("max.connections", SET, "9")).error is None
    assert cluster.alter(GROUP, "g/1", ("consumer.session.timeout.ms", SET, "50000")).error is None
    assert cluster.alter(METRICS, "m", ("interval.ms", SET, "500")).error is None
    assert cluster.state.configs == {
        (TOPIC, "t"): {"retention.ms": "1000"},
        (BROKER, "1"): {"max.connections": "9"},
        (GROUP, "g/1"): {"consumer.session.timeout.ms": "50000"},
        (METRICS, "m"): {"interval.ms": "500"},
    }
