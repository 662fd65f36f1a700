"""Topics created, widened, emptied and deleted at the wire, with the codes of each refusal."""

import uuid
from typing import Any

import pytest
from compat import batches, topics
from compat.clients.client import Record
from compat.clients.confluent import Confluent
from compat.conftest import NewTopic, unique
from compat.eventually import eventually
from compat.requests import fetch, produce
from compat.topics import EARLIEST, creatable, describe, is_usable, list_offsets
from compat.wire import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Connection,
    only,
    topic_id,
)
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from kafka.protocol.metadata import MetadataRequest

INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
INVALID_REQUEST = 42
DEFAULT = -1
Topic = CreateTopicsRequest.CreatableTopic


def wanted(**changes: Any) -> Any:
    found = creatable(changes.pop("name", None) or unique())
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def assigned(*replicas: tuple[int, list[int]]) -> Any:
    kind = Topic.CreatableReplicaAssignment
    return wanted(
        num_partitions=DEFAULT,
        assignments=[kind(partition_index=index, broker_ids=ids) for index, ids in replicas],
    )


def configured(name: str, value: str | None) -> Any:
    return wanted(configs=[Topic.CreatableTopicConfig(name=name, value=value)])


def create(connection: Connection, *asked: Any, version: int = 5, validate: bool = False) -> Any:
    request = CreateTopicsRequest(topics=list(asked), timeout_ms=15000, validate_only=validate)
    return connection.call(request, version).topics


def broker_id(connection: Connection) -> int:
    broker = only(connection.call(MetadataRequest(topics=[]), 9).brokers)
    return int(broker.node_id)


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates(version: int, bootstrap: str, topic: str) -> None:
    with Connection(bootstrap) as connection:
        asked = creatable(topic, 3, {"retention.ms": "123456"})
        if version < 4:
            asked.replication_factor = 1
        answer = only(create(connection, asked, version=version))
        assert (answer.name, answer.error_code) == (topic, NONE)
        if version >= 5:
            assert (answer.num_partitions, answer.replication_factor) == (3, 1)
            configs = {config.name: config.value for config in answer.configs}
            assert configs["retention.ms"] == "123456"
            assert configs["cleanup.policy"] == "delete"
        eventually(lambda: is_usable(connection, topic, 3), f"{topic} can be used")
        assert version < 7 or answer.topic_id == topic_id(connection, topic)


@pytest.mark.parametrize("version", [2, 7])
def test_to_validate_is_not_to_create(version: int, bootstrap: str, topic: str) -> None:
    with Connection(bootstrap) as connection:
        asked = wanted(name=topic, replication_factor=1)
        assert only(create(connection, asked, version=version, validate=True)).error_code == NONE
        assert describe(connection, topic).error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert only(create(connection, asked, version=version)).error_code == NONE
        again = only(create(connection, asked, version=version, validate=True))
        assert again.error_code == TOPIC_ALREADY_EXISTS
        if version >= 5:
            assert again.configs == [], "never null: clients go through it"


REFUSED = {
    "no partitions": (lambda: wanted(num_partitions=0), INVALID_PARTITIONS),
    "negative partitions": (lambda: wanted(num_partitions=-5), INVALID_PARTITIONS),
    "no replicas": (lambda: wanted(replication_factor=0), INVALID_REPLICATION_FACTOR),
    "too many replicas": (lambda: wanted(replication_factor=99), INVALID_REPLICATION_FACTOR),
    "a space": (lambda: wanted(name="a b"), INVALID_TOPIC),
    "dots": (lambda: wanted(name=".."), INVALID_TOPIC),
    "too long": (lambda: wanted(name="x" * 250), INVALID_TOPIC),
    "unknown config": (lambda: configured("no.such.config", "1"), INVALID_CONFIG),
    "bad value": (lambda: configured("retention.ms", "many"), INVALID_CONFIG),
    "null value": (lambda: configured("retention.ms", None), INVALID_CONFIG),
    "bad policy": (lambda: configured("cleanup.policy", "shred"), INVALID_CONFIG),
    "a gap": (lambda: assigned((0, [1]), (2, [1])), INVALID_REPLICA_ASSIGNMENT),
    "unknown broker": (lambda: assigned((0, [4711])), INVALID_REPLICA_ASSIGNMENT),
}


@pytest.mark.parametrize("version", [5, 7])
@pytest.mark.parametrize("what", REFUSED)
def test_a_bad_topic_is_refused(what: str, version: int, bootstrap: str) -> None:
    make, code = REFUSED[what]
    with Connection(bootstrap) as connection:
        bad, good = make(), wanted()
        answers = create(connection, bad, good, version=version)
        found = {answer.name: answer for answer in answers}
        assert found[bad.name].error_code == code
        assert found[bad.name].error_message
        # The good one beside it is not held back.
        assert found[good.name].error_code == NONE


