"""Keys hash as kafka-python (Java's rule), zlib and librdkafka hash them."""

import zlib
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_others

from dmq.spark.partitioner import PARTITIONERS, crc32, murmur2
from dmq.testing import Broker

KEYS = st.lists(st.binary(max_size=40), max_size=60)


def column(keys: list[bytes]) -> Any:
    """Keys inside of a larger array: a slice has an offset."""
    return pa.array([b"before", *keys, b"after"], pa.binary()).slice(1, len(keys))


@given(KEYS)
def test_murmur2_is_javas(keys: list[bytes]) -> None:
    expected = [murmur2_of_others(key) & 0xFFFFFFFF for key in keys]
    assert murmur2(column(keys)).tolist() == expected


@given(KEYS)
def test_crc32_is_zlibs(keys: list[bytes]) -> None:
    assert crc32(column(keys)).tolist() == [zlib.crc32(key) for key in keys]


@given(KEYS.filter(bool), st.integers(1, 500))
def test_the_name_java_means_murmur2_without_a_sign(keys: list[bytes], count: int) -> None:
    expected = [(murmur2_of_others(key) & 0x7FFFFFFF) % count for key in keys]
    for name in ("java", "murmur2_random"):
        assert PARTITIONERS[name].partitions(column(keys), count).tolist() == expected


def test_which_rows_count_as_keyless() -> None:
    keys = pa.array([b"a", None, b""], pa.binary())
    assert PARTITIONERS["java"].keyless(keys).tolist() == [False, True, False]
    assert PARTITIONERS["consistent_random"].keyless(keys).tolist() == [False, True, True]


def test_no_keys_at_all() -> None:
    assert murmur2(pa.array([], pa.binary())).tolist() == []
    assert crc32(pa.array([b"", b""], pa.binary())).tolist() == [0, 0]


@pytest.mark.parametrize("name", ["murmur2_random", "consistent_random"])
def test_librdkafka_sends_the_same_keys_to_the_same_partitions(name: str) -> None:
    keys = [f"key-{i}".encode() * (1 + i % 5) for i in range(200)]
    told: dict[bytes, int] = {}
    with Broker(settings={"num.partitions": 7}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": name})
        for key in keys:
            producer.produce(
                "keyed", key=key, on_delivery=lambda _, m: told.update({m.key(): m.partition()})
            )
        assert producer.flush(30) == 0
    ours = PARTITIONERS[name].partitions(column(keys), 7).tolist()
    assert dict(zip(keys, ours, strict=True)) == told
