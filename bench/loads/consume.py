"""Consumes assigned partitions from the start with librdkafka and counts.

Arguments: bootstrap, topic, partitions, size, records (how many are there), seconds (limit),
config. The clock runs from the first records handed over to the last.
"""

from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.loads.librdkafka import consumer_config
from bench.loads.process import Stopwatch, run_load

TAKE_BYTES = 2_000_000
TAKE_RECORDS_MAX = 2000


def load(args: dict[str, Any]) -> dict[str, Any]:
    """Read until all records were seen or the time is over."""
    consumer = Consumer(consumer_config(args["bootstrap"], args.get("config", {})))
    consumer.list_topics(args["topic"], timeout=30)
    total = Stopwatch(args)
    consumer.assign([TopicPartition(args["topic"], p, 0) for p in range(args["partitions"])])
    take = min(TAKE_RECORDS_MAX, TAKE_BYTES // args["size"])
    first = _take(consumer, min(take, args["records"]))
    watch = Stopwatch(args)
    seen = 0
    while seen + first < args["records"] and watch.elapsed() < args["seconds"]:
        # Never ask for more than there is: consume() waits its whole timeout for the missing.
        got = _take(consumer, min(take, args["records"] - first - seen))
        if got == 0:
            raise RuntimeError(f"nothing for 20 s after {seen + first} of {args['records']}")
        seen += got
    figures = watch.stop()
    consumer.close()
    return {
        **figures,
        "records": seen,
        "seconds_with_start": total.elapsed(),
        "msg_per_s": seen / figures["seconds"],
        "mb_per_s": seen * args["size"] / 1e6 / figures["seconds"],
    }


def _take(consumer: Consumer, wanted: int) -> int:
    for _ in range(20):
        messages = consumer.consume(num_messages=wanted, timeout=1.0)
        if messages:
            error = messages[0].error()
            if error is not None:
                raise KafkaException(error)
            return len(messages)
    return 0


if __name__ == "__main__":
    run_load(load)