def test_the_same_name_twice_is_a_bad_request(bootstrap: str, topic: str) -> None:
    with Connection(bootstrap) as connection:
        answers = create(connection, wanted(name=topic), wanted(name=topic))
        assert {answer.error_code for answer in answers} == {INVALID_REQUEST}
        assert describe(connection, topic).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_laid_out_as_assigned(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        here = broker_id(connection)
        asked = assigned((0, [here]), (1, [here]))
        assert only(create(connection, asked)).error_code == NONE
        eventually(lambda: is_usable(connection, asked.name, 2), "it can be used")
        asked = assigned((0, [here]))
        asked.num_partitions, asked.replication_factor = 2, 1
        assert only(create(connection, asked)).error_code == INVALID_REQUEST
        doubled = only(create(connection, assigned((0, [here, here]))))
        assert doubled.error_code == INVALID_REPLICA_ASSIGNMENT


def widen(
    connection: Connection, name: str, count: int, version: int = 3, validate: bool = False
) -> Any:
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    request = CreatePartitionsRequest(
        topics=[kind(name=name, count=count, assignments=None)],
        timeout_ms=15000,
        validate_only=validate,
    )
    return only(connection.call(request, version).results)


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_and_never_shrinks(version: int, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    with Connection(bootstrap) as connection:
        assert widen(connection, topic, 4, version, validate=True).error_code == NONE
        assert len(describe(connection, topic).partitions) == 2
        assert widen(connection, topic, 4, version).error_code == NONE
        eventually(lambda: is_usable(connection, topic, 4), "four partitions")
        for count in (4, 3, 0, -1):
            answer = widen(connection, topic, count, version)
            assert answer.error_code == INVALID_PARTITIONS
            assert answer.error_message
        unknown = widen(connection, f"{topic}-not", 4, version)
        assert unknown.error_code == UNKNOWN_TOPIC_OR_PARTITION
        batch = batches.build([b"new"])
        assert produce(connection, topic, batch, partition=3).base_offset == 0


@pytest.mark.parametrize("version", range(1, 6))
def test_a_deleted_topic_is_gone(version: int, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        assert produce(connection, topic, batches.build([b"x"])).error_code == NONE
        request = DeleteTopicsRequest(topic_names=[topic, f"{topic}-not"], timeout_ms=15000)
        answers = connection.call(request, version).responses
        codes = {answer.name: answer.error_code for answer in answers}
        assert codes == {topic: NONE, f"{topic}-not": UNKNOWN_TOPIC_OR_PARTITION}
        eventually(
            lambda: describe(connection, topic).error_code == UNKNOWN_TOPIC_OR_PARTITION, "gone"
        )
        assert fetch(connection, topic, offset=0).error_code == UNKNOWN_TOPIC_OR_PARTITION
        refused = produce(connection, topic, batches.build([b"x"]))
        assert refused.error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_deleted_by_id(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    kind = DeleteTopicsRequest.DeleteTopicState
    with Connection(bootstrap) as connection:
        identity, unknown = topic_id(connection, topic), uuid.uuid4()
        doomed = [kind(name=None, topic_id=one) for one in (identity, unknown)]
        answers = connection.call(DeleteTopicsRequest(topics=doomed, timeout_ms=15000), 6).responses
    codes = {answer.topic_id: (answer.name, answer.error_code) for answer in answers}
    assert codes == {identity: (topic, NONE), unknown: (None, UNKNOWN_TOPIC_ID)}


def delete_records(
    connection: Connection, name: str, partition: int, offset: int, version: int = 2
) -> tuple[int, int]:
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    part = kind.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[kind(name=name, partitions=[part])], timeout_ms=15000)
    answer = only(only(connection.call(request, version).topics).partitions)
    return answer.error_code, answer.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_deleted_records_move_the_start(version: int, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        values: list[bytes | None] = [b"%d" % index for index in range(10)]
        for _ in range(3):
            assert produce(connection, topic, batches.build(values)).error_code == NONE
        assert delete_records(connection, topic, 0, 15, version) == (NONE, 15)
        assert only(list_offsets(connection, topic, [0], EARLIEST)).offset == 15
        assert fetch(connection, topic, offset=14).error_code == OFFSET_OUT_OF_RANGE
        answer = fetch(connection, topic, offset=15)
        assert (answer.error_code, answer.log_start_offset) == (NONE, 15)
        assert batches.records_in(answer.records)[-1][0] == 29
        # An offset before the start changes nothing; one beyond the end is refused.
        assert delete_records(connection, topic, 0, 3, version) == (NONE, 15)
        assert delete_records(connection, topic, 0, 31, version) == (OFFSET_OUT_OF_RANGE, -1)
        assert delete_records(connection, topic, 0, -1, version) == (NONE, 30)
        assert produce(connection, topic, batches.build(values)).base_offset == 30
        unknown = (UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert delete_records(connection, topic, 9, 0, version) == unknown
        assert delete_records(connection, f"{topic}-not", 0, 0, version) == unknown


def test_a_consumer_before_the_start_is_reset(
    bootstrap: str, confluent: Confluent, new_topic: NewTopic
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = new_topic()
    confluent.produce(topic, [Record(None, b"%d" % index) for index in range(20)])
    with Connection(bootstrap) as connection:
        assert delete_records(connection, topic, 0, 12) == (NONE, 12)
    for start, policy, expected in ((3, "earliest", 12), (99, "earliest", 12), (99, "error", None)):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": policy,
                "fetch.wait.max.ms": 50,
            }
        )
        consumer.assign([TopicPartition(topic, 0, start)])
        message = consumer.poll(20)
        assert message is not None
        if expected is None:
            assert message.error() is not None
        else:
            assert message.error() is None, message.error()
            assert (message.offset(), message.value()) == (expected, b"12")
        consumer.close()


def test_a_deleted_topic_can_be_made_again(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    with Connection(bootstrap) as connection:
        assert produce(connection, topic, batches.build([b"old"])).error_code == NONE
        topics.delete(bootstrap, topic)
        eventually(
            lambda: describe(connection, topic).error_code == UNKNOWN_TOPIC_OR_PARTITION, "gone"
        )
        topics.create(bootstrap, topic, 1)
        assert produce(connection, topic, batches.build([b"new"])).base_offset == 0
        found = batches.records_in(fetch(connection, topic, offset=0).records)
    assert [value for _, _, value in found] == [b"new"]
