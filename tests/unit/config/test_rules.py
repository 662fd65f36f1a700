"""What may be set, and with which code it is refused. Codes are what a real Kafka 4.3 answered."""

import pytest

from dmq.config.broker import BrokerConfig
from dmq.config.definitions import ResourceType
from dmq.config.rules import ConfigRules
from dmq.config.settings import Settings
from dmq.errors import KafkaError

RULES = ConfigRules(Settings(BrokerConfig()))
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
GROUP, METRICS = ResourceType.GROUP, ResourceType.CLIENT_METRICS


def test_values_are_stored_in_one_form() -> None:
    assert RULES.check(TOPIC, {"cleanup.policy": " compact , delete ", "preallocate": "TRUE"}) == {
        "cleanup.policy": "compact,delete",
        "preallocate": "true",
    }


@pytest.mark.parametrize(
    ("resource", "values", "code", "said"),
    [
        (TOPIC, {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, 40, "greater than"),
        (BROKER, {"num.partitions": "3"}, 42, "Fixed while the broker runs: num.partitions"),
        (BROKER, {"node.id": "3"}, 42, "runs: node.id"),
        (BROKER, {"log.retention.minutes": "3"}, 42, "runs: log.retention.minutes"),
        (BROKER, {"log.retention.ms": "q"}, 42, "Not a number of type LONG"),
        (BROKER, {"log.retention.ms": "0"}, 42, "greater than 0"),
        (BROKER, {"foo.bar": "1"}, 42, "Unknown broker config name: foo.bar"),
        (GROUP, {"foo": "1"}, 40, "Unknown group config name: foo"),
        (GROUP, {"consumer.session.timeout.ms": "5"}, 40, "group.consumer.min.session.timeout.ms"),
        (GROUP, {"consumer.session.timeout.ms": "500000"}, 40, "group.consumer.max.session"),
        (GROUP, {"share.auto.offset.reset": "foo"}, 40, "Invalid value foo"),
        (GROUP, {"share.auto.offset.reset": "by_duration:P"}, 40, "Invalid value"),
        (GROUP, {"share.record.lock.duration.ms": "100"}, 40, "Value must be at least 1000"),
        (GROUP, {"streams.num.standby.replicas": "3"}, 40, "group.streams.max.standby.replicas"),
        (METRICS, {"interval.ms": "5"}, 42, "Invalid value 5"),
        (METRICS, {"interval.ms": "5000000"}, 42, "Invalid value 5000000"),
        (METRICS, {"foo": "5"}, 42, "Unknown client metrics config name: foo"),
        (METRICS, {"match": "foo=a.*"}, 40, "selects no clients: foo=a.*"),
        (METRICS, {"match": "client_id=["}, 40, "selects no clients"),
        (METRICS, {"match": "client_id"}, 40, "selects no clients"),
    ],
)
def test_refused(resource: ResourceType, values: dict[str, str], code: int, said: str) -> None:
    with pytest.raises(KafkaError) as refused:
        RULES.check(resource, values)
    assert refused.value.code == code
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("resource", "values"),
    [
        (BROKER, {"log.retention.ms": "77"}),
        (BROKER, {"max.connections": "100"}),
        (GROUP, {"consumer.session.timeout.ms": "50000"}),
        (
            GROUP,
            {"consumer.session.timeout.ms": "45000", "consumer.heartbeat.interval.ms": "15000"},
        ),
        (GROUP, {"share.auto.offset.reset": "by_duration:PT1H"}),
        (METRICS, {"match": "client_id=a.*", "interval.ms": "50000", "metrics": "org.apache.,x"}),
    ],
)
def test_accepted(resource: ResourceType, values: dict[str, str]) -> None:
    assert RULES.check(resource, values) == values


def test_a_fixed_setting_that_was_there_before_is_not_in_the_way() -> None:
    stored = RULES.check(
        BROKER, {"num.partitions": "3", "max.connections": "5"}, changed=("max.connections",)
    )
    assert stored == {"num.partitions": "3", "max.connections": "5"}


def test_what_a_list_starts_from() -> None:
    assert RULES.is_list(TOPIC, "cleanup.policy")
    assert not RULES.is_list(TOPIC, "retention.ms")
    assert RULES.inherited(TOPIC, "cleanup.policy") == "delete"
    assert RULES.inherited(BROKER, "log.cleanup.policy") == "delete"
    assert RULES.inherited(METRICS, "metrics") == ""
