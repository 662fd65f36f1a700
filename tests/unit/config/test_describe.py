"""Sources and synonyms as DescribeConfigs tells them."""

from dmq.config.broker import BrokerConfig
from dmq.config.definitions import ConfigSource
from dmq.config.describe import (
    ConfigEntry,
    Synonym,
    describe_broker,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from dmq.config.settings import Settings

STATIC = ConfigSource.STATIC_BROKER
DEFAULT = ConfigSource.DEFAULT
CLUSTER = ConfigSource.DYNAMIC_DEFAULT_BROKER
NODE = ConfigSource.DYNAMIC_BROKER
TOPIC = ConfigSource.DYNAMIC_TOPIC


def named(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    (entry,) = [entry for entry in entries if entry.name == name]
    return entry


def test_a_topic_value_comes_from_the_strongest_level() -> None:
    settings = Settings(
        BrokerConfig.of({"log.segment.bytes": 2_000_000}),
        cluster={"log.segment.bytes": "3000000"},
        node={"log.segment.bytes": "4000000"},
    )
    entry = named(describe_topic({"segment.bytes": "5000000"}, settings), "segment.bytes")
    assert (entry.value, entry.source) == ("5000000", TOPIC)
    assert entry.synonyms == (
        Synonym("segment.bytes", "5000000", TOPIC),
        Synonym("log.segment.bytes", "4000000", NODE),
        Synonym("log.segment.bytes", "3000000", CLUSTER),
        Synonym("log.segment.bytes", "2000000", STATIC),
        Synonym("log.segment.bytes", "1073741824", DEFAULT),
    )
    inherited = named(describe_topic({}, settings), "segment.bytes")
    assert (inherited.value, inherited.source) == ("4000000", NODE)


def test_the_chain_of_retention() -> None:
    """As a real Kafka tells it: the default in hours shows only behind a value in milliseconds."""
    plain = named(describe_topic({}, Settings(BrokerConfig())), "retention.ms")
    assert (plain.value, plain.source, plain.synonyms) == ("604800000", DEFAULT, ())
    dynamic = Settings(BrokerConfig(), node={"log.retention.ms": "77"})
    assert named(describe_topic({}, dynamic), "retention.ms").synonyms == (
        Synonym("log.retention.ms", "77", NODE),
        Synonym("log.retention.hours", "168", DEFAULT),
    )


def test_a_static_value_in_hours_is_a_static_value() -> None:
    settings = Settings(BrokerConfig.of({"log.retention.hours": 1}))
    entry = named(describe_topic({}, settings), "retention.ms")
    assert (entry.value, entry.source) == ("3600000", STATIC)


def test_broker_settings() -> None:
    settings = Settings(BrokerConfig.of(node_id=5), cluster={"max.connections": "9"})
    entries = describe_broker(settings)
    node_id = named(entries, "node.id")
    assert (node_id.value, node_id.source, node_id.read_only) == ("5", STATIC, True)
    connections = named(entries, "max.connections")
    assert (connections.value, connections.source, connections.read_only) == ("9", CLUSTER, False)
    assert named(entries, "listeners").value == "PLAINTEXT://127.0.0.1:9092"
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)


def test_the_cluster_defaults_are_only_what_is_set() -> None:
    settings = Settings(
        BrokerConfig(), cluster={"max.connections": "9"}, node={"durability": "async"}
    )
    (entry,) = describe_cluster_defaults(settings)
    assert (entry.name, entry.value, entry.source) == ("max.connections", "9", CLUSTER)


def test_a_group() -> None:
    settings = Settings(BrokerConfig.of({"group.consumer.session.timeout.ms": 50_000}))
    entries = describe_group({"share.isolation.level": "read_committed"}, settings)
    session = named(entries, "consumer.session.timeout.ms")
    assert (session.value, session.source) == ("50000", STATIC)
    isolation = named(entries, "share.isolation.level")
    assert (isolation.value, isolation.source) == ("read_committed", ConfigSource.GROUP)


def test_client_metrics() -> None:
    entries = describe_client_metrics({"interval.ms": "500"})
    assert {entry.name: (entry.value, entry.source.name) for entry in entries} == {
        "interval.ms": ("500", "CLIENT_METRICS"),
        "match": ("", "DEFAULT"),
        "metrics": ("", "DEFAULT"),
    }


def test_hidden_configs_show_when_set() -> None:
    settings = Settings(BrokerConfig())
    names = [entry.name for entry in describe_topic({}, settings)]
    assert "internal.segment.bytes" not in names
    assert (
        named(
            describe_topic({"internal.segment.bytes": "9"}, settings), "internal.segment.bytes"
        ).source
        is TOPIC
    )
