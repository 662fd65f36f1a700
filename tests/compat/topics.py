"""Topics for tests, made at the wire and waited for until every partition can be used."""

from typing import Any

from compat.eventually import eventually
from compat.wire import NONE, Connection, only
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

Topic = CreateTopicsRequest.CreatableTopic
REPLICATION_BY_DEFAULT = -1
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


def creatable(name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> Any:
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=REPLICATION_BY_DEFAULT,
        assignments=[],
        configs=[Topic.CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
    )


def create(
    bootstrap: str, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> None:
    """Creates `name` and returns when it can be used."""
    with Connection(bootstrap) as connection:
        request = CreateTopicsRequest(
            topics=[creatable(name, partitions, configs)], timeout_ms=15000, validate_only=False
        )
        answer = only(connection.call(request, 5).topics)
        assert answer.error_code == NONE, answer
        eventually(lambda: is_usable(connection, name, partitions), f"{name} can be used")


def describe(connection: Connection, name: str, *, create_it: bool = False) -> Any:
    """What Metadata says of one topic."""
    wanted = MetadataRequest.MetadataRequestTopic(name=name)
    request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=create_it)
    return only(connection.call(request, 12).topics)


def is_usable(connection: Connection, name: str, partitions: int) -> bool:
    """Whether Metadata names every leader and every leader knows that it is one."""
    found = describe(connection, name)
    led = [part for part in found.partitions if part.error_code == NONE and part.leader_id >= 0]
    if found.error_code != NONE or len(led) != partitions:
        return False
    answers = list_offsets(connection, name, list(range(partitions)), LATEST)
    return all(answer.error_code == NONE for answer in answers)


def list_offsets(
    connection: Connection, name: str, partitions: list[int], timestamp_ms: int, version: int = 7
) -> list[Any]:
    """What ListOffsets says of some partitions of one topic."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    wanted = [
        topic.ListOffsetsPartition(
            partition_index=index, current_leader_epoch=-1, timestamp=timestamp_ms
        )
        for index in partitions
    ]
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[topic(name=name, partitions=wanted)],
        timeout_ms=10000,
    )
    answers: list[Any] = only(connection.call(request, version).topics).partitions
    return answers


def delete(bootstrap: str, *names: str) -> None:
    with Connection(bootstrap) as connection:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=15000)
        answers = connection.call(request, 5).responses
        assert [answer.error_code for answer in answers] == [NONE] * len(names)
