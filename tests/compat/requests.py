"""Produce and Fetch requests for wire-level tests, filled in for one or a few partitions."""

from typing import Any

from compat.wire import Connection, only
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest

ALL = -1
PRODUCE_BY_ID = 13
FETCH_BY_ID = 13
UNLIMITED = (1 << 31) - 1


def produce_request(
    topic: str,
    parts: dict[int, bytes | None],
    *,
    topic_id: Any = None,
    acks: int = ALL,
    transactional_id: str | None = None,
) -> Any:
    data = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10000,
        topic_data=[
            data(
                name=topic,
                topic_id=topic_id,
                partition_data=[
                    data.PartitionProduceData(index=index, records=records)
                    for index, records in parts.items()
                ],
            )
        ],
    )


def produce(
    connection: Connection,
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    version: int = 9,
    topic_id: Any = None,
    acks: int = ALL,
) -> Any:
    """Sends one partition's records; the answer for that partition."""
    request = produce_request(topic, {partition: records}, topic_id=topic_id, acks=acks)
    return only(only(connection.call(request, version).responses).partition_responses)


def fetch_topic(topic: str, parts: dict[int, int], **options: Any) -> Any:
    """The part of a Fetch request for one topic; `parts` is partition to offset."""
    kind = FetchRequest.FetchTopic
    topic_id = options.pop("topic_id", None)
    options = {"partition_max_bytes": 1 << 20, **options}
    return kind(
        topic=topic,
        topic_id=topic_id,
        partitions=[
            kind.FetchPartition(partition=index, fetch_offset=offset, **options)
            for index, offset in parts.items()
        ],
    )


def fetch_request(topics: list[Any], **options: Any) -> Any:
    """Without options: a full fetch, outside any session, that does not wait."""
    defaults = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 64 << 20}
    return FetchRequest(topics=topics, **{**defaults, **options})


def fetch(
    connection: Connection,
    topic: str,
    *,
    offset: int,
    partition: int = 0,
    version: int = 12,
    partition_options: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Fetches one partition; the answer for it."""
    wanted = fetch_topic(topic, {partition: offset}, **(partition_options or {}))
    answer = connection.call(fetch_request([wanted], **options), version)
    assert version < 7 or answer.error_code == 0, answer
    return only(only(answer.responses).partitions)
