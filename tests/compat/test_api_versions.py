"""ApiVersions, the first thing any client says: every version, unknown versions, odd requests."""

import struct

import pytest
from compat.wire import (
    NONE,
    UNSUPPORTED_VERSION,
    Connection,
    EndOfConnectionError,
    address,
    api_ranges,
    decode,
    only,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest

API_VERSIONS = 18
# What a 2026 client may ask of a broker that has no groups and no transactions yet.
NEEDED = {
    0: (3, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    10: (0, 6),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    32: (1, 4),
    33: (0, 2),
    35: (1, 5),
    37: (0, 3),
    44: (0, 1),
    60: (0, 2),
    74: (0, 1),
    75: (0, 0),
}


def request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="judge", client_software_version="1")


@pytest.mark.parametrize("version", range(5))
def test_every_version_lists_the_same(version: int, bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        answer = connection.call(request(), version)
    assert answer.error_code == NONE
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert ranges == api_ranges(bootstrap)
    assert all(low <= high for low, high in ranges.values())


def test_all_that_clients_need_is_offered(bootstrap: str) -> None:
    offered = api_ranges(bootstrap)
    short = {
        key: offered.get(key)
        for key, (low, high) in NEEDED.items()
        if key not in offered or offered[key][0] > low or offered[key][1] < high
    }
    assert short == {}


def test_produce_is_advertised_from_zero(bootstrap: str) -> None:
    """librdkafka before 2.11 silently stops compressing if it is not (KAFKA-18659)."""
    assert api_ranges(bootstrap)[0][0] == 0


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_unknown_version_is_answered_in_version_0_with_the_list(
    version: int, bootstrap: str
) -> None:
    """franz-go takes the list from this very answer and asks no second time."""
    with Connection(bootstrap) as connection:
        connection.send_bytes(frame(API_VERSIONS, version, 7, b"\0\0\0"))
        body = connection.read_frame()
        # The connection goes on as if nothing had been said.
        assert connection.call(request(), 3).error_code == NONE
    answer = decode(ApiVersionsResponse, 0, 7, body)
    assert answer.error_code == UNSUPPORTED_VERSION
    own = only(api for api in answer.api_keys if api.api_key == API_VERSIONS)
    assert (own.min_version, own.max_version) == (0, 4)


def test_it_may_be_asked_again_at_any_time(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        for version in (3, 0, 4, 2, 3):
            assert connection.call(request(), version).error_code == NONE
            assert connection.call(MetadataRequest(topics=[]), 9).brokers


def test_a_client_id_may_be_null_or_not_ascii(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        for client_id in (struct.pack(">h", -1), struct.pack(">h", 2) + "é".encode()):
            head = struct.pack(">hhi", API_VERSIONS, 0, 9) + client_id
            connection.send_bytes(struct.pack(">i", len(head)) + head)
            assert connection.read_frame()[:6] == struct.pack(">ih", 9, NONE)


def test_bytes_after_the_request_do_no_harm(bootstrap: str) -> None:
    """librdkafka's request for all topics carries three stray bytes."""
    asked = MetadataRequest(topics=None)
    asked.API_VERSION = 9
    asked.with_header(correlation_id=5, client_id="stray")
    body = bytes(asked.encode(header=True)) + b"\0\0\0"
    with Connection(bootstrap) as connection:
        connection.send_bytes(struct.pack(">i", len(body)) + body)
        assert connection.read_frame()[:4] == struct.pack(">i", 5)
        assert connection.call(request(), 3).error_code == NONE


@pytest.mark.parametrize(("key", "version"), [(9999, 0), (-1, 0), (4, 0), (3, 99), (1, 3), (3, -1)])
def test_what_is_not_offered_ends_the_connection(key: int, version: int, bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        connection.send_bytes(frame(key, version, 1, b"\0" * 20))
        with pytest.raises(EndOfConnectionError):
            connection.read_frame()


def test_brokers_are_named_by_an_address_that_works(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        answer = connection.call(MetadataRequest(topics=[]), 12)
    broker = only(answer.brokers)
    assert answer.controller_id == broker.node_id
    assert broker.port == address(bootstrap)[1]
    assert api_ranges(f"{broker.host}:{broker.port}")


def frame(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A request as bytes, with header v1, whatever its key and version."""
    head = struct.pack(">hhih", key, version, correlation_id, 4) + b"test"
    return struct.pack(">i", len(head) + len(body)) + head + body
