"""The same with `await`: a producer and a consumer on one event loop.

python examples/asyncio_chat.py [HOST:PORT] [TOPIC]
"""

import asyncio
import sys

from dmq.client import TEXT, AsyncConsumer, AsyncProducer, ConsumerConfig, ProducerConfig

LINES = ["Is anybody there?", "Yes.", "Good."]


async def speak(servers: str, topic: str) -> None:
    async with AsyncProducer(ProducerConfig(servers, value_serializer=TEXT)) as producer:
        for line in LINES:
            metadata = await producer.send_and_wait(topic, line)
            print("said at offset", metadata.offset)


async def listen(servers: str, topic: str) -> None:
    config = ConsumerConfig(
        servers,
        group_id=f"{topic}-listeners",
        auto_offset_reset="earliest",
        value_deserializer=TEXT,
        metadata_refresh_ms=500,
    )
    async with AsyncConsumer(config) as consumer:
        await consumer.subscribe([topic])
        async for message in consumer:
            print("heard", message.value)
            if message.offset == len(LINES) - 1:
                break


async def chat(servers: str, topic: str) -> None:
    await asyncio.gather(speak(servers, topic), listen(servers, topic))


def main(servers: str = "127.0.0.1:9092", topic: str = "chat") -> None:
    asyncio.run(chat(servers, topic))


if __name__ == "__main__":
    main(*sys.argv[1:])
