"""Settings, serializers and the weight of the import: what needs no broker."""

import json
import math
import subprocess
import sys

import pytest

import dmq.client
from dmq.client import (
    BYTES,
    JSON,
    TEXT,
    AckMode,
    CompressionType,
    ConfigError,
    Consumer,
    ConsumerConfig,
    GroupProtocol,
    IsolationLevel,
    OffsetResetPolicy,
    Producer,
    ProducerConfig,
    serializer_of,
)


def test_words_are_taken_for_members() -> None:
    config = ProducerConfig(["a:1", "b:2"], acks="all", compression_type="ZSTD")
    assert config.acks is AckMode.ALL
    assert config.compression_type is CompressionType.ZSTD
    assert config.librdkafka()["bootstrap.servers"] == "a:1,b:2"
    assert [ProducerConfig(acks=given).acks for given in (0, "1", -1)] == [
        AckMode.NONE,
        AckMode.LEADER,
        AckMode.ALL,
    ]
    consumer = ConsumerConfig(
        auto_offset_reset="earliest", group_protocol="consumer", isolation_level="read_uncommitted"
    )
    assert consumer.auto_offset_reset is OffsetResetPolicy.EARLIEST
    assert consumer.group_protocol is GroupProtocol.CONSUMER
    assert consumer.isolation_level is IsolationLevel.READ_UNCOMMITTED


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig("", acks="most", batch_size=0, linger_ms=-1, compression_type="rar")
    assert caught.value.problems == [
        "acks is 'most'; it is one of AckMode.NONE, AckMode.LEADER, AckMode.ALL",
        "compression_type is 'rar'; it is one of CompressionType.NONE, CompressionType.GZIP, "
        "CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD",
        'bootstrap_servers is empty; it is like "127.0.0.1:9092"',
        "batch_size is 0; it is a number from 1 to 2,147,483,647",
        "linger_ms is -1; it is a number from 0 to 900,000",
    ]
    with pytest.raises(ConfigError, match="max_poll_records"):
        ConsumerConfig(max_poll_records=0)
    with pytest.raises(ConfigError, match="must not be below session_timeout_ms"):
        ConsumerConfig(max_poll_interval_ms=1_000)
    with pytest.raises(ConfigError, match="group_id is empty"):
        ConsumerConfig(group_id="")


def test_idempotence_is_on_where_it_can_be() -> None:
    assert ProducerConfig().is_idempotent
    assert not ProducerConfig(acks=AckMode.LEADER).is_idempotent
    assert not ProducerConfig(retries=0).is_idempotent
    assert not ProducerConfig(enable_idempotence=False).is_idempotent
    assert ProducerConfig(transactional_id="t").librdkafka()["enable.idempotence"] is True
    for wrong in ({"acks": AckMode.LEADER}, {"retries": 0}, {"max_in_flight": 6}):
        with pytest.raises(ConfigError, match="enable_idempotence needs"):
            ProducerConfig(enable_idempotence=True, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="transactional_id needs"):
        ProducerConfig(transactional_id="t", enable_idempotence=False)


def test_librdkafka_takes_every_setting() -> None:
    producer = Producer(
        ProducerConfig(
            acks=AckMode.LEADER,
            batch_size=32_768,
            linger_ms=0.5,
            retries=3,
            compression_type="lz4",
            delivery_timeout_ms=1,
            max_in_flight=1,
            buffer_bytes=1 << 20,
        )
    )
    producer.close(0)
    for protocol in GroupProtocol:
        Consumer(
            ConsumerConfig(
                group_id="g",
                group_protocol=protocol,
                group_instance_id="i",
                remote_assignor="uniform",
                session_timeout_ms=6_000,
                fetch_min_bytes=100,
                auto_offset_reset=OffsetResetPolicy.NONE,
            )
        ).close()


def test_options_are_librdkafkas_and_are_checked_by_it() -> None:
    options = {"socket.nagle.disable": False, "linger.ms": 7}
    assert ProducerConfig(options=options).librdkafka()["linger.ms"] == 7
    with pytest.raises(ConfigError, match=r"no\.such"):
        Producer(ProducerConfig(options={"no.such": 1}))
    with pytest.raises(ConfigError, match=r"no\.such"):
        Consumer(ConsumerConfig(options={"no.such": 1}))


