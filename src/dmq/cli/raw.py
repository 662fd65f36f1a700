"""Questions to a broker that librdkafka does not ask: which APIs it speaks, how large its logs are.

Owns a small blocking exchange on our own `wire`, over plain connections only; on a cluster with TLS
or a login the answers are "unknown". Never used for records.
"""

import socket
import struct
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, cast

from dmq.cli.knock import CONNECT_TIMEOUT_S, HANGS_UP
from dmq.errors import ProtocolError
from dmq.wire import registry
from dmq.wire.messages.k18_api_versions import ApiVersionsRequest
from dmq.wire.messages.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

API_VERSIONS = 18
DESCRIBE_LOG_DIRS = 35
_ANSWER_BYTES_MAX = 64 << 20


class Exchange:
    """One connection on which a question is asked and its answer read, in turn."""

    def __init__(
        self, host: str, port: int, *, connect_timeout_s: float = CONNECT_TIMEOUT_S
    ) -> None:
        self._socket = socket.create_connection((host, port), timeout=connect_timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def ask(
        self, key: int, version: int, request: Any, timeout_s: float = CONNECT_TIMEOUT_S
    ) -> Any:
        """One request and its response. Raises OSError or ProtocolError."""
        self._socket.settimeout(timeout_s)
        self._correlation_id += 1
        api = registry.api(key)
        header = registry.encode_request_header(key, version, self._correlation_id, "dmq-cli")
        body = b"".join(cast(list[bytes], api.encode_request(version, request)))
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", self._receive(4))
        if not 4 <= size <= _ANSWER_BYTES_MAX:
            raise ProtocolError(f"an answer of {size} bytes")
        answer = self._receive(size)
        correlation_id, start = registry.decode_response_header(key, version, answer)
        if correlation_id != self._correlation_id:
            raise ProtocolError("an answer to another question")
        return api.decode_response(version, answer, start)

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            received += piece
        return bytes(received)


def api_versions(host: str, port: int) -> dict[int, tuple[int, int]]:
    """API key → lowest and highest version. Raises OSError or ProtocolError."""
    with Exchange(host, port) as exchange:
        return versions_of(exchange)


def versions_of(exchange: Exchange) -> dict[int, tuple[int, int]]:
    """API key → lowest and highest version. Raises OSError or ProtocolError."""
    # Version 0 is understood by every broker there ever was.
    try:
        response = exchange.ask(API_VERSIONS, 0, ApiVersionsRequest())
    except ConnectionResetError as error:
        raise ConnectionResetError(HANGS_UP) from error
    if response.error_code:
        raise ProtocolError(f"ApiVersions was refused with error {response.error_code}")
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def partition_sizes(
    brokers: Iterable[tuple[int, str, int]], topics: Mapping[str, int]
) -> dict[tuple[int, str, int], int]:
    """(broker, topic, partition) → bytes on disk, as far as the brokers say.

    `brokers` are (id, host, port); `topics` name → number of partitions. A broker that does not
    answer, or not in a way we understand, is left out: sizes are a courtesy.
    """
    request = DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(name, list(range(count))) for name, count in topics.items()]
    )
    sizes: dict[tuple[int, str, int], int] = {}
    for node, host, port in brokers:
        try:
            with Exchange(host, port) as exchange:
                response = exchange.ask(DESCRIBE_LOG_DIRS, 1, request)
        except (OSError, ProtocolError):
            continue
        for result in response.results:
            for topic in result.topics:
                for partition in topic.partitions:
                    if not partition.is_future_key:
                        where = (node, topic.name, partition.partition_index)
                        sizes[where] = partition.partition_size
    return sizes
