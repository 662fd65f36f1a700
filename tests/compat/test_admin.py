"""Configs described and altered; cluster, partitions, log directories, resources and features.

At the wire, every version, and through the admin clients of confluent-kafka, kafka-python and
aiokafka. Like its neighbours, it can be put to Apache Kafka with DMQ_TEST_BOOTSTRAP.
"""

import asyncio
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from compat import batches, wire
from compat.conftest import NewTopic, unique
from compat.eventually import eventually
from compat.requests import produce
from compat.topics import is_usable
from compat.wire import NONE, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION, Connection, only
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)
from confluent_kafka.admin import NewTopic as ConfluentTopic
from kafka import KafkaAdminClient
from kafka.protocol.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kafka.protocol.metadata import MetadataRequest

wire.RESPONSES.update(
    {
        AlterConfigsRequest: AlterConfigsResponse,
        DescribeClusterRequest: DescribeClusterResponse,
        DescribeLogDirsRequest: DescribeLogDirsResponse,
        DescribeTopicPartitionsRequest: DescribeTopicPartitionsResponse,
        IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
        ListConfigResourcesRequest: ListConfigResourcesResponse,
        UpdateFeaturesRequest: UpdateFeaturesResponse,
    }
)

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC_SOURCE, CLUSTER_SOURCE, DEFAULT_SOURCE = 1, 3, 5
INVALID_TOPIC = 17
INVALID_CONFIG = 40
INVALID_REQUEST = 42
INVALID_UPDATE_VERSION = 95
MISMATCHED_ENDPOINT_TYPE = 114
UNSUPPORTED_ENDPOINT_TYPE = 115
STRING, INT, LONG, LIST = 2, 3, 5, 7


@pytest.fixture
def connection(bootstrap: str) -> Iterator[Connection]:
    with Connection(bootstrap) as connection:
        yield connection


@pytest.fixture
def node_id(connection: Connection) -> int:
    return int(only(connection.call(MetadataRequest(topics=[]), 9).brokers).node_id)


def described(
    connection: Connection,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    version: int = 4,
    **options: bool,
) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    asked = {"include_synonyms": True, "include_documentation": version >= 3, **options}
    request = DescribeConfigsRequest(resources=[resource], **asked)
    return only(connection.call(request, version).results)


def config(connection: Connection, kind: int, name: str, key: str) -> Any:
    return only(described(connection, kind, name, [key]).configs)


def altered(
    connection: Connection,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate: bool = False,
) -> Any:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=key, config_operation=op, value=value)
        for key, op, value in changes
    ]
    asked = resource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=validate)
    return only(connection.call(request, version).responses)


def replaced(
    connection: Connection, kind: int, name: str, version: int = 2, **configs: str | None
) -> Any:
    resource = AlterConfigsRequest.AlterConfigsResource
    values = [
        resource.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    asked = resource(resource_type=kind, resource_name=name, configs=values)
    return only(
        connection.call(
            AlterConfigsRequest(resources=[asked], validate_only=False), version
        ).responses
    )


# --- describing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_describes_a_topic(
    version: int, connection: Connection, new_topic: NewTopic
) -> None:
    topic = new_topic(retention_ms=123456)
    answer = described(connection, TOPIC, topic, version=version)
    assert (answer.error_code, answer.resource_type, answer.resource_name) == (NONE, TOPIC, topic)
    found = {each.name: each for each in answer.configs}
    assert len(found) >= 33
    own = found["retention.ms"]
    assert (own.value, own.config_source, own.read_only) == ("123456", TOPIC_SOURCE, False)
    assert own.synonyms[0].name == "retention.ms"
    default = found["cleanup.policy"]
    assert (default.value, default.config_source) == ("delete", DEFAULT_SOURCE)
    synonym = only(default.synonyms)
    assert (synonym.name, synonym.value) == ("log.cleanup.policy", "delete")
    if version >= 3:
        assert (own.config_type, default.config_type) == (LONG, LIST)
        assert all(each.documentation for each in found.values())


