"""Consume, transform, produce: each input gives exactly one output, though the work fails now and then.

    python examples/exactly_once.py [HOST:PORT] [SOURCE] [TARGET]

Outputs and offsets go into one transaction: both are there, or neither. After an abort the consumer
goes back to its committed offsets and the work is done again. Readers of the target see committed
records only.
"""

import sys

from dmq.client import (
    JSON,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    TransactionAbortedError,
)

NUMBERS = 100


class WorkError(Exception):
    """The work on a batch failed."""


def fill(servers: str, source: str) -> None:
    with Producer(ProducerConfig(servers, value_serializer=JSON)) as producer:
        for number in range(NUMBERS):
            producer.send(source, number)


def chain(servers: str, source: str, target: str) -> int:
    """Square all numbers; how many attempts were thrown away."""
    reading = ConsumerConfig(
        servers,
        group_id=f"{source}-squares",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=20,
        value_deserializer=JSON,
    )
    writing = ProducerConfig(servers, transactional_id=f"{source}-squares", value_serializer=JSON)
    done = attempts = thrown_away = 0
    with Consumer(reading) as consumer, Producer(writing) as producer:
        consumer.subscribe([source])
        while done < NUMBERS:
            messages = consumer.poll(1)
            if not messages:
                continue
            attempts += 1
            try:
                with producer.transaction() as transaction:
                    for message in messages:
                        producer.send(target, message.value**2)
                    transaction.send_offsets(consumer)
                    if attempts % 3 == 1:
                        raise WorkError("as it happens")
                done += len(messages)
            except (WorkError, TransactionAbortedError):
                thrown_away += 1
                consumer.rewind()
    return thrown_away


def result(servers: str, target: str) -> list[int]:
    numbers: list[int] = []
    config = ConsumerConfig(servers, auto_offset_reset="earliest", value_deserializer=JSON)
    with Consumer(config) as consumer:
        consumer.assign([(target, 0)])
        while len(numbers) < NUMBERS and (messages := consumer.poll(10)):
            numbers += [message.value for message in messages]
        numbers += [message.value for message in consumer.poll(0.5)]
    return numbers


def main(servers: str = "127.0.0.1:9092", source: str = "numbers", target: str = "squares") -> None:
    fill(servers, source)
    thrown_away = chain(servers, source, target)
    numbers = result(servers, target)
    print(f"{len(numbers)} squares, {thrown_away} attempts thrown away")
    assert sorted(numbers) == [n**2 for n in range(NUMBERS)]


if __name__ == "__main__":
    main(*sys.argv[1:])
