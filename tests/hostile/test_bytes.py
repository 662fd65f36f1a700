"""Bytes that are no protocol, or only half of it: a closed connection, one log line, no more."""

import os
import random
import socket
import struct
from collections.abc import Callable

import pytest
from compat import batches
from compat.eventually import eventually
from compat.process import BrokerProcess
from compat.requests import fetch_request, fetch_topic, produce
from compat.wire import (
    NONE,
    RESPONSES,
    Connection,
    EndOfConnectionError,
    encode,
)
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

UNREAD_MAX = 64 << 20
"""What the broker may need for a client that reads no answers: some sixty of a megabyte."""

Lines = Callable[[Connection], list[str] | None]


def metadata(version: int = 9) -> bytes:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    request.API_VERSION = version
    return encode(request, 1)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("1603010200010001fc0303") + b"\x55" * 600,
    "zeros": b"\0" * 4096,
    "ones": b"\xff" * 4096,
    "noise": random.Random(1).randbytes(4096),
    "size of zero": framed(b""),
    "size of one": framed(b"\x12"),
    "half a header": framed(b"\0\x12\0\0\0\0"),
    "negative size": struct.pack(">i", -1) + b"\0" * 64,
    "smallest size": struct.pack(">i", -(1 << 31)) + b"\0" * 64,
    "largest size": struct.pack(">i", (1 << 31) - 1) + b"\0" * 64,
    "above the limit": struct.pack(">i", 104_857_601) + b"\0" * 64,
    "unknown api": framed(struct.pack(">hhih", 4711, 0, 1, -1)),
    "unknown version": framed(struct.pack(">hhih", 3, 77, 1, -1)),
    "client id beyond the end": framed(struct.pack(">hhih", 3, 1, 1, 500) + b"short"),
    "body missing": framed(struct.pack(">hhih", 3, 1, 1, -1)),
    "tags beyond the end": framed(struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\x0f"),
    "endless varint": framed(struct.pack(">hhih", 3, 9, 1, -1) + b"\0" + b"\xff" * 20),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_ends_its_connection_with_one_line(
    what: str, bootstrap: str, lines_about: Lines
) -> None:
    with Connection(bootstrap) as connection:
        connection.send_bytes(GARBAGE[what])
        assert connection.is_closed_by_peer()
        if (lines := lines_about(connection)) is not None:
            eventually(lambda: lines_about(connection), "the log names the connection")
            lines = lines_about(connection)
            assert lines is not None
            assert len(lines) == 1, lines
            assert "Traceback" not in lines[0]


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 12, 20])
def test_half_a_request_and_then_nothing(cut: int, bootstrap: str) -> None:
    frame = metadata()
    with Connection(bootstrap) as connection:
        connection.send_bytes(frame[:cut])
    with Connection(bootstrap) as connection:
        # The sending side is shut, the receiving side is not: still no request, and no answer.
        connection.send_bytes(frame[:cut])
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.is_closed_by_peer()


def test_requests_one_byte_at_a_time(bootstrap: str) -> None:
    """Fifty connections at once, each as slow as can be."""
    frame = metadata()
    connections = [Connection(bootstrap) for _ in range(50)]
    try:
        for index in range(len(frame)):
            for connection in connections:
                connection.send_bytes(frame[index : index + 1])
        for connection in connections:
            answer = connection.receive((RESPONSES[MetadataRequest], 9, 1))
            assert answer.topics == []
    finally:
        for connection in connections:
            connection.close()


def test_a_large_request_that_never_ends_holds_no_memory_it_was_not_sent(
    bootstrap: str, broker: BrokerProcess | None
) -> None:
    """Fifty announce 100 MB each and send 1 KB."""
    if broker is None:
        pytest.skip("Apache Kafka allocates what is announced, and dies of it")
    connections = [Connection(bootstrap) for _ in range(50)]
    try:
        for connection in connections:
            connection.send_bytes(struct.pack(">i", 100_000_000) + b"\0\x03\0\x01" + b"\0" * 1000)
        with Connection(bootstrap) as other:
            assert other.call(ApiVersionsRequest(), 0).error_code == NONE
    finally:
        for connection in connections:
            connection.close()


def test_many_requests_and_then_gone(bootstrap: str) -> None:
    """A client that asks a lot and leaves before the first answer, again and again."""
    burst = metadata() * 200
    for _ in range(20):
        with Connection(bootstrap) as connection:
            connection.send_bytes(burst)
    for _ in range(20):
        connection = Connection(bootstrap)
        # A reset, not an end: what was sent but not read is thrown away.
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.send_bytes(burst)
        connection.close()


def test_a_client_that_never_reads_is_slowed_and_not_fed(
    bootstrap: str, broker: BrokerProcess | None, new_topic: Callable[..., str]
) -> None:
    """Its answers stay within a bound: the broker stops reading what it does not get rid of."""
    topic = new_topic(max_message_bytes=4 << 20)
    with Connection(bootstrap) as other:
        value = os.urandom(1 << 20)
        assert produce(other, topic, batches.build([value])).error_code == NONE
    request = fetch_request(
        [fetch_topic(topic, {0: 0}, partition_max_bytes=4 << 20)], max_bytes=8 << 20
    )
    request.API_VERSION = 12
    # Large, so that the system's buffers do not hold all of them.
    frame = encode(request, 1, "x" * 30_000)
    before = broker.memory_bytes() if broker is not None else 0
    with Connection(bootstrap) as connection:
        connection.socket.settimeout(2)
        sent = 0
        try:
            # Two thousand answers of a megabyte each, if anybody were foolish enough.
            while sent < 2000:
                connection.socket.sendall(frame)
                sent += 1
        except TimeoutError:
            pass
        assert sent > 5
        assert sent < 2000, "all of it was read"
        if broker is not None:
            assert broker.memory_bytes() - before < UNREAD_MAX
        # What was asked is still answered, once it is read.
        connection.socket.settimeout(15)
        for _ in range(3):
            part = connection.receive((RESPONSES[type(request)], 12, 1)).responses[0].partitions[0]
            assert batches.records_in(part.records)[0][2] == value


def test_two_thousand_connections(bootstrap: str) -> None:
    """All of them stay, all of them are served, and what they held is given back."""
    connections: list[Connection] = []
    try:
        connections += [Connection(bootstrap) for _ in range(2000)]
        for connection in connections:
            connection.send(ApiVersionsRequest(), 0)
        for connection in connections:
            assert connection.read_frame()[4:6] == b"\0\0"
    finally:
        for connection in connections:
            connection.close()


def test_connections_that_come_and_go(bootstrap: str) -> None:
    for index in range(1000):
        connection = Connection(bootstrap)
        if index % 3 == 0:
            connection.send_bytes(b"\0\0")
        connection.close()
    with Connection(bootstrap) as connection:
        assert connection.call(ApiVersionsRequest(), 0).error_code == NONE


def test_a_closed_connection_stays_closed(bootstrap: str) -> None:
    """A good request behind a bad one is not served."""
    bad = framed(struct.pack(">hhih", 4711, 0, 1, -1))
    with Connection(bootstrap) as connection:
        connection.send_bytes(metadata() + bad + metadata())
        assert connection.read_frame()
        with pytest.raises(EndOfConnectionError):
            connection.read_frame()