def test_only_what_is_asked_is_told(connection: Connection, new_topic: NewTopic) -> None:
    topic = new_topic()
    some = described(connection, TOPIC, topic, ["retention.ms", "no.such"], include_synonyms=False)
    assert [each.name for each in some.configs] == ["retention.ms"]
    assert not only(some.configs).synonyms
    bare = described(connection, TOPIC, topic, ["retention.ms"], include_documentation=False)
    assert not only(bare.configs).documentation
    assert len(described(connection, TOPIC, topic, []).configs) >= 33


def test_a_broker_is_described(connection: Connection, node_id: int) -> None:
    answer = described(connection, BROKER, str(node_id))
    found = {each.name: each for each in answer.configs}
    assert answer.error_code == NONE
    assert len(found) > 140
    assert found["node.id"].value == str(node_id)
    assert found["node.id"].read_only
    assert (found["message.max.bytes"].config_type, found["message.max.bytes"].read_only) == (
        INT,
        False,
    )
    assert found["log.dirs"].value


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "no-such-topic", UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", INVALID_TOPIC),
        (TOPIC, "a b", INVALID_TOPIC),
        (BROKER, "4711", INVALID_REQUEST),
        (BROKER, "x", INVALID_REQUEST),
        (LOGGER, "4711", INVALID_REQUEST),
        (GROUP, "", INVALID_REQUEST),
        (METRICS, "", INVALID_REQUEST),
        (99, "x", INVALID_REQUEST),
    ],
)
def test_what_is_not_there_is_not_described(
    kind: int, name: str, code: int, connection: Connection
) -> None:
    answer = described(connection, kind, name)
    assert (answer.error_code, answer.configs) == (code, [])


def test_groups_and_subscriptions_have_defaults_before_they_exist(connection: Connection) -> None:
    group = config(connection, GROUP, unique("group"), "consumer.session.timeout.ms")
    assert (group.value, group.config_source) == ("45000", DEFAULT_SOURCE)
    assert group.synonyms[0].name == "group.consumer.session.timeout.ms"
    subscription = config(connection, METRICS, unique("metrics"), "interval.ms")
    assert (subscription.value, subscription.config_source) == ("300000", DEFAULT_SOURCE)


# --- altering ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2))
def test_single_configs_are_altered(
    version: int, connection: Connection, new_topic: NewTopic
) -> None:
    topic = new_topic(segment_ms=1000)

    def value(name: str = "cleanup.policy") -> tuple[str, int]:
        found = config(connection, TOPIC, topic, name)
        return found.value, found.config_source

    def alter(name: str, op: int, text: str | None) -> None:
        answer = altered(connection, TOPIC, topic, (name, op, text), version=version)
        assert (answer.error_code, answer.resource_name) == (NONE, topic)

    alter("cleanup.policy", APPEND, "compact")
    eventually(lambda: value() == ("delete,compact", TOPIC_SOURCE), "appended")
    alter("cleanup.policy", SUBTRACT, "delete")
    eventually(lambda: value() == ("compact", TOPIC_SOURCE), "taken away")
    alter("cleanup.policy", DELETE, None)
    eventually(lambda: value() == ("delete", DEFAULT_SOURCE), "back to the default")
    alter("retention.ms", SET, "54321")
    eventually(lambda: value("retention.ms") == ("54321", TOPIC_SOURCE), "set")
    assert value("segment.ms") == ("1000", TOPIC_SOURCE)


@pytest.mark.parametrize("version", range(3))
def test_configs_are_replaced_as_a_whole(
    version: int, connection: Connection, new_topic: NewTopic
) -> None:
    topic = new_topic(segment_ms=1000)
    assert replaced(connection, TOPIC, topic, version, retention_ms="777").error_code == NONE
    eventually(
        lambda: config(connection, TOPIC, topic, "segment.ms").config_source == DEFAULT_SOURCE,
        "what was not mentioned is unset",
    )
    assert config(connection, TOPIC, topic, "retention.ms").value == "777"