@pytest.mark.parametrize(
    ("serializer", "value", "data"),
    [
        (BYTES, b"\x00", b"\x00"),
        (TEXT, "größe", "größe".encode()),
        (JSON, {"a": [1, None, "ä"]}, '{"a":[1,null,"ä"]}'.encode()),
        (serializer_of(lambda n: b"%d" % n, int), 7, b"7"),
    ],
)
def test_serializers_go_both_ways(
    serializer: dmq.client.Serializer, value: object, data: bytes
) -> None:
    assert serializer.to_bytes(value, "t") == data
    assert serializer.from_bytes(data, "t") == value


def test_bytes_take_what_is_nearly_bytes() -> None:
    for given in ("ab", bytearray(b"ab"), memoryview(b"ab")):
        assert BYTES.to_bytes(given, "t") == b"ab"


@pytest.mark.parametrize(("serializer", "value"), [(TEXT, b"x"), (JSON, math.nan), (BYTES, 1)])
def test_serializers_refuse_what_they_can_not_write(
    serializer: dmq.client.Serializer, value: object
) -> None:
    with pytest.raises((TypeError, ValueError)):
        serializer.to_bytes(value, "t")


def test_every_name_is_there() -> None:
    assert dir(dmq.client) == sorted(dmq.client.__all__)
    for name in dmq.client.__all__:
        assert getattr(dmq.client, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = dmq.client.Nothing


def test_the_client_never_brings_the_broker() -> None:
    """The package alone brings nothing at all; the clients bring librdkafka and no part of the server."""
    code = """if True:
        import sys
        import dmq.client
        print("confluent_kafka" in sys.modules)
        for name in dmq.client.__all__:
            getattr(dmq.client, name)
        print(sorted({m.split(".")[1] for m in sys.modules if m.startswith("dmq.")}))
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["False", "['client', 'errors', 'types']"]


def test_what_is_no_setting_is_told_with_the_rest() -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig(
            9092,  # type: ignore[arg-type]
            acks=[1],  # type: ignore[arg-type]
            batch_size=1.5,  # type: ignore[arg-type]
            enable_idempotence="false",  # type: ignore[arg-type]
            value_serializer="json",  # type: ignore[arg-type]
            options=None,  # type: ignore[arg-type]
        )
    words = [problem.split(" is ")[0] for problem in caught.value.problems]
    assert words == [
        "acks",
        "value_serializer",
        "bootstrap_servers",
        "options",
        "enable_idempotence",
        "batch_size",
    ]
    with pytest.raises(ConfigError, match="enable_auto_commit is 'no'; it is True or False"):
        ConsumerConfig(enable_auto_commit="no")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"make one of it: ProducerConfig\("):
        Producer("127.0.0.1:9092")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is no ConsumerConfig"):
        Consumer(ProducerConfig())  # type: ignore[arg-type]


def test_other_clients_words_are_taken() -> None:
    config = ProducerConfig(acks="leader", compression_type=None, value_serializer=str.encode)  # type: ignore[arg-type]
    assert (config.acks, config.compression_type) == (AckMode.LEADER, CompressionType.NONE)
    assert config.value_serializer.to_bytes("ä", "any") == "ä".encode()  # type: ignore[union-attr]
    reading = ConsumerConfig(
        assignors="range", value_deserializer=json.loads, key_deserializer=None
    )  # type: ignore[arg-type]
    assert reading.assignors == ("range",)
    assert reading.value_deserializer.from_bytes(b"[1]", "any") == [1]  # type: ignore[union-attr]
    assert reading.key_deserializer is BYTES


def test_a_broker_that_is_back_is_called_soon() -> None:
    for config in (ProducerConfig("h:1"), ConsumerConfig("h:1", group_id="g")):
        assert config.librdkafka()["reconnect.backoff.max.ms"] <= 1000
