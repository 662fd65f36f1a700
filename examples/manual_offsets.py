"""Commit when the work is done, not before: a crash repeats work and never skips it.

    python examples/manual_offsets.py [HOST:PORT] [TOPIC]

Shows the three kinds of commit (one message, a mapping, all), and going back by `seek`.
"""

import sys

from dmq.client import JSON, Consumer, ConsumerConfig, Producer, ProducerConfig


def main(servers: str = "127.0.0.1:9092", topic: str = "orders") -> None:
    with Producer(ProducerConfig(servers, value_serializer=JSON)) as producer:
        for number in range(6):
            producer.send(topic, {"order": number}, partition=0)

    config = ConsumerConfig(
        servers,
        group_id=f"{topic}-workers",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        value_deserializer=JSON,
    )
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        for message in consumer:
            print("worked on", message.value)
            if message.offset == 1:
                consumer.commit(message)  # Up to and with this one.
            if message.offset == 3:
                consumer.commit({(topic, 0): 4})  # The next offset to be read.
            if message.offset == 5:
                consumer.commit()  # All that was handed out.
                break
        print("committed", consumer.committed()[message.topic_partition])

        consumer.seek((topic, 0), 2)  # Read on from there; the commit stays where it is.
        print("again", next(iter(consumer)).value)


if __name__ == "__main__":
    main(*sys.argv[1:])