REFUSED: dict[str, tuple[int, list[tuple[str, int, str | None]], int]] = {
    "a bad value": (TOPIC, [("retention.ms", SET, "many")], INVALID_CONFIG),
    "an unknown name": (TOPIC, [("no.such", SET, "1")], INVALID_CONFIG),
    "append to a number": (TOPIC, [("retention.ms", APPEND, "1")], INVALID_CONFIG),
    "no value": (TOPIC, [("retention.ms", SET, None)], INVALID_REQUEST),
    "a name twice": (
        TOPIC,
        [("segment.ms", SET, "9"), ("segment.ms", DELETE, None)],
        INVALID_REQUEST,
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_bad_change_is_refused(what: str, connection: Connection, new_topic: NewTopic) -> None:
    topic = new_topic()
    kind, changes, code = REFUSED[what]
    answer = altered(connection, kind, topic, *changes)
    assert answer.error_code == code
    assert answer.error_message


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "no-such-topic", ("retention.ms", SET, "1"), UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "", ("num.partitions", SET, "3"), INVALID_REQUEST),
        (BROKER, "x", ("log.retention.ms", SET, "3"), INVALID_REQUEST),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), INVALID_REQUEST),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "5"), INVALID_CONFIG),
        (METRICS, "m", ("interval.ms", SET, "5"), INVALID_REQUEST),
        (METRICS, "m", ("match", SET, "nobody=x"), INVALID_CONFIG),
        (99, "m", ("x", SET, "x"), INVALID_REQUEST),
    ],
)
def test_a_bad_resource_is_refused(
    kind: int, name: str, change: tuple[str, int, str], code: int, connection: Connection
) -> None:
    answer = altered(connection, kind, name, change)
    assert (answer.error_code, answer.resource_type) == (code, kind)
    assert answer.error_message


def test_to_validate_is_not_to_alter(connection: Connection, new_topic: NewTopic) -> None:
    topic = new_topic()
    change = ("retention.ms", SET, "5")
    assert altered(connection, TOPIC, topic, change, validate=True).error_code == NONE
    assert config(connection, TOPIC, topic, "retention.ms").config_source == DEFAULT_SOURCE
    bad = altered(connection, TOPIC, topic, ("retention.ms", SET, "x"), validate=True)
    assert bad.error_code == INVALID_CONFIG


def test_a_setting_of_all_brokers_reaches_topics(
    connection: Connection, new_topic: NewTopic
) -> None:
    topic = new_topic()
    name, key = "log.index.interval.bytes", "index.interval.bytes"

    def told() -> tuple[str, int]:
        found = config(connection, TOPIC, topic, key)
        return found.value, found.config_source

    assert altered(connection, BROKER, "", (name, SET, "8192")).error_code == NONE
    try:
        eventually(lambda: told() == ("8192", CLUSTER_SOURCE), "the topic has it")
        defaults = {each.name: each.value for each in described(connection, BROKER, "").configs}
        assert defaults[name] == "8192"
    finally:
        assert altered(connection, BROKER, "", (name, DELETE, None)).error_code == NONE
    eventually(lambda: told() == ("4096", DEFAULT_SOURCE), "the topic has the default again")


def test_a_smaller_limit_holds_at_once(connection: Connection, new_topic: NewTopic) -> None:
    topic = new_topic()
    batch = batches.build([b"x" * 5000])
    assert produce(connection, topic, batch).error_code == NONE
    assert altered(connection, TOPIC, topic, ("max.message.bytes", SET, "1000")).error_code == NONE
    eventually(
        lambda: produce(connection, topic, batch).error_code == wire.MESSAGE_TOO_LARGE, "refused"
    )


