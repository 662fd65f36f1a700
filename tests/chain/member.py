"""One member of a hop as a process: `python -m tests.chain.member JSON`. Consume, transform, produce.

What it reads from partition p of its source goes to partition p of its target, with the place that it was
read from; one receipt per transaction says what it moved; the offsets are committed with both. After
anything but a commit it begins again at the committed offsets, after what it can't go on from with new
clients under its old name. It is told to end by a line, or the end, of its standard input.
"""

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from dmq.client import (
    ClientError,
    Consumer,
    ConsumerConfig,
    GroupError,
    Message,
    Producer,
    ProducerConfig,
    TransactionAbortedError,
)
from tests.jepsen.history import Recorder

DEBUG = os.environ.get("CHAIN_DEBUG", "")
"""What the producer's library is to tell of: "eos", "protocol" and so on."""
POLL_S = 0.5
CALL_MS = 20_000
CLOSE_S = 10.0


class Member:
    """Clients of one incarnation after the other, and what they did."""

    def __init__(self, options: dict[str, Any], stop: threading.Event) -> None:
        self._options, self._stop = options, stop
        self._recorder = Recorder(Path(options["history"]))
        self._say("member", pid=os.getpid())

    def run(self) -> None:
        while not self._stop.is_set():
            try:
                self._live()
            except ClientError as error:
                self._say("reopen", error=f"{type(error).__name__}: {error}")

    def _live(self) -> None:
        """Until it is over, or these clients can't go on."""
        producer = Producer(self._writing())
        try:
            producer.start()  # Ends what the last incarnation left open, before anybody waits for it.
            consumer = Consumer(self._reading())
            try:
                consumer.subscribe([self._options["source"]])
                while not self._stop.is_set():
                    self._step(consumer, producer)
            finally:
                consumer.close(is_done=False)
        finally:
            producer.close(CLOSE_S)

    def _step(self, consumer: Consumer, producer: Producer) -> None:
        try:
            messages = list(consumer.poll(POLL_S))
            if messages:
                self._move(messages, consumer, producer)
        except (TransactionAbortedError, GroupError) as error:
            if error.fatal:
                raise
            self._say("abort", error=str(error))
            consumer.rewind()

    def _move(self, messages: list[Message], consumer: Consumer, producer: Producer) -> None:
        moved: dict[int, list[int]] = {}
        with producer.transaction() as transaction:
            for message in messages:
                place = b"%d:%d " % (message.partition, message.offset)
                value = place + (message.value or b"")
                producer.send(self._options["target"], value, partition=message.partition)
                moved.setdefault(message.partition, []).append(message.offset)
            receipt = json.dumps({"hop": self._options["hop"], "moved": moved}).encode()
            producer.send(self._options["receipts"], receipt)
            transaction.send_offsets(consumer)
        self._say("commit", count=len(messages))

    def _writing(self) -> ProducerConfig:
        return ProducerConfig(
            self._options["bootstrap"],
            transactional_id=self._options["name"],
            transaction_timeout_ms=self._options["transaction_ms"],
            request_timeout_ms=CALL_MS,
            linger_ms=self._options["linger_ms"],
            options={"debug": DEBUG} if DEBUG else {},
        )

    def _reading(self) -> ConsumerConfig:
        return ConsumerConfig(
            self._options["bootstrap"],
            group_id=self._options["hop"],
            group_protocol=self._options["protocol"],
            group_instance_id=self._options["instance"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=self._options["batch"],
            session_timeout_ms=self._options["session_ms"],
            request_timeout_ms=CALL_MS,
        )

    def _say(self, kind: str, **fields: Any) -> None:
        self._recorder.add(kind, client=self._options["name"], **fields)
        self._recorder.flush()  # It may be killed the next moment.


def main() -> None:
    faulthandler.register(signal.SIGUSR1)  # The runner asks where we are when nothing goes on.
    if DEBUG:
        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(message)s")
    options = json.loads(sys.argv[1])
    stop = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    Member(options, stop).run()


if __name__ == "__main__":
    main()
