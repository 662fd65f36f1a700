"""The corners of the protocol that clients rely on, byte by byte."""

from struct import pack
from uuid import UUID

import pytest

from dmq.errors import ErrorCode, ProtocolError
from dmq.types import NIL_UUID
from dmq.wire import registry
from dmq.wire.messages.k00_produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from dmq.wire.messages.k01_fetch import FetchableTopicResponse, FetchResponse, PartitionData
from dmq.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from dmq.wire.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from dmq.wire.messages.k75_describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest

PRODUCE, FETCH, METADATA = registry.api(0), registry.api(1), registry.api(3)


class FileSlice:
    """Something with a length that no one may read here, like a range of a segment."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


class TestHeaders:
    def test_version_1_has_no_tags(self) -> None:
        raw = bytes.fromhex("0003 0004 00000007 0002") + b"me" + b"body"
        assert registry.decode_request_header(raw) == registry.RequestHeader(3, 4, 7, "me", 12)

    def test_version_2_keeps_the_old_string_and_adds_tags(self) -> None:
        raw = bytes.fromhex("0003 0009 00000007 0002") + b"me" + b"\0" + b"body"
        assert registry.decode_request_header(raw).end == 13

    def test_unknown_tags_of_the_header_are_stepped_over(self) -> None:
        raw = bytes.fromhex("0003 0009 00000007 ffff 02 05 01 aa 06 00") + b"body"
        header = registry.decode_request_header(raw)
        assert header.client_id is None
        assert raw[header.end :] == b"body"

    def test_position_is_honoured(self) -> None:
        raw = b"....." + registry.encode_request_header(3, 9, 7, "x")
        assert registry.decode_request_header(raw, 5).end == len(raw)

    @pytest.mark.parametrize("key", [4, 62, 500, -1])
    def test_of_an_unknown_key_the_common_part_is_read(self, key: int) -> None:
        raw = pack(">hhih", key, 99, 1234, 3) + b"abc" + b"\xff\xff"
        header = registry.decode_request_header(raw)
        assert (header.api_key, header.correlation_id, header.client_id) == (key, 1234, "abc")

    def test_of_an_unknown_version_too(self) -> None:
        header = registry.decode_request_header(pack(">hhihb", 18, 99, 1, -1, 0))
        assert (header.api_version, header.end) == (99, 11)

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            pack(">hhi", 3, 4, 7),
            pack(">hhih", 3, 4, 7, -2),
            pack(">hhih", 3, 4, 7, 100) + b"short",
            pack(">hhih", 3, 4, 7, 2) + b"\xff\xfe",
            pack(">hhih", 3, 9, 7, -1),
        ],
    )
    def test_a_broken_header_is_refused(self, raw: bytes) -> None:
        with pytest.raises(ProtocolError):
            registry.decode_request_header(raw)

    def test_response_header_has_tags_from_the_first_flexible_version(self) -> None:
        assert registry.encode_response_header(3, 8, 7) == bytes.fromhex("00000007")
        assert registry.encode_response_header(3, 9, 7) == bytes.fromhex("0000000700")

    @pytest.mark.parametrize("version", range(5))
    def test_api_versions_response_header_never_has(self, version: int) -> None:
        assert registry.encode_response_header(18, version, 7) == bytes.fromhex("00000007")

    @pytest.mark.parametrize(("key", "version"), [(3, 8), (3, 9), (18, 4), (17, 1)])
    def test_response_header_round_trip(self, key: int, version: int) -> None:
        raw = registry.encode_response_header(key, version, -5)
        assert registry.decode_response_header(key, version, raw) == (-5, len(raw))

    @pytest.mark.parametrize("raw", ["000000", "00000007", "00000007 01 00 05", "00000007 ff"])
    def test_a_broken_response_header_is_refused(self, raw: str) -> None:
        with pytest.raises(ProtocolError):
            registry.decode_response_header(3, 9, bytes.fromhex(raw))


class TestTable:
    def test_unknown_key(self) -> None:
        with pytest.raises(ProtocolError, match="62"):
            registry.api(62)

    def test_versions_outside_are_refused_both_ways(self) -> None:
        for version in (-1, 2, 14):
            with pytest.raises(ProtocolError, match="not in 3-13"):
                PRODUCE.decode_request(version, b"")
            with pytest.raises(ProtocolError, match="not in 3-13"):
                PRODUCE.encode_response(version, ProduceResponse())

    def test_produce_is_advertised_from_zero(self) -> None:
        """librdkafka 2.0 would not compress otherwise (KAFKA-18659)."""
        assert (PRODUCE.advertised_min_version, PRODUCE.min_version) == (0, 3)
        assert FETCH.advertised_min_version == FETCH.min_version == 4

    def test_every_module_is_in_the_table_and_every_row_has_its_module(self) -> None:
        for key, api in registry.APIS.items():
            assert api.key == key
            assert api.module.__name__.startswith(f"dmq.wire.messages.k{key:02d}_")
            assert api.request_type.__name__ == f"{api.name}Request"
            assert api.response_type.__name__ == f"{api.name}Response"


class TestNullAndEmpty:
    def test_all_topics_is_empty_in_metadata_0_and_null_after(self) -> None:
        assert b"".join(METADATA.encode_request(0, MetadataRequest())) == bytes(4)
        assert METADATA.encode_request(1, MetadataRequest(topics=None)) == [b"\xff" * 4]
        assert METADATA.decode_request(1, b"\xff" * 4).topics is None
        assert METADATA.decode_request(1, bytes(4)).topics == []

    def test_compact_null_is_0_and_empty_is_1(self) -> None:
        (null,) = METADATA.encode_request(9, MetadataRequest(topics=None))
        (empty,) = METADATA.encode_request(9, MetadataRequest(topics=[]))
        assert (bytes(null)[0], bytes(empty)[0]) == (0, 1)

    def test_null_where_none_may_be(self) -> None:
        with pytest.raises(ProtocolError, match="topics"):
            METADATA.decode_request(0, b"\xff" * 4)
        with pytest.raises(ProtocolError, match="name"):
            METADATA.decode_request(9, b"\x02\x00\x00\x01\x00\x00\x00")
        with pytest.raises(ProtocolError):
            METADATA.decode_request(1, b"\xff\xff\xff\xfe")

    def test_null_struct(self) -> None:
        api = registry.api(75)
        request = DescribeTopicPartitionsRequest(topics=[], cursor=None)
        raw = b"".join(api.encode_request(0, request))
        assert raw == bytes.fromhex("01 000007d0 ff 00")
        request.cursor = Cursor(topic_name="t", partition_index=3)
        raw = b"".join(api.encode_request(0, request))
        assert raw == bytes.fromhex("01 000007d0 01 0274 00000003 00 00")
        assert api.decode_request(0, raw) == request

    def test_uuid_of_zeros(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=None)])
        raw = b"".join(METADATA.encode_request(12, request))
        assert raw == b"\x02" + bytes(16) + b"\x00\x00" + b"\x01\x00\x00"
        assert METADATA.decode_request(12, raw).topics[0].topic_id == NIL_UUID
        request.topics = [MetadataRequestTopic(topic_id=UUID(int=5), name=None)]
        raw = b"".join(METADATA.encode_request(12, request))
        assert METADATA.decode_request(12, raw).topics[0].topic_id == UUID(int=5)

    def test_a_field_that_the_version_lacks_has_its_default(self) -> None:
        raw = b"".join(METADATA.encode_request(3, MetadataRequest(allow_auto_topic_creation=False)))
        assert METADATA.decode_request(3, raw).allow_auto_topic_creation is True


class TestTags:
    def test_defaults_are_not_sent(self) -> None:
        answer = PartitionProduceResponse(current_leader=LeaderIdAndEpoch())
        plain = PartitionProduceResponse(current_leader=None)
        assert self.encoded(answer) == self.encoded(plain)

    def test_a_struct_that_was_not_sent_is_none(self) -> None:
        raw = self.encoded(PartitionProduceResponse())
        decoded = PRODUCE.decode_response(10, raw)
        assert decoded.responses[0].partition_responses[0].current_leader is None

    def test_a_struct_that_was_sent(self) -> None:
        leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
        raw = self.encoded(PartitionProduceResponse(current_leader=leader))
        decoded = PRODUCE.decode_response(10, raw)
        assert decoded.responses[0].partition_responses[0].current_leader == leader

    @pytest.mark.parametrize(
        "section",
        [
            "01 05 03 aa",  # ends too early
            "02 05 00 05 00",  # twice
            "02 06 00 05 00",  # descending
            "ff ff ff ff 0f",  # so many
            "01 00 04 00 00 00 00",  # no room for node_endpoints' own count
            "01 00 02 01 00",  # longer than the field
            "01 ff ff ff ff ff 01 00",  # a tag of 36 bits
        ],
    )
    def test_broken_sections(self, section: str) -> None:
        body = bytes.fromhex("01 00000000") + bytes.fromhex(section)
        with pytest.raises(ProtocolError):
            PRODUCE.decode_response(10, body)

    @staticmethod
    def encoded(partition: PartitionProduceResponse) -> bytes:
        topic = TopicProduceResponse(name="t", partition_responses=[partition])
        return b"".join(PRODUCE.encode_response(10, ProduceResponse(responses=[topic])))  # type: ignore[arg-type]


class TestRecords:
    def test_decoded_as_a_view_of_the_frame(self) -> None:
        frame = bytearray(b"".join(self.produce(b"x" * 300)))
        for version in (9,):
            request = PRODUCE.decode_request(version, memoryview(frame))
            records = request.topic_data[0].partition_data[0].records
            assert isinstance(records, memoryview)
            assert bytes(records) == b"x" * 300
            frame[frame.index(b"x")] = ord("y")
            assert records[0] == ord("y")

    @pytest.mark.parametrize("version", [4, 11, 12, 18])
    def test_a_slice_of_a_file_is_handed_on_untouched(self, version: int) -> None:
        piece = FileSlice(1 << 20)
        partition = PartitionData(records=piece, aborted_transactions=None)
        topic = FetchableTopicResponse(topic="t", partitions=[partition, partition])
        parts = FETCH.encode_response(version, FetchResponse(responses=[topic]))
        assert [part is piece for part in parts] == [
            False,
            True,
            False,
            True,
            *[False] * (version > 11),
        ]
        assert all(isinstance(part, bytes) for part in parts if part is not piece)
        assert bytes(parts[0]).endswith(b"\x81\x80\x40" if version > 11 else b"\x00\x10\x00\x00")

    def test_nothing_is_not_a_part(self) -> None:
        partition = PartitionData(records=FileSlice(0))
        topic = FetchableTopicResponse(topic="t", partitions=[partition])
        parts = FETCH.encode_response(12, FetchResponse(responses=[topic]))
        assert [type(part) for part in parts] == [bytes]

    def test_null(self) -> None:
        parts = self.produce(None)
        request = PRODUCE.decode_request(9, b"".join(parts))
        assert request.topic_data[0].partition_data[0].records is None

    def test_longer_than_the_frame(self) -> None:
        raw = b"".join(self.produce(b"x" * 300))
        with pytest.raises(ProtocolError):
            PRODUCE.decode_request(9, raw[:-4])

    @staticmethod
    def produce(records: bytes | None) -> list[bytes]:
        partition = PartitionProduceData(index=1, records=records)
        topic = TopicProduceData(name="t", partition_data=[partition])
        return PRODUCE.encode_request(9, ProduceRequest(acks=-1, topic_data=[topic]))  # type: ignore[return-value]


class TestBounds:
    def test_trailing_bytes_are_left_alone(self) -> None:
        """librdkafka 2.16 sends three stray bytes after Metadata."""
        raw = b"".join(METADATA.encode_request(9, MetadataRequest(topics=None)))
        message, end = METADATA.decode_request_end(9, raw + b"abc")
        assert message.topics is None
        assert end == len(raw)

    @pytest.mark.parametrize(("count", "elements"), [("65", 100), ("ff7f", 16382)])
    def test_a_count_that_the_bytes_cannot_hold(self, count: str, elements: int) -> None:
        with pytest.raises(ProtocolError, match=f"topics: {elements} elements announced, 9 bytes"):
            METADATA.decode_request(9, bytes.fromhex(count) + bytes(9))

    def test_all_elements_together_are_bounded(self) -> None:
        """Two-byte topics would each take a hundred bytes of memory."""
        count = b"\x81\x89\x7a"  # 2,000,000 + 1 elements
        raw = count + b"\x01\x00" * 2_000_000 + b"\x01\x00\x00\x00"
        with pytest.raises(ProtocolError, match="2000000 elements"):
            METADATA.decode_request(9, raw)

    def test_elements_of_nested_arrays_count_too(self) -> None:
        """A thousand topics with a thousand partitions and more each, in Fetch 12."""
        partitions = b"\xd1\x0f" + bytes(33) * 2000 + b"\0"
        raw = bytes(25) + b"\xe9\x07" + (b"\x02t" + partitions) * 1000
        with pytest.raises(ProtocolError, match="partitions: 2000 elements"):
            FETCH.decode_request(12, raw)

    @pytest.mark.parametrize("raw", [b"\xff" * 5, b"\xff\xff\xff\xff\x10", b"\x80" * 9])
    def test_varint_overflow(self, raw: bytes) -> None:
        with pytest.raises(ProtocolError):
            METADATA.decode_request(9, raw + bytes(50))

    @pytest.mark.parametrize("text", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80"])
    def test_text_that_is_none(self, text: bytes) -> None:
        raw = b"\x00\x00\x00\x01" + pack(">h", len(text)) + text
        with pytest.raises(ProtocolError):
            METADATA.decode_request(0, raw)


def test_api_versions_with_an_error_still_lists_the_keys() -> None:
    """The answer to an unknown version: header 0, body 0, error 35, and the keys (franz-go)."""
    api = registry.api(18)
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)],
    )
    raw = registry.encode_response_header(18, 0, 7) + b"".join(api.encode_response(0, response))  # type: ignore[arg-type]
    assert raw == bytes.fromhex("00000007 0023 00000001 0012 0000 0004")