def test_groups_subscriptions_and_their_list(connection: Connection) -> None:
    group, metrics = unique("group"), unique("metrics")
    session = ("consumer.session.timeout.ms", SET, "50000")
    assert altered(connection, GROUP, group, session).error_code == NONE
    assert altered(connection, METRICS, metrics, ("interval.ms", SET, "500")).error_code == NONE
    eventually(
        lambda: config(connection, GROUP, group, "consumer.session.timeout.ms").value == "50000",
        "the group has it",
    )
    eventually(lambda: metrics in listed(connection, 0, METRICS), "the subscription is listed")
    assert metrics in listed(connection, 1, METRICS)
    assert group in listed(connection, 1, GROUP)
    assert altered(connection, METRICS, metrics, ("interval.ms", DELETE, None)).error_code == NONE
    eventually(lambda: metrics not in listed(connection, 0, METRICS), "it is gone")


def listed(connection: Connection, version: int, *kinds: int) -> list[str]:
    request = ListConfigResourcesRequest(resource_types=list(kinds) if version else [])
    answer = connection.call(request, version)
    assert answer.error_code == NONE
    return [each.resource_name for each in answer.config_resources]


def test_resources_are_listed(connection: Connection, new_topic: NewTopic, node_id: int) -> None:
    topic = new_topic()
    assert topic in listed(connection, 1, TOPIC)
    assert listed(connection, 1, BROKER) == listed(connection, 1, LOGGER) == [str(node_id)]
    answer = connection.call(ListConfigResourcesRequest(resource_types=[]), 1)
    kinds = {(each.resource_type, each.resource_name) for each in answer.config_resources}
    assert {(TOPIC, topic), (BROKER, str(node_id))} <= kinds
    refused = connection.call(ListConfigResourcesRequest(resource_types=[99]), 1)
    assert (refused.error_code, refused.config_resources) == (UNSUPPORTED_VERSION, [])


def test_loggers(connection: Connection, node_id: int) -> None:
    name = str(node_id)
    before = {each.name: each.value for each in described(connection, LOGGER, name).configs}
    assert before["root"] in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
    assert altered(connection, LOGGER, name, ("root", SET, "FATAL")).error_code == NONE
    assert config(connection, LOGGER, name, "root").value == "FATAL"
    assert altered(connection, LOGGER, name, ("root", SET, before["root"])).error_code == NONE
    assert config(connection, LOGGER, name, "root").value == before["root"]
    assert altered(connection, LOGGER, name, ("root", SET, "LOUD")).error_code == INVALID_CONFIG
    assert altered(connection, LOGGER, name, ("root", DELETE, None)).error_code == INVALID_REQUEST
    assert altered(connection, LOGGER, name, ("root", APPEND, "INFO")).error_code == INVALID_REQUEST
    assert altered(connection, LOGGER, name, ("none", SET, "INFO")).error_code == INVALID_CONFIG
    assert altered(connection, LOGGER, "4711", ("root", SET, "INFO")).error_code == INVALID_REQUEST


# --- cluster, partitions, directories, features --------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(version: int, connection: Connection, bootstrap: str) -> None:
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = connection.call(asked, version)
    metadata = connection.call(MetadataRequest(topics=[]), 9)
    broker = only(answer.brokers)
    assert answer.error_code == NONE
    assert (answer.cluster_id, answer.controller_id) == (
        metadata.cluster_id,
        metadata.controller_id,
    )
    assert f"{broker.host}:{broker.port}" == bootstrap
    assert answer.authorized_operations == {5, 7, 8, 9, 10, 11, 12}
    if version >= 1:
        for endpoint, code in ((2, MISMATCHED_ENDPOINT_TYPE), (9, UNSUPPORTED_ENDPOINT_TYPE)):
            refused = connection.call(DescribeClusterRequest(endpoint_type=endpoint), version)
            assert (refused.error_code, refused.brokers) == (code, [])


