"""Send some greetings and say where they went.

    python examples/simple_producer.py [HOST:PORT] [TOPIC]

The topic is created by the first record. `send` returns at once, with a future.
"""

import sys

from dmq.client import Producer, ProducerConfig


def main(servers: str = "127.0.0.1:9092", topic: str = "greetings") -> None:
    with Producer(ProducerConfig(servers)) as producer:
        futures = [
            producer.send(topic, key=language, value=text, headers={"from": "example"})
            for language, text in [("en", "hello"), ("de", "hallo"), ("fr", "bonjour")]
        ]
        for future in futures:
            metadata = future.result()
            print(f"{metadata.topic}-{metadata.partition} offset {metadata.offset}")


if __name__ == "__main__":
    main(*sys.argv[1:])
