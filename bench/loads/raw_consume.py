"""Fetches over a plain socket and looks at batch headers only: a consumer that costs little.

Arguments: bootstrap, topic, partitions, size, records, seconds, max_bytes, partition_max_bytes.
One request at a time, all partitions in each, as a consumer without fetch sessions does.
"""

import socket
from typing import Any

from bench.frames import connect, fetch_request, fetched_partitions, receive_exactly, walk_batches
from bench.loads.process import Stopwatch, run_load


def load(args: dict[str, Any]) -> dict[str, Any]:
    """Read from offset 0 until all records were seen or the time is over."""
    max_bytes = args.get("max_bytes", 50 << 20)
    part_max = args.get("partition_max_bytes", 1 << 20)
    positions = dict.fromkeys(range(args["partitions"]), 0)
    buffer = bytearray(max_bytes + (4 << 20))
    records = got_bytes = empty = requests = 0
    with connect(args["bootstrap"]) as sock:
        watch = Stopwatch(args)
        while records < args["records"] and watch.elapsed() < args["seconds"]:
            # Partitions that were served go to the end of the line, as clients do.
            ask = fetch_request(args["topic"], list(positions.items()), 1, max_bytes, part_max)
            sock.sendall(ask)
            seen, seen_bytes = _take(sock, buffer, positions)
            records += seen
            got_bytes += seen_bytes
            requests += 1
            empty = 0 if seen else empty + 1
            if empty > 20:
                raise RuntimeError(f"nothing more after {records} of {args['records']}")
        figures = watch.stop()
    return {
        **figures,
        "records": records,
        "requests": requests,
        "msg_per_s": records / figures["seconds"],
        "mb_per_s": got_bytes / 1e6 / figures["seconds"],
    }


def _take(sock: socket.socket, buffer: bytearray, positions: dict[int, int]) -> tuple[int, int]:
    view = memoryview(buffer)
    receive_exactly(sock, view[:4])
    size = int.from_bytes(view[:4], "big")
    frame = view[:size]
    receive_exactly(sock, frame)
    records = got_bytes = 0
    for part in fetched_partitions(frame):
        if part.error:
            raise RuntimeError(f"Fetch was answered with error {part.error}")
        seen, seen_bytes, next_offset = walk_batches(frame, part.start, part.end)
        if seen:
            del positions[part.index]
            positions[part.index] = next_offset
        records += seen
        got_bytes += seen_bytes
    return records, got_bytes


if __name__ == "__main__":
    run_load(load)
