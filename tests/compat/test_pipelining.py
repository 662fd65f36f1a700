"""Many requests on one connection before the first answer is read: answers come in their order."""

import random
import socket

from compat import batches
from compat.conftest import NewTopic, unique
from compat.requests import fetch_request, fetch_topic, produce, produce_request
from compat.topics import LATEST
from compat.wire import NONE, RESPONSES, Connection, encode, only
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from kafka.protocol.producer import InitProducerIdRequest


def mixed(topic: str, count: int) -> list[tuple[object, int]]:
    """Requests of every kind that a producer and a consumer send, in a mixed order."""
    offsets = ListOffsetsRequest.ListOffsetsTopic
    latest = offsets.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    kinds = [
        lambda: (ApiVersionsRequest(client_software_name="a", client_software_version="b"), 3),
        lambda: (ApiVersionsRequest(), 0),
        lambda: (MetadataRequest(topics=None), 9),
        lambda: (MetadataRequest(topics=None), 1),
        lambda: (produce_request(topic, {0: batches.build([b"x"])}), 9),
        lambda: (produce_request(topic, {0: batches.build([b"x"])}, acks=1), 3),
        lambda: (fetch_request([fetch_topic(topic, {0: 0})]), 12),
        lambda: (fetch_request([fetch_topic(topic, {0: 0})]), 4),
        lambda: (
            ListOffsetsRequest(replica_id=-1, topics=[offsets(name=topic, partitions=[latest])]),
            5,
        ),
        lambda: (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4),
        lambda: (FindCoordinatorRequest(key="g", key_type=0), 2),
    ]
    dice = random.Random(50)
    return [dice.choice(kinds)() for _ in range(count)]


def test_fifty_requests_of_mixed_kinds_are_answered_in_order(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        tickets = [connection.send(request, version) for request, version in mixed(topic, 50)]
        for ticket in tickets:
            connection.receive(ticket)


def test_fifty_requests_in_one_packet_are_answered_in_order(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    frames, tickets = [], []
    for index, (request, version) in enumerate(mixed(topic, 50)):
        request.API_VERSION = version
        frames.append(encode(request, index))
        tickets.append((RESPONSES[type(request)], version, index))
    with Connection(bootstrap) as connection:
        connection.send_bytes(b"".join(frames))
        for ticket in tickets:
            connection.receive(ticket)


def test_a_parked_fetch_holds_the_answers_behind_it(bootstrap: str, new_topic: NewTopic) -> None:
    """The order stands, even if the later answer is known much earlier."""
    topic = new_topic()
    with Connection(bootstrap) as connection, Connection(bootstrap) as other:
        parked = connection.send(
            fetch_request([fetch_topic(topic, {0: 0})], max_wait_ms=30_000, min_bytes=1), 12
        )
        quick = connection.send(ApiVersionsRequest(), 0)
        assert produce(other, topic, batches.build([b"x"])).error_code == NONE
        part = only(only(connection.receive(parked).responses).partitions)
        assert len(batches.records_in(part.records)) == 1
        assert connection.receive(quick).error_code == NONE


def test_pipelined_batches_of_one_partition_keep_their_order(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    count = 500
    with Connection(bootstrap) as connection:
        tickets = [
            connection.send(produce_request(topic, {0: batches.build([b"%d" % index])}), 9)
            for index in range(count)
        ]
        for index, ticket in enumerate(tickets):
            answer = only(only(connection.receive(ticket).responses).partition_responses)
            assert (answer.error_code, answer.base_offset) == (NONE, index)


def test_a_request_may_come_in_any_pieces(bootstrap: str) -> None:
    names = [unique() for _ in range(20)]
    stream = b""
    for index, name in enumerate(names):
        wanted = MetadataRequest.MetadataRequestTopic(name=name)
        request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
        request.API_VERSION = 12
        stream += encode(request, index)
    dice = random.Random(3)
    with Connection(bootstrap) as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while stream:
            size = dice.randrange(1, 40)
            connection.send_bytes(stream[:size])
            stream = stream[size:]
        for index, name in enumerate(names):
            answer = connection.receive((RESPONSES[MetadataRequest], 12, index))
            assert only(answer.topics).name == name
