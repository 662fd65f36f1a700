"""Read greetings as a member of a group, and end when none came for a while.

    python examples/simple_consumer.py [HOST:PORT] [TOPIC]

Start it twice and the two share the topic's partitions. What was read is committed by itself.
"""

import sys

from dmq.client import TEXT, Consumer, ConsumerConfig, OffsetResetPolicy


def main(servers: str = "127.0.0.1:9092", topic: str = "greetings", idle_s: str = "10") -> None:
    config = ConsumerConfig(
        servers,
        group_id="readers",
        auto_offset_reset=OffsetResetPolicy.EARLIEST,
        value_deserializer=TEXT,
    )
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        while messages := consumer.poll(float(idle_s)):
            for message in messages:
                print(
                    f"{message['topic']}-{message['partition']} {message.offset}: {message.value}"
                )


if __name__ == "__main__":
    main(*sys.argv[1:])
