"""Our tables against facts that a real Apache Kafka 4.3 told through DescribeConfigs.

`kafka_4_3.json`: by resource and name, [type, default, read-only, names of default synonyms].
"""

import json
from pathlib import Path
from typing import Any

import pytest

from dmq.config.broker import ALIASES, BROKER, BrokerConfig
from dmq.config.definitions import ResourceType
from dmq.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from dmq.config.kafka_names import DIFFERENT, IGNORED, REFUSED_PREFIXES
from dmq.config.rules import ConfigRules
from dmq.config.settings import Settings
from dmq.errors import KafkaError

FACTS: dict[str, dict[str, list[Any]]] = json.loads(
    (Path(__file__).parent / "kafka_4_3.json").read_text()
)
OWN = {"durability", "record.validation"}
SETTINGS = Settings(BrokerConfig())


def ours(resource: str) -> dict[str, ConfigEntry]:
    entries = {
        "topic": lambda: describe_topic({}, SETTINGS),
        "broker": lambda: describe_broker(SETTINGS),
        "group": lambda: describe_group({}, SETTINGS),
        "client_metrics": lambda: describe_client_metrics({}),
    }[resource]()
    return {entry.name: entry for entry in entries}


@pytest.mark.parametrize("resource", FACTS)
def test_what_both_have_is_the_same(resource: str) -> None:
    different = {}
    for name, entry in ours(resource).items():
        if name in FACTS[resource]:
            synonyms = [synonym.name for synonym in entry.synonyms]
            said = [entry.type.name, entry.value, entry.read_only, synonyms]
            if said != FACTS[resource][name]:
                different[name] = (said, FACTS[resource][name])
    assert {name: facts for name, facts in different.items() if name not in DIFFERENT} == {}
    expected = [name for name in DIFFERENT if name in FACTS[resource]]
    assert sorted(different) == sorted(expected), "a listed difference is none"


@pytest.mark.parametrize("resource", ["topic", "group", "client_metrics"])
def test_every_config_of_kafka_is_there(resource: str) -> None:
    assert set(ours(resource)) - OWN == set(FACTS[resource])


def test_every_broker_setting_of_kafka_is_ours_ignored_or_refused() -> None:
    for name in FACTS["broker"]:
        known = name in BROKER or name in ALIASES or name in IGNORED
        assert known or name.startswith(REFUSED_PREFIXES), name
    assert sorted(IGNORED - set(FACTS["broker"])) == []
    assert sorted(IGNORED & set(BROKER)) == []


ACCEPTED = [
    ("retention.ms", " 5 "),
    ("retention.ms", "-1"),
    ("cleanup.policy", "compact, delete"),
    ("cleanup.policy", ""),
    ("cleanup.policy", "delete,delete"),
    ("min.insync.replicas", "5"),
    ("preallocate", "TRUE"),
    ("compression.gzip.level", "-1"),
    ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "0:1,2:3"),
    ("local.retention.ms", "5"),
    ("retention.bytes", "-5"),
    ("internal.segment.bytes", "100"),
]
REFUSED = [
    ("nope", "1", "Unknown topic config name: nope"),
    ("message.format.version", "3.0", "Unknown topic config name: message.format.version"),
    (
        "retention.ms",
        "x",
        "Invalid value x for configuration retention.ms: Not a number of type LONG",
    ),
    (
        "retention.ms",
        "-2",
        "Invalid value -2 for configuration retention.ms: Value must be at least -1",
    ),
    (
        "segment.bytes",
        "99999999999",
        "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT",
    ),
    (
        "compression.type",
        "x",
        "Invalid value x for configuration compression.type: String must be one of: "
        "uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    (
        "preallocate",
        "yes",
        "Invalid value yes for configuration preallocate: "
        "Expected value to be either true or false",
    ),
    (
        "min.cleanable.dirty.ratio",
        "2",
        "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: "
        "Value must be no more than 1",
    ),
    (
        "compression.gzip.level",
        "0",
        "Invalid value 0 for configuration compression.gzip.level: "
        "Value must be between 1 and 9 or equal to -1",
    ),
    ("cleanup.policy", "delete,foo", "String must be one of: compact, delete"),
    ("message.timestamp.type", "x", "String must be one of: CreateTime, LogAppendTime"),
    ("min.insync.replicas", "0", "Value must be at least 1"),
    ("segment.bytes", "1", "Value must be at least 1048576"),
    ("min.cleanable.dirty.ratio", "abc", "Not a number of type DOUBLE"),
    ("compression.gzip.level", "10", "Value must be between 1 and 9 or equal to -1"),
    ("compression.lz4.level", "0", "Value must be at least 1"),
    ("compression.zstd.level", "-200000", "Value must be at least -131072"),
    ("compression.zstd.level", "23", "Value must be no more than 22"),
    ("max.message.bytes", "-1", "Value must be at least 0"),
    ("leader.replication.throttled.replicas", "foo", "Invalid value"),
    ("remote.storage.enable", "true", "Tiered storage"),
    ("max.compaction.lag.ms", "0", "Value must be at least 1"),
    ("index.interval.bytes", "-1", "Value must be at least 0"),
    ("flush.messages", "0", "Value must be at least 1"),
    ("segment.ms", "0", "Value must be at least 1"),
    ("segment.jitter.ms", "-1", "Value must be at least 0"),
    ("delete.retention.ms", "-1", "Value must be at least 0"),
    ("file.delete.delay.ms", "-1", "Value must be at least 0"),
    ("segment.index.bytes", "3", "Value must be at least 4"),
    ("unclean.leader.election.enable", "1", "Expected value to be either true or false"),
    ("min.compaction.lag.ms", "-1", "Value must be at least 0"),
    ("message.timestamp.before.max.ms", "-1", "Value must be at least 0"),
]


@pytest.mark.parametrize(("name", "text"), ACCEPTED)
def test_kafka_accepts(name: str, text: str) -> None:
    assert name in ConfigRules(SETTINGS).check(ResourceType.TOPIC, {name: text})


@pytest.mark.parametrize(("name", "text", "sentence"), REFUSED)
def test_kafka_refuses(name: str, text: str, sentence: str) -> None:
    with pytest.raises(KafkaError) as refused:
        ConfigRules(SETTINGS).check(ResourceType.TOPIC, {name: text})
    assert refused.value.code.name == "INVALID_CONFIG"
    assert sentence in str(refused.value)
