"""Produces with librdkafka as fast as it goes and counts what was acknowledged.

Arguments: bootstrap, topic, partitions, size, seconds or bytes, queue_records (held by the client
at most), config (extra client settings), touch_gb (memory touched right before the clock starts).
Records go round-robin to all partitions, as keyed records would: every partition has work.
The clock stops when the last record is acknowledged.
"""

import math
import time
from typing import Any

from confluent_kafka import Producer

from bench.loads.librdkafka import QUEUE_BYTES, Failures, payload, producer_config
from bench.loads.process import Stopwatch, run_load
from bench.machine import touch_memory

CHUNK_RECORDS = 500
CHUNK_RECORDS_LARGE = 50  # of more than 8 KiB each


def load(args: dict[str, Any]) -> dict[str, Any]:
    """Produce for a time or an amount of bytes."""
    size, partitions = args["size"], args["partitions"]
    failures = Failures()
    config = producer_config(args["bootstrap"], args.get("config", {}))
    producer = Producer({**config, "on_delivery": failures})
    value = payload(size)
    _connect(producer, args["topic"], partitions, value)
    chunk_records = CHUNK_RECORDS if size <= 8192 else CHUNK_RECORDS_LARGE
    chunks = _chunks(value, partitions, chunk_records)
    queue_records = args.get("queue_records", max(64, min(400_000, QUEUE_BYTES // size)))
    seconds = args.get("seconds", math.inf)
    records_max = args["bytes"] // size if "bytes" in args else math.inf
    sent = 0
    turn = 0
    touch_memory(args.get("touch_gb", 0))
    watch = Stopwatch(args)
    while sent < records_max and watch.elapsed() < seconds:
        if len(producer) > queue_records:
            producer.poll(0)
            time.sleep(0.001)
            continue
        sent += producer.produce_batch(args["topic"], chunks[turn])
        turn = (turn + 1) % len(chunks)
        producer.poll(0)
    left = producer.flush(120)
    figures = watch.stop()
    acked = sent - left - failures.count
    return {
        **figures,
        "records": acked,
        "failed": left + failures.count,
        "msg_per_s": acked / figures["seconds"],
        "mb_per_s": acked * size / 1e6 / figures["seconds"],
    }


def _connect(producer: Producer, topic: str, partitions: int, value: bytes) -> None:
    """One record to every partition, so that no connection or first segment is in the figure."""
    for partition in range(partitions):
        producer.produce(topic, value, partition=partition)
    if producer.flush(60):
        raise RuntimeError("the broker did not acknowledge the first records in 60 s")


def _chunks(value: bytes, partitions: int, chunk_records: int) -> list[list[dict[str, Any]]]:
    """Lists for produce_batch, made once, that together visit all partitions in turn."""
    total = math.lcm(partitions, chunk_records) if partitions > 1 else chunk_records
    records = [{"value": value, "partition": index % partitions} for index in range(total)]
    return [records[at : at + chunk_records] for at in range(0, total, chunk_records)]


if __name__ == "__main__":
    run_load(load)
