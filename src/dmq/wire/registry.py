"""The APIs that we speak: key, name, versions, and how to read and write their messages.

The table knows no message: an API's module is imported, and a codec compiled, when first used, so
that a broker is ready before it has met seventy APIs. Called by the doors, and by tests.

Request headers are version 2 where the API's version is flexible, else 1; response headers 1 or 0.
ApiVersions differs: its response header is always 0, for a client that does not know us yet. In
either request header the client id is a string of the old form.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from re import sub
from struct import Struct
from struct import error as StructError  # noqa: N812 (it is a class)
from types import ModuleType
from typing import Any

from dmq.errors import ProtocolError
from dmq.wire.codec import NEVER_FLEXIBLE, Decoders, Encoders, Versions
from dmq.wire.decoder import Decode
from dmq.wire.encoder import Encode, Parts
from dmq.wire.primitives import Buffer, malformed, skip_tags

PRODUCE = 0
API_VERSIONS = 18

_new = object.__new__
_HEADER_START = Struct(">hhih")
_CORRELATION = Struct(">i")
_CORRELATION_AND_NO_TAGS = Struct(">ix")


class Api:
    """One API key: its versions, its message types, and their codecs by version."""

    def __init__(self, key: int, name: str, versions: Versions) -> None:
        self.key = key
        self.name = name
        self.min_version = versions.lowest
        self.max_version = versions.highest
        self.first_flexible = versions.first_flexible
        self._decode_request = Decoders(lambda: self.request_type, versions)
        self._encode_request = Encoders(lambda: self.request_type, versions)
        self._decode_response = Decoders(lambda: self.response_type, versions)
        self._encode_response = Encoders(lambda: self.response_type, versions)

    @property
    def advertised_min_version(self) -> int:
        """What ApiVersions says. For Produce it is 0, though versions before 3 are refused:

        older librdkafka judges from it whether it may compress (KAFKA-18659).
        """
        return 0 if self.key == PRODUCE else self.min_version

    @cached_property
    def module(self) -> ModuleType:
        """The module with the message tables, imported when first asked for."""
        words = sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()
        return import_module(f"dmq.wire.messages.k{self.key:02d}_{words}")

    @cached_property
    def request_type(self) -> type:
        """The class of the request, for all versions."""
        request: type = getattr(self.module, f"{self.name}Request")
        return request

    @cached_property
    def response_type(self) -> type:
        """The class of the response, for all versions."""
        response: type = getattr(self.module, f"{self.name}Response")
        return response

    def is_flexible(self, version: int) -> bool:
        """Does the version have compact lengths and tagged fields?"""
        return version >= self.first_flexible

    def request_decoder(self, version: int) -> Decode:
        """The compiled `decode_request_end` of one version. Raises ProtocolError as that does."""
        return self._decode_request[version]

    def response_encoder(self, version: int) -> Encode:
        """The compiled `encode_response` of one version."""
        return self._encode_response[version]

    def decode_request(self, version: int, buf: Buffer, pos: int = 0) -> Any:
        """The request in the bytes. Bytes after it are left alone: some clients send a few.

        Raises ProtocolError if the bytes are no such message, or for a version we don't speak.
        """
        return self._decode_request[version](buf, pos)[0]

    def decode_request_end(self, version: int, buf: Buffer, pos: int = 0) -> tuple[Any, int]:
        """Like `decode_request`, with the position after the request."""
        return self._decode_request[version](buf, pos)

    def encode_request(self, version: int, message: Any) -> Parts:
        """The request as parts for one vectored write, without header."""
        return self._encode_request[version](message)

    def decode_response(self, version: int, buf: Buffer, pos: int = 0) -> Any:
        """The response in the bytes, raises ProtocolError like `decode_request`."""
        return self._decode_response[version](buf, pos)[0]

    def encode_response(self, version: int, message: Any) -> Parts:
        """The response as parts for one vectored write, without header.

        Values of `records` fields are parts of their own, as they were given; the rest is bytes.
        """
        return self._encode_response[version](message)

    def __repr__(self) -> str:
        return f"<Api {self.key} {self.name} {self.min_version}-{self.max_version}>"


def _row(key: int, name: str, lowest: int, highest: int, first_flexible: int) -> tuple[int, Api]:
    return key, Api(key, name, Versions(lowest, highest, first_flexible))


APIS: dict[int, Api] = dict((
    # key, name, lowest and highest version, first flexible version
    _row(0, "Produce", 3, 13, 9),
    _row(1, "Fetch", 4, 18, 12),
    _row(2, "ListOffsets", 1, 11, 6),
    _row(3, "Metadata", 0, 13, 9),
    _row(8, "OffsetCommit", 2, 10, 8),
    _row(9, "OffsetFetch", 1, 10, 6),
    _row(10, "FindCoordinator", 0, 6, 3),
    _row(11, "JoinGroup", 0, 9, 6),
    _row(12, "Heartbeat", 0, 4, 4),
    _row(13, "LeaveGroup", 0, 5, 4),
    _row(14, "SyncGroup", 0, 5, 4),
    _row(15, "DescribeGroups", 0, 6, 5),
    _row(16, "ListGroups", 0, 5, 3),
    _row(17, "SaslHandshake", 0, 1, NEVER_FLEXIBLE),
    _row(18, "ApiVersions", 0, 4, 3),
    _row(19, "CreateTopics", 2, 7, 5),
    _row(20, "DeleteTopics", 1, 6, 4),
    _row(21, "DeleteRecords", 0, 2, 2),
    _row(22, "InitProducerId", 0, 5, 2),
    _row(23, "OffsetForLeaderEpoch", 2, 4, 4),
    _row(24, "AddPartitionsToTxn", 0, 5, 3),
    _row(25, "AddOffsetsToTxn", 0, 4, 3),
    _row(26, "EndTxn", 0, 5, 3),
    _row(27, "WriteTxnMarkers", 1, 2, 1),
    _row(28, "TxnOffsetCommit", 0, 5, 3),
    _row(29, "DescribeAcls", 1, 3, 2),
    _row(30, "CreateAcls", 1, 3, 2),
    _row(31, "DeleteAcls", 1, 3, 2),
    _row(32, "DescribeConfigs", 1, 4, 4),
    _row(33, "AlterConfigs", 0, 2, 2),
    _row(34, "AlterReplicaLogDirs", 1, 2, 2),
    _row(35, "DescribeLogDirs", 1, 5, 2),
    _row(36, "SaslAuthenticate", 0, 2, 2),
    _row(37, "CreatePartitions", 0, 3, 2),
    _row(38, "CreateDelegationToken", 1, 3, 2),
    _row(39, "RenewDelegationToken", 1, 2, 2),
    _row(40, "ExpireDelegationToken", 1, 2, 2),
    _row(41, "DescribeDelegationToken", 1, 3, 2),
    _row(42, "DeleteGroups", 0, 2, 2),
    _row(43, "ElectLeaders", 0, 2, 2),
    _row(44, "IncrementalAlterConfigs", 0, 1, 1),
    _row(45, "AlterPartitionReassignments", 0, 1, 0),
    _row(46, "ListPartitionReassignments", 0, 0, 0),
    _row(47, "OffsetDelete", 0, 0, NEVER_FLEXIBLE),
    _row(48, "DescribeClientQuotas", 0, 1, 1),
    _row(49, "AlterClientQuotas", 0, 1, 1),
    _row(50, "DescribeUserScramCredentials", 0, 0, 0),
    _row(51, "AlterUserScramCredentials", 0, 0, 0),
    _row(55, "DescribeQuorum", 0, 2, 0),
    _row(57, "UpdateFeatures", 0, 2, 0),
    _row(60, "DescribeCluster", 0, 2, 0),
    _row(61, "DescribeProducers", 0, 0, 0),
    _row(64, "UnregisterBroker", 0, 0, 0),
    _row(65, "DescribeTransactions", 0, 0, 0),
    _row(66, "ListTransactions", 0, 2, 0),
    _row(68, "ConsumerGroupHeartbeat", 0, 1, 0),
    _row(69, "ConsumerGroupDescribe", 0, 1, 0),
    _row(71, "GetTelemetrySubscriptions", 0, 0, 0),
    _row(72, "PushTelemetry", 0, 0, 0),
    _row(74, "ListConfigResources", 0, 1, 0),
    _row(75, "DescribeTopicPartitions", 0, 0, 0),
    _row(76, "ShareGroupHeartbeat", 1, 1, 0),
    _row(77, "ShareGroupDescribe", 1, 1, 0),
    _row(78, "ShareFetch", 1, 2, 0),
    _row(79, "ShareAcknowledge", 1, 2, 0),
    _row(80, "AddRaftVoter", 0, 1, 0),
    _row(81, "RemoveRaftVoter", 0, 0, 0),
    _row(83, "InitializeShareGroupState", 0, 0, 0),
    _row(84, "ReadShareGroupState", 0, 0, 0),
    _row(85, "WriteShareGroupState", 0, 1, 0),
    _row(86, "DeleteShareGroupState", 0, 0, 0),
    _row(87, "ReadShareGroupStateSummary", 0, 1, 0),
    _row(88, "StreamsGroupHeartbeat", 0, 0, 0),
    _row(89, "StreamsGroupDescribe", 0, 0, 0),
    _row(90, "DescribeShareGroupOffsets", 0, 1, 0),
    _row(91, "AlterShareGroupOffsets", 0, 0, 0),
    _row(92, "DeleteShareGroupOffsets", 0, 0, 0),
))  # fmt: skip
"""What brokers and clients say to each other in Kafka 4.3, by key.

