"""Produce requests with one small record each, many in flight, over plain sockets.

Arguments: bootstrap, topic, size, seconds, connections, window (in flight per connection).
Frames are made once and sent in chunks; answers of one topic all have one length, so they are
counted and their error codes checked without a Python step for each.
"""

import socket
import threading
from typing import Any

from bench.frames import connect, produce_request, receive_frame, record_batch
from bench.loads.librdkafka import payload
from bench.loads.process import Stopwatch, run_load

CHUNK_REQUESTS = 32


class Pipeline:
    """One connection with a window of requests in flight."""

    def __init__(self, args: dict[str, Any]) -> None:
        batch = record_batch([payload(args["size"])], timestamp_ms=1_700_000_000_000)
        frames = [
            produce_request(args["topic"], [(0, batch)], index) for index in range(CHUNK_REQUESTS)
        ]
        self.chunk = b"".join(frames)
        self.window = args["window"]
        self.error_at = 4 + 4 + 4 + 2 + len(args["topic"].encode()) + 4 + 4
        self.sock: socket.socket = connect(args["bootstrap"])
        self.sock.sendall(frames[0])
        self.answer_bytes = len(receive_frame(self.sock)) + 4
        self.answered = 0
        self.failed = 0

    def run(self, watch: Stopwatch, seconds: float) -> None:
        """Send and count until the time is over and all is answered."""
        sent = 0
        pending = bytearray()
        while True:
            if watch.elapsed() < seconds:
                while sent - self.answered + CHUNK_REQUESTS <= self.window:
                    self.sock.sendall(self.chunk)
                    sent += CHUNK_REQUESTS
            if self.answered == sent:
                break
            got = self.sock.recv(1 << 18)
            if not got:
                raise ConnectionError("closed by the peer")
            pending += got
            self._count(pending)
        self.sock.close()

    def _count(self, pending: bytearray) -> None:
        whole = len(pending) // self.answer_bytes
        end = whole * self.answer_bytes
        for error_byte in (self.error_at, self.error_at + 1):
            errors = pending[error_byte : end : self.answer_bytes]
            self.failed += len(errors) - errors.count(0)
        del pending[:end]
        self.answered += whole


def load(args: dict[str, Any]) -> dict[str, Any]:
    """All connections at once for `seconds`."""
    pipelines = [Pipeline(args) for _ in range(args["connections"])]
    watch = Stopwatch(args)
    threads = [
        threading.Thread(target=pipeline.run, args=(watch, args["seconds"]))
        for pipeline in pipelines
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures = watch.stop()
    answered = sum(pipeline.answered for pipeline in pipelines)
    return {
        **figures,
        "requests": answered,
        "failed": sum(pipeline.failed for pipeline in pipelines),
        "requests_per_s": answered / figures["seconds"],
    }


if __name__ == "__main__":
    run_load(load)
