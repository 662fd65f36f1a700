"""What topics and groups get from the broker's levels."""

import dataclasses

from dmq.config.broker import BrokerConfig
from dmq.config.group import GroupConfig
from dmq.config.settings import Settings
from dmq.config.topic import TOPIC, TopicConfig


def test_defaults_are_the_same_from_the_table_and_from_a_broker() -> None:
    settings = Settings(BrokerConfig())
    assert settings.topic({}) == TopicConfig()
    assert settings.group({}) == GroupConfig()


def test_topics_that_set_nothing_share_one_config() -> None:
    settings = Settings(BrokerConfig())
    assert settings.topic({}) is settings.topic({})


def test_levels() -> None:
    settings = Settings(
        BrokerConfig.of({"log.retention.hours": 1, "durability": "async"}),
        cluster={"log.roll.ms": "5", "message.max.bytes": "6"},
        node={"message.max.bytes": "7"},
    )
    config = settings.topic({"cleanup.policy": "compact,delete"})
    assert config.retention_ms == 3_600_000
    assert config.segment_ms == 5
    assert config.max_message_bytes == 7
    assert config.compacts
    assert config.deletes
    assert not config.is_sync


def test_internal_topics_are_sync() -> None:
    settings = Settings(BrokerConfig.of(durability="async"))
    assert settings.topic({"durability": "async"}, internal=True).is_sync
    assert settings.topic({}, internal=True).is_sync
    assert not settings.topic({}).is_sync


def test_flush_messages_1_means_sync_as_in_kafka() -> None:
    settings = Settings(BrokerConfig.of(durability="async"))
    assert settings.topic({"flush.messages": "1"}).is_sync
    assert not settings.topic({"flush.messages": "2"}).is_sync


def test_the_empty_policy_neither_deletes_nor_compacts() -> None:
    config = Settings(BrokerConfig()).topic({"cleanup.policy": ""})
    assert not config.compacts
    assert not config.deletes


def test_segment_size_for_tests() -> None:
    settings = Settings(BrokerConfig())
    assert settings.topic({}).segment_max_bytes == 1 << 30
    assert settings.topic({"internal.segment.bytes": "100"}).segment_max_bytes == 100


def test_every_topic_config_is_a_field() -> None:
    assert {definition.field for definition in TOPIC.values()} == {
        field.name for field in dataclasses.fields(TopicConfig)
    }
