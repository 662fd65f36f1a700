"""Producers and consumers for people: typed, with clear errors, on librdkafka.

    from dmq.client import Consumer, ConsumerConfig, Producer, ProducerConfig

    with Producer(ProducerConfig("127.0.0.1:9092")) as producer:
        metadata = producer.send("greetings", key="en", value="hello").result()

    with Consumer(ConsumerConfig("127.0.0.1:9092", group_id="readers")) as consumer:
        consumer.subscribe(["greetings"])
        for message in consumer:
            print(message.topic, message["value"])

`AsyncProducer` and `AsyncConsumer` are the same with `await`. They speak the Kafka protocol, so
they work with every broker that does. Never imports the broker; names are imported when they are
first asked for. `docs/CLIENT.md` is the guide.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmq.client.aio_consumer import AsyncConsumer
    from dmq.client.aio_producer import AsyncProducer
    from dmq.client.config import (
        AckMode,
        CompressionType,
        ConsumerConfig,
        GroupProtocol,
        IsolationLevel,
        OffsetResetPolicy,
        ProducerConfig,
    )
    from dmq.client.consumer import Consumer
    from dmq.client.errors import (
        AccessError,
        BufferFullError,
        ClientError,
        ClosedError,
        ConnectionFailedError,
        FencedError,
        GroupError,
        OffsetError,
        RecordTooLargeError,
        SerializationError,
        TimedOutError,
        TransactionAbortedError,
        TransactionError,
        UnknownTopicError,
    )
    from dmq.client.message import Message, RecordMetadata
    from dmq.client.producer import Producer
    from dmq.client.serializers import BYTES, JSON, TEXT, Serializer, serializer_of
    from dmq.errors import ConfigError
    from dmq.types import TopicPartition

_MODULES = {
    "dmq.client.aio_consumer": ["AsyncConsumer"],
    "dmq.client.aio_producer": ["AsyncProducer"],
    "dmq.client.config": [
        "AckMode",
        "CompressionType",
        "ConsumerConfig",
        "GroupProtocol",
        "IsolationLevel",
        "OffsetResetPolicy",
        "ProducerConfig",
    ],
    "dmq.client.consumer": ["Consumer"],
    "dmq.client.errors": [
        "AccessError",
        "BufferFullError",
        "ClientError",
        "ClosedError",
        "ConnectionFailedError",
        "FencedError",
        "GroupError",
        "OffsetError",
        "RecordTooLargeError",
        "SerializationError",
        "TimedOutError",
        "TransactionAbortedError",
        "TransactionError",
        "UnknownTopicError",
    ],
    "dmq.client.message": ["Message", "RecordMetadata"],
    "dmq.client.producer": ["Producer"],
    "dmq.client.serializers": ["BYTES", "JSON", "TEXT", "Serializer", "serializer_of"],
    "dmq.errors": ["ConfigError"],
    "dmq.types": ["TopicPartition"],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "BYTES",
    "JSON",
    "TEXT",
    "AccessError",
    "AckMode",
    "AsyncConsumer",
    "AsyncProducer",
    "BufferFullError",
    "ClientError",
    "ClosedError",
    "CompressionType",
    "ConfigError",
    "ConnectionFailedError",
    "Consumer",
    "ConsumerConfig",
    "FencedError",
    "GroupError",
    "GroupProtocol",
    "IsolationLevel",
    "Message",
    "OffsetError",
    "OffsetResetPolicy",
    "Producer",
    "ProducerConfig",
    "RecordMetadata",
    "RecordTooLargeError",
    "SerializationError",
    "Serializer",
    "TimedOutError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionError",
    "UnknownTopicError",
    "serializer_of",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
