"""The history of a run: what clients did and saw, and what was done to the brokers, as JSON lines.

Each client process appends to a file of its own; the runner puts them together, in order of time. The
clock is the machine's monotonic one, which all processes share. A record's name is `client:number`,
and its value begins with it. Events, by their key "e":

    producer  client, library, idempotent            before its first send
    reader    client, library, final                 final: reads everything, once faults have ended
    send      client, topic, p, n, count             numbers n … n+count-1 go to partition p, in order
    ack       client, topic, p, acks [[n, offset]…]  offset -1: the client was not told
    fail      client, topic, p, n, error, definite   definite: it is certain that it was not written
    closed    client, open [n…]                      when faults had ended, and what it still waited for
    assign    client, topic, p, offset               the reader goes on from here
    poll      client, topic, p, records [[offset, name]…], near?  near: a follower sent them, it seems
    ends      ends {"topic/p": [start, end]}         as the brokers said, when all had ended
    replica   broker, topic, p, batches [[first, last, checksum]…]
                                                     what one replica has, at the end, in order
    fault     what, brokers, …                       said by the nemesis
"""

import json
import time
from collections.abc import Iterable, Iterator
from heapq import merge
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Recorder:
    """Appends events to a file. One per process; calls from several threads need a lock."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1 << 16)

    def add(self, kind: str, **fields: Any) -> None:
        line = {"t": time.monotonic_ns(), "e": kind, **fields}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> Iterator[Event]:
    """The events of a file; a last line that a killed process left unfinished is dropped."""
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):
                event: Event = json.loads(line)
                yield event


def put_together(paths: Iterable[Path], target: Path) -> None:
    """One file in order of time."""
    with target.open("w") as file:
        for event in merge(*(read(path) for path in paths), key=lambda event: event["t"]):
            file.write(json.dumps(event, separators=(",", ":")) + "\n")


def name_of(value: bytes) -> str:
    return value.partition(b" ")[0].decode(errors="replace")


def value_of(client: str, number: int, size: int) -> bytes:
    return b"%s:%d " % (client.encode(), number) + b"x" * size
