"""Produce latency (and end-to-end latency) at a fixed rate, without coordinated omission.

Arguments: bootstrap, topic, partitions, size, rate, seconds, warm_seconds, end_to_end, config.
Every record has a time at which it is due. Latency is counted from that time, whether or not the
client was held up, so a stall of the broker is charged to all the records that were due in it.
"""

import struct
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.loads.librdkafka import consumer_config, payload, producer_config
from bench.loads.process import Stopwatch, percentiles_ms, run_load

_STAMP = struct.Struct(">qq")  # due time in ns of the monotonic clock, record number


class Acks:
    """Latencies by record number, taken in the delivery callback's thread."""

    def __init__(self, count: int) -> None:
        self.due_ns = [0] * count
        self.acked_ns = [0] * count
        self.failed = 0

    def callback(self, number: int) -> Any:
        def acked(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self.failed += 1
            self.acked_ns[number] = time.monotonic_ns()

        return acked


class Reader(threading.Thread):
    """Consumes from the end of all partitions and notes when each record arrives."""

    def __init__(self, args: dict[str, Any], count: int) -> None:
        super().__init__(daemon=True)
        self.arrived_ns: dict[int, int] = {}
        self.count = count
        self.stopping = False
        self.consumer = Consumer(consumer_config(args["bootstrap"], {}))
        self.consumer.assign(
            [TopicPartition(args["topic"], p, 0) for p in range(args["partitions"])]
        )

    def run(self) -> None:
        while not self.stopping and len(self.arrived_ns) < self.count:
            message = self.consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            due_ns, number = _STAMP.unpack_from(message.value() or bytes(_STAMP.size))
            if number >= 0:
                self.arrived_ns[number] = time.monotonic_ns() - due_ns
        self.consumer.close()


def load(args: dict[str, Any]) -> dict[str, Any]:
    """Send at the rate; percentiles of what came after the warm-up."""
    rate, partitions = args["rate"], args["partitions"]
    warm = int(rate * args["warm_seconds"])
    count = warm + int(rate * args["seconds"])
    acks = Acks(count)
    quick = {"linger.ms": 0, "delivery.report.only.error": False, **args.get("config", {})}
    producer = Producer(producer_config(args["bootstrap"], quick))
    tail = payload(args["size"])[_STAMP.size :]
    for partition in range(partitions):
        producer.produce(args["topic"], _STAMP.pack(0, -1) + tail, partition=partition)
    if producer.flush(60):
        raise RuntimeError("the broker did not acknowledge the first records in 60 s")
    reader = Reader(args, count) if args["end_to_end"] else None
    if reader is not None:
        reader.start()
    polling = threading.Event()
    poller = threading.Thread(target=_poll, args=(producer, polling), daemon=True)
    poller.start()
    watch = Stopwatch(args)
    late_ns = _send(producer, args, acks, tail)
    left = producer.flush(60)
    figures = watch.stop()
    polling.set()
    poller.join()
    latencies = [
        acked - due
        for acked, due in zip(acks.acked_ns[warm:], acks.due_ns[warm:], strict=True)
        if acked
    ]
    return {
        **figures,
        **percentiles_ms(latencies),
        "failed": acks.failed + left,
        "records": len(latencies),
        "rate": rate,
        "client_late": percentiles_ms(late_ns[warm:]),
        **(_end_to_end(reader, warm) if reader is not None else {}),
    }


def _send(producer: Producer, args: dict[str, Any], acks: Acks, tail: bytes) -> list[int]:
    topic, partitions = args["topic"], args["partitions"]
    period_ns = 1_000_000_000 // args["rate"]
    late_ns = []
    due_ns = time.monotonic_ns() + 10_000_000
    for number in range(len(acks.due_ns)):
        wait_ns = due_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        late_ns.append(max(0, time.monotonic_ns() - due_ns))
        acks.due_ns[number] = due_ns
        producer.produce(
            topic,
            _STAMP.pack(due_ns, number) + tail,
            partition=number % partitions,
            on_delivery=acks.callback(number),
        )
        due_ns += period_ns
    return late_ns


def _poll(producer: Producer, done: threading.Event) -> None:
    while not done.is_set():
        producer.poll(0.1)


def _end_to_end(reader: Reader, warm: int) -> dict[str, float]:
    reader.join(timeout=20)
    reader.stopping = True
    reader.join(timeout=5)
    arrived = [took for number, took in reader.arrived_ns.items() if number >= warm]
    figures = {**percentiles_ms(arrived), "records": len(arrived)}
    return {f"end_to_end_{name}": value for name, value in figures.items()}


if __name__ == "__main__":
    run_load(load)
