"""One raw Kafka connection for tests: a socket, with kafka-python's message classes as the encoder.

Owns framing, headers and the check that every response is encoded exactly as the judge would encode
it (decode, encode again, compare the bytes). Never uses the project's own `wire` package: what a
broker says must be understood by someone else's code. Called by the compat and hostile tests.
"""

import socket
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

RESPONSES: dict[type, type] = {
    AddOffsetsToTxnRequest: AddOffsetsToTxnResponse,
    ApiVersionsRequest: ApiVersionsResponse,
    CreatePartitionsRequest: CreatePartitionsResponse,
    CreateTopicsRequest: CreateTopicsResponse,
    DeleteRecordsRequest: DeleteRecordsResponse,
    DeleteTopicsRequest: DeleteTopicsResponse,
    DescribeConfigsRequest: DescribeConfigsResponse,
    FetchRequest: FetchResponse,
    FindCoordinatorRequest: FindCoordinatorResponse,
    InitProducerIdRequest: InitProducerIdResponse,
    ListOffsetsRequest: ListOffsetsResponse,
    MetadataRequest: MetadataResponse,
    OffsetForLeaderEpochRequest: OffsetForLeaderEpochResponse,
    ProduceRequest: ProduceResponse,
}
NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_REQUIRED_ACKS = 21
INVALID_TIMESTAMP = 32
UNSUPPORTED_VERSION = 35
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
INVALID_FETCH_SESSION_EPOCH = 71
FETCH_SESSION_ID_NOT_FOUND = 70
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100
EPHEMERAL_TIMEOUT_S = 15.0


class EndOfConnectionError(Exception):
    """The broker closed or reset the connection."""


def address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def encode(request: Any, correlation_id: int, client_id: str = "wire-test") -> bytes:
    """The frame of `request` (with its version set), size prefix included."""
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(header=True, framed=True))


class Connection:
    """A blocking connection; every read has a deadline, so nothing here can hang."""

    def __init__(self, bootstrap: str, timeout_s: float = EPHEMERAL_TIMEOUT_S) -> None:
        self.socket = socket.create_connection(address(bootstrap), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self.socket.getsockname()[1]
        self._next_correlation_id = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, request: Any, version: int) -> tuple[Any, int, int]:
        """Sends without reading; give the returned ticket to `receive`, in the order sent."""
        request.API_VERSION = version
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self.socket.sendall(encode(request, correlation_id))
        return RESPONSES[type(request)], version, correlation_id

    def receive(self, ticket: tuple[Any, int, int]) -> Any:
        kind, version, correlation_id = ticket
        return decode(kind, version, correlation_id, self.read_frame())

    def call(self, request: Any, version: int) -> Any:
        return self.receive(self.send(request, version))

    def send_bytes(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise EndOfConnectionError from error

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.read_exactly(4))
        assert 0 <= size < 1 << 30, f"frame of {size} bytes"
        return self.read_exactly(size)

    def read_exactly(self, size: int) -> bytes:
        chunks: list[bytes] = []
        missing = size
        while missing:
            try:
                chunk = self.socket.recv(min(missing, 1 << 20))
            except ConnectionResetError as error:
                raise EndOfConnectionError from error
            if not chunk:
                raise EndOfConnectionError
            chunks.append(chunk)
            missing -= len(chunk)
        return b"".join(chunks)

    def is_closed_by_peer(self) -> bool:
        """Waits, up to the timeout, for the end of the stream, and discards what comes first."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True


def decode(kind: Any, version: int, correlation_id: int, frame: bytes) -> Any:
    """The response in `frame`; fails if the bytes are not the judge's own encoding of it."""
    response = kind.decode(frame, version=version, header=True)
    assert response.header.correlation_id == correlation_id, "answers are out of order"
    response._header = None
    spoken = 0 if kind is ApiVersionsResponse and response.error_code else version
    # A flexible response has header v1, whose tagged fields are none; ApiVersions keeps header v0.
    is_flexible = kind is not ApiVersionsResponse and kind.flexible_version_q(version)
    header = struct.pack(">i", correlation_id) + (b"\0" if is_flexible else b"")
    again = header + bytes(response.encode(version=spoken))
    assert again == frame, f"{kind.__name__} v{spoken}: {frame.hex()} is not {again.hex()}"
    return response


def api_ranges(bootstrap: str) -> dict[int, tuple[int, int]]:
    """API key to (lowest, highest) version that the broker offers."""
    with Connection(bootstrap) as connection:
        response = connection.call(
            ApiVersionsRequest(client_software_name="judge", client_software_version="1"), 3
        )
    assert response.error_code == NONE
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def topic_id(connection: Connection, topic: str) -> Any:
    """The id that Metadata gives for `topic`."""
    wanted = MetadataRequest.MetadataRequestTopic(name=topic)
    request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
    (found,) = connection.call(request, 12).topics
    assert found.error_code == NONE, found
    return found.topic_id


def only(items: Iterable[Any]) -> Any:
    """The one item of `items`."""
    (item,) = items
    return item