Page = tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]


def page(
    connection: Connection,
    names: list[str],
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
) -> Page:
    kind = DescribeTopicPartitionsRequest
    start = None
    if cursor is not None:
        start = kind.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    asked = [kind.TopicRequest(name=name) for name in names]
    answer = connection.call(kind(topics=asked, response_partition_limit=limit, cursor=start), 0)
    topics = []
    for topic in answer.topics:
        for part in topic.partitions:
            assert part.eligible_leader_replicas == part.last_known_elr == []
            assert part.replica_nodes == part.isr_nodes == [part.leader_id]
            assert part.leader_epoch >= 0
        indexes = [part.partition_index for part in topic.partitions]
        topics.append((topic.name, topic.error_code, indexes))
    following = answer.next_cursor
    return topics, following and (following.topic_name, following.partition_index)


def test_partitions_come_in_pages(connection: Connection, new_topic: NewTopic) -> None:
    one, two = sorted([new_topic(partitions=3), new_topic(partitions=3)])
    both = [(one, NONE, [0, 1, 2]), (two, NONE, [0, 1, 2])]
    assert page(connection, [two, one]) == (both, None)
    assert page(connection, [one, two], 1) == ([(one, NONE, [0])], (one, 1))
    assert page(connection, [one, two], 1, (one, 1))[0] == [(one, NONE, [1])]
    assert page(connection, [one, two], 3) == (both[:1], (two, 0))
    assert page(connection, [one, two], 9, (two, 1)) == ([(two, NONE, [1, 2])], None)
    assert page(connection, [one, two], 0) == ([(one, NONE, [0])], (one, 1))
    assert page(connection, [one], 9, (one, -1)) == ([(one, INVALID_REQUEST, [])], None)
    assert page(connection, [one], 9, (two, 0)) == ([(one, INVALID_REQUEST, [])], None)
    between = (f"{one}-not", 0)
    refused = [(one, INVALID_REQUEST, []), (two, INVALID_REQUEST, [])]
    assert page(connection, [one, two], 9, between) == (refused, None)
    unknown = f"{two}-not"
    assert page(connection, [two, unknown]) == (
        [(two, NONE, [0, 1, 2]), (unknown, UNKNOWN_TOPIC_OR_PARTITION, [])],
        None,
    )
    assert page(connection, ["a b"])[0] == [("a b", INVALID_TOPIC, [])]


def test_all_topics_come_in_pages(connection: Connection, new_topic: NewTopic) -> None:
    wanted = {new_topic(partitions=3): [0, 1, 2], new_topic(): [0]}
    found: dict[str, list[int]] = {}
    cursor: tuple[str, int] | None = None
    while True:
        topics, cursor = page(connection, [], 50, cursor)
        for name, _, indexes in topics:
            found.setdefault(name, []).extend(indexes)
        if cursor is None:
            break
    assert {name: found[name] for name in wanted} == wanted
    assert list(found) == sorted(found)


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories(version: int, connection: Connection, new_topic: NewTopic) -> None:
    topic, other = new_topic(partitions=2), new_topic()
    assert produce(connection, topic, batches.build([b"x" * 5000]), partition=1).error_code == NONE

    def sizes(names: list[str] | None) -> dict[str, dict[int, int]]:
        kind = DescribeLogDirsRequest.DescribableLogDirTopic
        asked = names and [kind(topic=name, partitions=[0, 1, 7]) for name in names]
        answer = connection.call(DescribeLogDirsRequest(topics=asked), version)
        directory = only(answer.results)
        assert directory.error_code == NONE
        assert directory.log_dir.startswith("/")
        assert version < 4 or 0 < directory.usable_bytes < directory.total_bytes
        return {
            found.name: {part.partition_index: part.partition_size for part in found.partitions}
            for found in directory.topics
        }

    eventually(lambda: sizes([topic]).get(topic, {}).get(1, 0) > 5000, "the bytes are there")
    assert sizes([topic])[topic][0] == 0
    assert set(sizes([topic, "no-such-topic"])) == {topic}
    assert {topic, other} <= set(sizes(None))


