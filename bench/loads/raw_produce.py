"""Sends ready-made Produce requests over plain sockets: a client that costs next to nothing.

Arguments: bootstrap, topic, partitions, size, seconds, in_flight, touch_gb. One partition: requests
of one 1 MB batch (as librdkafka sends); more: 1 MB requests of 16 KiB batches for 64 partitions
(as the Java client sends). What it reaches is the broker's figure, not the client's.
"""

import socket
import struct
import time
from typing import Any

from bench.frames import connect, produce_request, receive_exactly, record_batch
from bench.loads.librdkafka import payload
from bench.loads.process import Stopwatch, run_load
from bench.machine import touch_memory

REQUEST_BYTES = 1_000_000
SMALL_BATCH_BYTES = 16 << 10
PARTITIONS_PER_REQUEST = 64


def load(args: dict[str, Any]) -> dict[str, Any]:
    """Keep `in_flight` requests on the wire for `seconds`."""
    requests, records_each = _requests(args["topic"], args["partitions"], args["size"])
    in_flight_max = args.get("in_flight", 5)
    head = bytearray(4)
    body = bytearray(1 << 20)
    with connect(args["bootstrap"]) as sock:
        for request in requests:
            _first(sock, request, head, body)
        sent = answered = 0
        touch_memory(args.get("touch_gb", 0))
        watch = Stopwatch(args)
        while True:
            more = watch.elapsed() < args["seconds"]
            if more and sent - answered < in_flight_max:
                sock.sendall(requests[sent % len(requests)])
                sent += 1
                continue
            if answered == sent:
                break
            _answer(sock, head, body)
            answered += 1
        figures = watch.stop()
    records = answered * records_each
    return {
        **figures,
        "records": records,
        "msg_per_s": records / figures["seconds"],
        "mb_per_s": records * args["size"] / 1e6 / figures["seconds"],
    }


def _requests(topic: str, partitions: int, size: int) -> tuple[list[bytes], int]:
    batch_bytes = REQUEST_BYTES if partitions == 1 else max(SMALL_BATCH_BYTES, size + 12)
    per_request = min(partitions, PARTITIONS_PER_REQUEST, REQUEST_BYTES // batch_bytes)
    records = max(1, batch_bytes // (size + 12))
    batch = record_batch([payload(size)] * records, timestamp_ms=1_700_000_000_000)
    requests = []
    for first in range(0, partitions, per_request):
        share = range(first, min(first + per_request, partitions))
        requests.append(produce_request(topic, [(p, batch) for p in share], first))
    if partitions % per_request:
        requests.pop()  # Equal requests only, so that counting requests counts records.
    return requests, records * per_request


def _first(sock: socket.socket, request: bytes, head: bytearray, body: bytearray) -> None:
    """Every partition once: a new topic's leaders may not all be in office yet."""
    for _ in range(600):
        sock.sendall(request)
        try:
            _answer(sock, head, body)
        except RuntimeError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the broker refused the first records for a minute")


def _answer(sock: socket.socket, head: bytearray, body: bytearray) -> None:
    receive_exactly(sock, memoryview(head))
    size = int.from_bytes(head, "big")
    view = memoryview(body)[:size]
    receive_exactly(sock, view)
    (name_bytes,) = struct.unpack_from(">h", view, 8)
    at = 10 + name_bytes
    (count,) = struct.unpack_from(">i", view, at)
    for index in range(count):
        _, error = struct.unpack_from(">ih", view, at + 4 + 30 * index)
        if error:
            raise RuntimeError(f"Produce was answered with error {error}")


if __name__ == "__main__":
    run_load(load)
