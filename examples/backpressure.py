"""Read no faster than the work goes: pause partitions while too much is waiting, resume them after.

    python examples/backpressure.py [HOST:PORT] [TOPIC]

A paused consumer goes on polling, so that it stays a member of its group; messages wait in the
broker, not in this process. On the other side, a producer's `send` waits while its buffer is full.
"""

import queue
import sys
import threading

from dmq.client import Consumer, ConsumerConfig, Message, Producer, ProducerConfig

RECORDS = 300
WAITING_MAX = 20


def work(waiting: "queue.Queue[Message | None]", done: list[int]) -> None:
    """The slow part, on its own thread."""
    while (message := waiting.get()) is not None:
        done.append(message.offset)


def main(servers: str = "127.0.0.1:9092", topic: str = "work") -> None:
    with Producer(ProducerConfig(servers, buffer_records=50)) as producer:
        for n in range(RECORDS):
            producer.send(topic, value=b"job %d" % n, partition=0)  # Waits while 50 are under way.

    waiting: queue.Queue[Message | None] = queue.Queue()
    done: list[int] = []
    worker = threading.Thread(target=work, args=(waiting, done))
    worker.start()
    pauses = most = read = 0
    config = ConsumerConfig(
        servers, group_id=f"{topic}-workers", auto_offset_reset="earliest", max_poll_records=10
    )
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        while read < RECORDS:
            for message in consumer.poll(0.05):
                read += 1
                waiting.put(message)
            most = max(most, waiting.qsize())
            if waiting.qsize() >= WAITING_MAX and not consumer.paused():
                consumer.pause([(topic, 0)])
                pauses += 1
            elif waiting.qsize() < WAITING_MAX // 2 and consumer.paused():
                consumer.resume([(topic, 0)])
    waiting.put(None)
    worker.join()
    print(f"worked on {len(done)} jobs; {most} waiting at most; paused {pauses} times")
    assert most < WAITING_MAX + 10


if __name__ == "__main__":
    main(*sys.argv[1:])
