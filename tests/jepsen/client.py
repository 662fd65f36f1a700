"""One client as a process: `python -m tests.jepsen.client JSON`. Writes what it did to its history file.

It runs until a line comes on its standard input: {"stop": …} for a producer, which then waits for all its
outcomes; {"drain": {"topic/p": end}} for a reader, which then reads up to there. When the input ends
without a line, nobody wants it any longer.
"""

import contextlib
import json
import random
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from tests.jepsen import producers, readers
from tests.jepsen.history import Recorder, name_of, value_of

OUTSTANDING_MAX = 500
FLUSH_S = 120.0
DRAIN_S = 90.0
_TICK_S = 0.02
_REPLACE_EACH_S = 0.5


class Orders:
    """What the runner says, heard by a thread."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.order: dict[str, Any] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        line = sys.stdin.readline()
        self.order = json.loads(line) if line else {"leave": True}
        self.came.set()


class Writing:
    """A producer, in as many incarnations as its library needs, and its records in order."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._recorder = Recorder(Path(options["history"]))
        self._lock = threading.Lock()
        self._dice = random.Random(options["seed"])
        self._spots = [
            (topic, p) for topic, count in options["topics"].items() for p in range(count)
        ]
        self._incarnation = 0
        self._number = 0
        self._open: dict[int, tuple[str, int]] = {}
        self._again: list[int] = []
        """Numbers with an error, to be sent once more (plain producers only)."""
        self._spot_of: dict[int, tuple[str, int]] = {}
        self._sent_again: set[int] = set()
        self._producer: producers.Producer | None = None
        self._begin()

    # --- incarnations

    def _begin(self) -> None:
        self._incarnation += 1
        self._name = f"{self._options['name']}.{self._incarnation}"
        self._open, self._again = {}, []
        make = producers.LIBRARIES[self._options["library"]]
        with self._lock:
            self._recorder.add(
                "producer",
                client=self._name,
                library=self._options["library"],
                idempotent=self._options["idempotent"],
            )
        name = self._name
        self._producer = make(
            self._options["bootstrap"],
            self._options,
            self._options["idempotent"],
            lambda number, offset: self._on_ok(name, number, offset),
            lambda number, error, definite: self._on_failed(name, number, error, definite),
        )

    def _on_ok(self, name: str, number: int, offset: int) -> None:
        with self._lock:
            topic, partition = self._spot_of[number]
            acks = [[number, offset]]
            self._recorder.add("ack", client=name, topic=topic, p=partition, acks=acks)
            self._open.pop(number, None)

    def _on_failed(self, name: str, number: int, error: str, definite: bool) -> None:
        with self._lock:
            topic, partition = self._spot_of[number]
            self._recorder.add(
                "fail",
                client=name,
                topic=topic,
                p=partition,
                n=number,
                error=error,
                definite=definite,
            )
            self._open.pop(number, None)
            if self._options["sends_again"] and number not in self._sent_again:
                self._sent_again.add(number)
                self._again.append(number)

    # --- the load

    def run(self, orders: Orders) -> None:
        burst = max(1, round(self._options["rate"] * _TICK_S))
        while not orders.came.wait(_TICK_S):
            if len(self._open) > OUTSTANDING_MAX:
                continue
            try:
                while self._again:
                    self._send(self._again.pop(0))
                topic, partition = self._dice.choice(self._spots)
                for _ in range(self._dice.randint(1, 2 * burst - 1)):
                    self._number += 1
                    self._spot_of[self._number] = (topic, partition)
                    self._send(self._number)
            except BufferError:
                continue
            except producers.DeadProducerError:
                self._replace(orders)
            with self._lock:
                self._recorder.flush()
        if "stop" in orders.order and self._producer is not None:
            self._producer.close(FLUSH_S)
            with self._lock:
                self._recorder.add("closed", client=self._name, open=sorted(self._open))
        with self._lock:
            self._recorder.close()

    def _send(self, number: int) -> None:
        topic, partition = self._spot_of[number]
        with self._lock:
            # Written before it is tried: what may have been sent is in the history.
            self._recorder.add(
                "send", client=self._name, topic=topic, p=partition, n=number, count=1
            )
            self._open[number] = (topic, partition)
        assert self._producer is not None
        value = value_of(self._name, number, self._dice.choice(self._options["sizes"]))
        try:
            self._producer.send(topic, partition, number, value)
        except (BufferError, producers.DeadProducerError):
            with self._lock:
                self._open.pop(number, None)
            raise

    def _replace(self, orders: Orders) -> None:
        """What the old one has open stays in doubt; the new one is another client to the checker."""
        assert self._producer is not None
        self._producer.close(1.0)
        self._producer = None  # Until there is another one.
        while not orders.came.wait(_REPLACE_EACH_S):
            try:
                self._begin()
            except Exception as error:  # noqa: BLE001  Each library fails to start in its own ways.
                print(f"{self._name}: {error!r}", file=sys.stderr)
            else:
                return


class Reading:
    """A reader that goes through all partitions, and sometimes back."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._name = options["name"]
        self._dice = random.Random(options["seed"])
        self._recorder = Recorder(Path(options["history"]))
        self._goes_back_each_s = options["goes_back_each_s"]
        self._recorder.add(
            "reader", client=self._name, library=options["library"], final=options["final"]
        )
        make = readers.LIBRARIES[options["library"]]
        self._reader = make(options["bootstrap"], options["rack"])
        spots = [(topic, p) for topic, count in options["topics"].items() for p in range(count)]
        self._next = dict.fromkeys(spots, 0)
        for topic, p in spots:
            self._recorder.add("assign", client=self._name, topic=topic, p=p, offset=0)
        self._reader.assign(self._next)

    def run(self, orders: Orders) -> None:
        went_back = time.monotonic()
        while not orders.came.is_set():
            self._poll()
            if 0 < self._goes_back_each_s < time.monotonic() - went_back:
                went_back = time.monotonic()
                self._go_back()
        ends = {
            (name.rpartition("/")[0], int(name.rpartition("/")[2])): end
            for name, end in orders.order.get("drain", {}).items()
        }
        deadline = time.monotonic() + DRAIN_S
        while any(self._next[s] < end for s, end in ends.items()) and time.monotonic() < deadline:
            self._poll()
        self._recorder.close()
        self._reader.close()

    def _poll(self) -> None:
        for (topic, partition), records in self._reader.poll(0.2).items():
            named = [[offset, name_of(value)] for offset, value in records]
            near = {"near": True} if self._reader.is_near((topic, partition)) else {}
            self._recorder.add(
                "poll", client=self._name, topic=topic, p=partition, records=named, **near
            )
            self._next[topic, partition] = records[-1][0] + 1
        self._recorder.flush()

    def _go_back(self) -> None:
        spot = self._dice.choice([*self._next])
        offset = max(0, self._next[spot] - self._dice.choice([10, 1000, 10_000]))
        self._recorder.add("assign", client=self._name, topic=spot[0], p=spot[1], offset=offset)
        self._next[spot] = offset
        self._reader.assign(self._next)


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The runner's to hear.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    options = json.loads(sys.argv[1])
    orders = Orders()
    worker = Writing(options) if options["role"] == "producer" else Reading(options)
    with contextlib.suppress(KeyboardInterrupt):
        worker.run(orders)
    return 0


if __name__ == "__main__":
    sys.exit(main())