@pytest.mark.parametrize("version", range(3))
def test_an_unknown_feature_is_refused(version: int, connection: Connection) -> None:
    kind = UpdateFeaturesRequest.FeatureUpdateKey
    update = kind(
        feature="no.such.feature", max_version_level=1, allow_downgrade=False, upgrade_type=1
    )
    request = UpdateFeaturesRequest(timeout_ms=15000, feature_updates=[update], validate_only=False)
    answer = connection.call(request, version)
    assert answer.error_code == INVALID_UPDATE_VERSION
    assert "no.such.feature" in answer.error_message


@pytest.mark.parametrize("version", range(3))
def test_no_features_are_no_problem(version: int, connection: Connection) -> None:
    request = UpdateFeaturesRequest(timeout_ms=15000, feature_updates=[], validate_only=False)
    assert connection.call(request, version).error_code == NONE


# --- the admin clients of others ------------------------------------------------------------------


def test_confluent_admin(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([ConfluentTopic(topic, 2, 1, config={"retention.ms": "1000"})])
    created[topic].result(30)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def configs() -> dict[str, Any]:
        found: dict[str, Any] = admin.describe_configs([resource])[resource].result(30)
        return found

    assert configs()["retention.ms"].value == "1000"
    assert not configs()["retention.ms"].is_default
    change = ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(30)
    eventually(lambda: configs()["cleanup.policy"].value == "delete,compact", "appended")
    whole = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"segment.ms": "5000"})
    with warnings.catch_warnings():
        # Deprecated in the client; the request is still part of the protocol.
        warnings.simplefilter("ignore", DeprecationWarning)
        admin.alter_configs([whole])[whole].result(30)
    eventually(lambda: configs()["retention.ms"].is_default, "what was not mentioned is unset")
    with Connection(bootstrap) as connection:
        eventually(lambda: is_usable(connection, topic, 3), "three partitions")
    cluster = admin.describe_cluster(request_timeout=30).result(30)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [bootstrap]
    admin.delete_topics([topic])[topic].result(30)


def test_kafka_python_admin(bootstrap: str, topic: str) -> None:
    from kafka.admin import ConfigResource as Resource
    from kafka.admin import ConfigResourceType, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(topic, 2, 1)])
        resource = Resource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1000"})
        admin.alter_configs([resource])
        asked = Resource(ConfigResourceType.TOPIC, topic)

        def modified() -> dict[str, Any]:
            found: dict[str, Any] = admin.describe_configs([asked])["topic"][topic]
            return found

        eventually(lambda: modified().get("retention.ms", {}).get("value") == "1000", "altered")
        admin.reset_configs([Resource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})])
        eventually(lambda: "retention.ms" not in modified(), "reset")
        assert topic in admin.list_config_resources(["TOPIC"])["topic"]
        assert only(admin.describe_topics([topic]))["name"] == topic
        assert admin.describe_cluster()["cluster_id"]
        assert admin.describe_log_dirs()
        admin.delete_topics([topic])
    finally:
        admin.close()


def test_aiokafka_admin(bootstrap: str, topic: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.admin.config_resource import ConfigResource as Resource
    from aiokafka.admin.config_resource import ConfigResourceType

    async def work() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"segment.ms": "7000"})])
            resource = Resource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1000"})
            (altered,) = await admin.alter_configs([resource])
            asked = Resource(ConfigResourceType.TOPIC, topic)
            (answer,) = await admin.describe_configs([asked])
            await admin.delete_topics([topic])
            return altered, answer
        finally:
            await admin.close()

    changed, answer = asyncio.run(work())
    assert changed.resources[0][0] == NONE
    configs = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    assert configs["cleanup.policy"] == "delete"
