"""Send many small records quickly, and read them back: large compressed batches do it.

    python examples/high_throughput.py [HOST:PORT] [TOPIC] [RECORDS]

Nobody waits for single futures; `flush` waits for all, and failures are counted as they are told.
When the buffer is full, `send` waits by itself.
"""

import sys
import time
from concurrent.futures import Future

from dmq.client import (
    CompressionType,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    RecordMetadata,
)


def produce(servers: str, topic: str, records: int) -> int:
    """How many records failed."""
    failures: list[BaseException] = []

    def told(future: Future[RecordMetadata]) -> None:
        if error := future.exception():
            failures.append(error)

    config = ProducerConfig(
        servers, linger_ms=20, batch_size=1_000_000, compression_type=CompressionType.LZ4
    )
    with Producer(config) as producer:
        for n in range(records):
            producer.send(topic, value=b"measurement %d: all is well" % n).add_done_callback(told)
        producer.flush()
    return len(failures)


def consume(servers: str, topic: str, records: int) -> int:
    """How many records were read."""
    config = ConsumerConfig(servers, auto_offset_reset="earliest", max_poll_records=10_000)
    count = 0
    with Consumer(config) as consumer:
        consumer.assign([(topic, 0)])
        while count < records and (messages := consumer.poll(10)):
            count += len(messages)
    return count


def main(
    servers: str = "127.0.0.1:9092", topic: str = "measurements", records: str = "200000"
) -> None:
    began = time.perf_counter()
    failed = produce(servers, topic, int(records))
    sent = time.perf_counter()
    read = consume(servers, topic, int(records))
    ended = time.perf_counter()
    print(f"sent {records}, {failed} failed, {int(records) / (sent - began):,.0f} per second")
    print(f"read {read}, {read / (ended - sent):,.0f} per second")


if __name__ == "__main__":
    main(*sys.argv[1:])
