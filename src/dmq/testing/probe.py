"""What one broker says of the cluster: requests of our own, asked of exactly that broker.

Client libraries ask whomever they like and merge the answers; whoever waits for a cluster to agree
must hear each broker for itself. Blocking, plain connections. Called by `cluster`.
"""

import socket
import struct
from dataclasses import dataclass
from typing import Any, cast

from dmq.errors import ProtocolError
from dmq.wire import registry
from dmq.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from dmq.wire.messages.k55_describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

METADATA, DESCRIBE_QUORUM = 3, 55
_VERSION = 9
_ANSWER_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as a broker sees it; `leader` is -1 when it knows none."""

    topic: str
    partition: int
    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The brokers that a broker knows, the controller (-1: none) and the partitions."""

    brokers: frozenset[int]
    controller: int
    partitions: tuple[PartitionView, ...]


def view(address: tuple[str, int], topics: list[str] | None = None, timeout_s: float = 2.0) -> View:
    """Ask one broker; all topics without `topics`. Raises OSError or ProtocolError."""
    named = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
    with socket.create_connection(address, timeout=timeout_s) as connection:
        response = _ask(connection, METADATA, _VERSION, request)
    return View(
        frozenset(broker.node_id for broker in response.brokers),
        response.controller_id,
        tuple(
            PartitionView(
                str(topic.name),
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
            )
            for topic in response.topics
            for partition in topic.partitions
        ),
    )


def metadata_voters(address: tuple[str, int], timeout_s: float = 2.0) -> int:
    """How many brokers vote on the metadata; 0 if this one can't say now. Raises as `view`."""
    topic = TopicData("__cluster_metadata", [PartitionData(0)])
    request = DescribeQuorumRequest(topics=[topic])
    with socket.create_connection(address, timeout=timeout_s) as connection:
        response = _ask(connection, DESCRIBE_QUORUM, 0, request)
    return max(
        (len(each.current_voters) for topic in response.topics for each in topic.partitions),
        default=0,
    )


def _ask(connection: socket.socket, key: int, version: int, request: Any) -> Any:
    api = registry.api(key)
    header = registry.encode_request_header(key, version, 1, "dmq-testing")
    body = b"".join(cast(list[bytes], api.encode_request(version, request)))
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    if not 4 <= size <= _ANSWER_BYTES_MAX:
        raise ProtocolError(f"an answer of {size} bytes")
    answer = _receive(connection, size)
    _, start = registry.decode_response_header(key, version, answer)
    return api.decode_response(version, answer, start)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("the broker closed the connection")
        received += piece
    return bytes(received)
