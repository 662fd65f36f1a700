"""Asks, over and over, whether a partition takes writes: without a client library's own patience.

Every 50 ms a new try, in a thread of its own, each at the next broker: ask it who leads, send that
one a record with acks=all. Tries overlap, so that one which hangs at a dead broker delays no other. What
it measures is the cluster; a library adds its own timeouts, which after a pause or a cut are longer than
everything else. Called by `failover`.
"""

import itertools
import socket
import struct
import threading
import time

from bench.frames import produce_request, receive_frame, record_batch
from dmq.errors import ProtocolError
from dmq.testing.probe import view

TRY_EACH_S = 0.05
TRY_S = 2.0
TRIES_AT_ONCE = 20

Address = tuple[str, int]


class Prober:
    """Tries to write to one partition from now on, until it succeeds or is told to stop."""

    def __init__(self, topic: str, partition: int, addresses: dict[int, Address]) -> None:
        self._topic, self._partition, self._addresses = topic, partition, addresses
        self._stop = threading.Event()
        self._free = threading.Semaphore(TRIES_AT_ONCE)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.wrote_at: float | None = None
        self._thread.start()

    def _run(self) -> None:
        for address in itertools.cycle(self._addresses.values()):
            if self._free.acquire(timeout=TRY_EACH_S):
                threading.Thread(target=self._try, args=(address,), daemon=True).start()
            if self._stop.wait(TRY_EACH_S):
                return

    def _try(self, address: Address) -> None:
        try:
            if self._write(address) and not self._stop.is_set():
                self.wrote_at = time.monotonic()
                self._stop.set()
        except (OSError, ProtocolError):
            pass  # So it does not work yet: the next one tries again.
        finally:
            self._free.release()

    def _write(self, asked: Address) -> bool:
        (seen,) = [
            each
            for each in view(asked, [self._topic], TRY_S).partitions
            if each.partition == self._partition
        ] or [None]
        if seen is None or seen.leader not in self._addresses:
            return False
        batch = record_batch([b"probe"], timestamp_ms=int(time.time() * 1000))
        frame = produce_request(self._topic, [(self._partition, batch)], 1)
        with socket.create_connection(self._addresses[seen.leader], timeout=TRY_S) as connection:
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
