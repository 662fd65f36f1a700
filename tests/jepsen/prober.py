"""Asks, over and over, whether a partition takes writes: without a client library's own patience.

A loop of its own per partition: ask a broker who leads (the next one each time), send that one a record
with acks=all, each with short limits. What it measures is the cluster; a library adds its own timeouts,
which after a pause or a cut are longer than everything else. Called by `failover`.
"""

import itertools
import socket
import struct
import threading
import time

from bench.frames import produce_request, receive_frame, record_batch
from dmq.errors import ProtocolError
from dmq.testing.probe import view

ASK_S = 0.1
WRITE_S = 0.3
_PAUSE_S = 0.005

Address = tuple[str, int]


class Prober:
    """Tries to write to one partition from now on, until it succeeds or is told to stop."""

    def __init__(self, topic: str, partition: int, addresses: dict[int, Address]) -> None:
        self._topic, self._partition, self._addresses = topic, partition, addresses
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.wrote_at: float | None = None
        self._thread.start()

    def _run(self) -> None:
        for address in itertools.cycle(self._addresses.values()):
            if self._stop.wait(_PAUSE_S):
                return
            try:
                if self._write(address):
                    self.wrote_at = time.monotonic()
                    return
            except (OSError, ProtocolError):
                continue

    def _write(self, asked: Address) -> bool:
        (seen,) = [
            each
            for each in view(asked, [self._topic], ASK_S).partitions
            if each.partition == self._partition
        ] or [None]
        if seen is None or seen.leader not in self._addresses:
            return False
        batch = record_batch([b"probe"], timestamp_ms=int(time.time() * 1000))
        frame = produce_request(self._topic, [(self._partition, batch)], 1)
        with socket.create_connection(self._addresses[seen.leader], timeout=ASK_S) as connection:
            connection.settimeout(WRITE_S)
            connection.sendall(frame)
            return _error_of(receive_frame(connection)) == 0

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def _error_of(answer: bytes) -> int:
    """Of a Produce v7 answer with one topic and one partition."""
    (name_bytes,) = struct.unpack_from(">h", answer, 8)
    (error,) = struct.unpack_from(">h", answer, 8 + 2 + name_bytes + 4 + 4)
    return int(error)
