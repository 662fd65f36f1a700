"""What each replica of a partition has, batch by batch, asked of exactly that broker.

Readers hear leaders, and now and then a follower; here every replica is read from its beginning to the
end of what is committed, over Fetch as a consumer sends it, which followers answer too (KIP-392). A batch
is told by its offsets and a checksum over all its bytes: replicas have the same bytes or they differ.
Called by the runner once all is well; the judge compares.
"""

import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

from dmq.cli.raw import Exchange
from dmq.errors import ErrorCode, ProtocolError
from dmq.records import HEADER_SIZE, read_header
from dmq.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic

Batch = tuple[int, int, str]
"""First offset, last offset, checksum."""

FETCH, VERSION = 1, 12
FETCH_BYTES = 4 << 20
PATIENCE_S = 60.0


class NotReadError(Exception):
    """A replica did not show what it has; the message says where and why."""


def batches_of(
    address: tuple[str, int], topic: str, partition: int, start: int, end: int
) -> Iterator[list[Batch]]:
    """The batches with offsets from `start` to `end` (excluded), in pieces. Raises NotReadError if one
    replica does not come to the end in time, because it lacks something or does not answer."""
    offset, pause = start, threading.Event()
    deadline, trouble = time.monotonic() + PATIENCE_S, ""
    while offset < end:
        found: list[Batch] = []
        try:
            found = _fetch(address, topic, partition, offset)
        except (OSError, ProtocolError) as error:
            trouble = repr(error)
        if found:
            yield found
            offset = found[-1][1] + 1
            deadline = time.monotonic() + PATIENCE_S
        elif time.monotonic() > deadline:
            raise NotReadError(f"{topic}-{partition}@{offset}, the end is {end}: {trouble}")
        else:
            pause.wait(0.1)


def _fetch(address: tuple[str, int], topic: str, partition: int, offset: int) -> list[Batch]:
    wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        session_epoch=-1,
        topics=[FetchTopic(topic, partitions=[wanted])],
    )
    with Exchange(*address) as exchange:
        response: Any = exchange.ask(FETCH, VERSION, request, 30)
    [told] = response.responses
    [part] = told.partitions
    if part.error_code != ErrorCode.NONE:
        raise ProtocolError(f"it answers with {ErrorCode(part.error_code).name}")
    return list(_batches(bytes(part.records or b"")))


def _batches(data: bytes) -> Iterator[Batch]:
    """The whole ones; the last may be cut off."""
    at = 0
    while at + HEADER_SIZE <= len(data):
        header = read_header(data[at : at + HEADER_SIZE])
        if at + header.size > len(data):
            return
        checksum = zlib.crc32(data[at : at + header.size])
        yield header.base_offset, header.last_offset, f"{checksum:08x}"
        at += header.size
