"""Lengths and counts that lie: arrays of two thousand million, strings beyond the end, and nesting."""

import struct
from collections.abc import Callable

import pytest
from compat.process import BrokerProcess
from compat.requests import fetch_request, fetch_topic, produce_request
from compat.topics import creatable
from compat.wire import Connection, EndOfConnectionError, encode
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.metadata import MetadataRequest

HUGE = (1 << 31) - 1
COMPACT_HUGE = b"\xff\xff\xff\xff\x0f"
NAME = "a-name-that-is-easy-to-find"


def body_with(request: object, version: int, find: bytes, put: bytes) -> bytes:
    """The request's frame with `find` replaced and the size made right again."""
    request.API_VERSION = version  # type: ignore[attr-defined]
    frame = encode(request, 1)[4:]
    assert frame.count(find) == 1, (frame, find)
    bent = frame.replace(find, put)
    return struct.pack(">i", len(bent)) + bent


def cases() -> dict[str, bytes]:
    name = NAME.encode()
    plain = struct.pack(">h", len(name)) + name
    compact = bytes([len(name) + 1]) + name
    topic = [MetadataRequest.MetadataRequestTopic(name=NAME)]
    fetched = [fetch_topic(NAME, {0: 0})]
    one = struct.pack(">i", 1)
    huge = struct.pack(">i", HUGE)
    return {
        "metadata, plain": body_with(MetadataRequest(topics=topic), 1, one + plain, huge + plain),
        "metadata, compact": body_with(
            MetadataRequest(topics=topic), 9, b"\x02" + compact, COMPACT_HUGE + compact
        ),
        "metadata, name": body_with(
            MetadataRequest(topics=topic), 9, b"\x02" + compact, b"\x02" + COMPACT_HUGE + name
        ),
        "fetch, plain": body_with(fetch_request(fetched), 4, one + plain, huge + plain),
        "fetch, compact": body_with(
            fetch_request(fetched), 12, b"\x02" + compact, COMPACT_HUGE + compact
        ),
        "fetch, partitions": body_with(fetch_request(fetched), 4, plain + one, plain + huge),
        "produce, topics": body_with(
            produce_request(NAME, {0: b"r"}), 3, one + plain, huge + plain
        ),
        "produce, partitions": body_with(
            produce_request(NAME, {0: b"r"}), 3, plain + one, plain + huge
        ),
        "produce, records": body_with(
            produce_request(NAME, {0: b"recs"}),
            3,
            struct.pack(">i", 4) + b"recs",
            huge + b"recs",
        ),
        "produce, compact records": body_with(
            produce_request(NAME, {0: b"recs"}), 9, b"\x05recs", COMPACT_HUGE + b"recs"
        ),
        "create topics": body_with(
            CreateTopicsRequest(topics=[creatable(NAME)], timeout_ms=1, validate_only=True),
            5,
            b"\x02" + compact,
            COMPACT_HUGE + compact,
        ),
        "delete topics": body_with(
            DeleteTopicsRequest(topic_names=[NAME], timeout_ms=1), 1, one + plain, huge + plain
        ),
    }


def negative_cases() -> dict[str, bytes]:
    negative = struct.pack(">i", -HUGE)
    topic = [MetadataRequest.MetadataRequestTopic(name=NAME)]
    plain = struct.pack(">h", len(NAME)) + NAME.encode()
    head = struct.pack(">hhih", 18, 0, 1, -7)
    return {
        "topics": body_with(
            MetadataRequest(topics=topic), 1, struct.pack(">i", 1) + plain, negative + plain
        ),
        "client id": struct.pack(">i", len(head)) + head,
        "records": body_with(
            produce_request(NAME, {0: b"recs"}),
            3,
            struct.pack(">i", 4) + b"recs",
            negative + b"recs",
        ),
    }


CASES = cases()
NEGATIVE_CASES = negative_cases()


@pytest.mark.parametrize("what", CASES)
def test_a_count_that_lies_ends_the_connection(
    what: str, bootstrap: str, lines_about: Callable[[Connection], list[str] | None]
) -> None:
    with Connection(bootstrap) as connection:
        connection.send_bytes(CASES[what])
        assert connection.is_closed_by_peer()
        lines = lines_about(connection)
        assert lines is None or len(lines) == 1, lines


@pytest.mark.parametrize("what", NEGATIVE_CASES)
def test_a_negative_count_is_refused_or_taken_for_null(
    what: str, bootstrap: str, broker: BrokerProcess | None
) -> None:
    if broker is None and what == "records":
        pytest.skip("Apache Kafka never answers a request without records")
    with Connection(bootstrap) as connection:
        connection.send_bytes(NEGATIVE_CASES[what])
        try:
            assert connection.read_frame()[:4] == struct.pack(">i", 1)
        except EndOfConnectionError:
            return


def test_a_count_that_fits_its_bytes_costs_no_more_than_they_do(bootstrap: str) -> None:
    """Two million empty names in four megabytes: slow or refused, never gigabytes."""
    count = 2_000_000
    body = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", count) + b"\0\0" * count
    with Connection(bootstrap, timeout_s=60) as connection:
        connection.send_bytes(struct.pack(">i", len(body)) + body)
        connection.socket.shutdown(1)
        assert connection.is_closed_by_peer()