Left out: what only controllers say (52-54, 56, 58-59, 62-63, 67, 70, 73, 82)."""


def api(key: int) -> Api:
    """The API of a key. Raises ProtocolError if we don't speak it."""
    found = APIS.get(key)
    if found is None:
        raise ProtocolError(f"unknown API key {key}")
    return found


@dataclass(slots=True)
class RequestHeader:
    """What every request starts with; `end` is where its body starts."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    end: int


def decode_request_header(buf: Buffer, pos: int = 0) -> RequestHeader:
    """The header of a request. Raises ProtocolError if the bytes are none.

    Of a key that we don't speak the part that all header versions share is read, so that the
    answer can carry the correlation id. The version may be one that we don't speak.
    """
    try:
        key, version, correlation_id, length = _HEADER_START.unpack_from(buf, pos)
        pos += _HEADER_START.size
        client_id = None
        if length >= 0:
            client_id = str(buf[pos : pos + length], "utf-8")
            pos += length
        elif length != -1:
            raise ProtocolError(f"client id of {length} bytes")
        known = APIS.get(key)
        if known is not None and version >= known.first_flexible:
            tag_count = buf[pos]
            pos += 1
            if tag_count:
                pos = skip_tags(buf, pos, len(buf), tag_count)
    except (IndexError, StructError, UnicodeDecodeError) as cause:
        raise malformed("RequestHeader", cause) from None
    if pos > len(buf):
        raise malformed("RequestHeader")
    header = _new(RequestHeader)  # Half the time of calling the class.
    header.api_key = key
    header.api_version = version
    header.correlation_id = correlation_id
    header.client_id = client_id
    header.end = pos
    return header


def encode_request_header(
    key: int, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """The header of a request, as a client sends it."""
    raw = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(raw)
    tags = b"\0" if api(key).is_flexible(version) else b""
    return _HEADER_START.pack(key, version, correlation_id, length) + raw + tags


def encode_response_header(key: int, version: int, correlation_id: int) -> bytes:
    """The header of a response."""
    if key != API_VERSIONS and api(key).is_flexible(version):
        return _CORRELATION_AND_NO_TAGS.pack(correlation_id)
    return _CORRELATION.pack(correlation_id)


def decode_response_header(key: int, version: int, buf: Buffer, pos: int = 0) -> tuple[int, int]:
    """The correlation id of a response and where its body starts.

    Raises ProtocolError if the bytes are no header.
    """
    try:
        (correlation_id,) = _CORRELATION.unpack_from(buf, pos)
        pos += _CORRELATION.size
        if key != API_VERSIONS and api(key).is_flexible(version):
            pos = skip_tags(buf, pos + 1, len(buf), buf[pos])
    except (IndexError, StructError) as cause:
        raise malformed("ResponseHeader", cause) from None
    return correlation_id, pos
