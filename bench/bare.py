"""The machine's ceiling: a bare loop behind the same clients, which does nothing but move bytes.

It speaks just enough Kafka for librdkafka and the raw clients to send it their load: received bytes
go to one file as they come (`--sync`: one fdatasync per turn, a turn being all that was readable,
before any of its answers); Fetch is answered by `sendfile` from a prepared file. It checks nothing,
keeps no offsets and promises nothing: no broker that keeps its word can beat it by much.

Started by `bench.targets` as `python -m bench.bare`. One thread, epoll, blocking sends.
"""

import argparse
import json
import os
import re
import select
import signal
import socket
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.frames import API_VERSIONS, FETCH, METADATA, PRODUCE, string

BUFFER_BYTES = 4 << 20
# A frame's head must lie in one piece to be answered: client id, topic and first partition do.
HEAD_BYTES = 512
# The file starts again with every new client, and after this much at the latest.
FILE_BYTES_MAX = 16 << 30

API_RANGES = ((PRODUCE, 0, 7), (FETCH, 4, 4), (METADATA, 0, 4), (API_VERSIONS, 0, 0))
_REQUEST_HEAD = struct.Struct(">ihhih")


@dataclass(slots=True)
class Connection:
    """One client: its buffer, what is left of the frame being received, its pending answers."""

    sock: socket.socket
    buffer: bytearray = field(default_factory=lambda: bytearray(BUFFER_BYTES))
    filled: int = 0
    frame_left: int = 0
    answers: list[bytes] = field(default_factory=list)
    fetches: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Prepared:
    """A file of equal batches, a region of it for each partition."""

    fd: int
    batch_bytes: int
    batch_records: int
    batches: int


class BareLoop:
    """Accepts, receives, writes, syncs if told so, answers."""

    def __init__(self, port: int, data: Path, sync: bool) -> None:
        self.port = port
        self.data = data
        self.sync = sync
        self.out = os.open(data / "received", os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o644)
        self.out_bytes = 0
        self.prepared: dict[str, Prepared] = {}
        self.connections: dict[int, Connection] = {}
        self.listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.epoll = select.epoll()
        self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        self.running = True

    def run(self) -> None:
        while self.running:
            ready = self.epoll.poll(0.5)
            wrote = False
            touched = []
            for fd, _ in ready:
                if fd == self.listener.fileno():
                    self._accept()
                    continue
                connection = self.connections[fd]
                wrote |= self._receive(connection)
                touched.append(connection)
            if wrote and self.sync:
                os.fdatasync(self.out)
            for connection in touched:
                self._answer(connection)

    def _accept(self) -> None:
        if not self.connections:
            self._start_file_again()
        sock, _ = self.listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections[sock.fileno()] = Connection(sock)
        self.epoll.register(sock.fileno(), select.EPOLLIN)

    def _close(self, connection: Connection) -> None:
        fd = connection.sock.fileno()
        self.epoll.unregister(fd)
        del self.connections[fd]
        connection.sock.close()

    def _receive(self, connection: Connection) -> bool:
        """Take what is there; True if record bytes were written to the file."""
        view = memoryview(connection.buffer)
        try:
            got = connection.sock.recv_into(view[connection.filled :])
        except ConnectionError:
            got = 0
        if got == 0:
            self._close(connection)
            return False
        end = connection.filled + got
        at, produced = self._cut_frames(connection, view, end)
        if produced:
            self._write(view[:at])
        rest = end - at
        view[:rest] = bytes(view[at:end])
        connection.filled = rest
        return produced

    def _cut_frames(self, connection: Connection, view: memoryview, end: int) -> tuple[int, bool]:
        """Answer-able frame heads up to `end`; (where to go on, any Produce bytes)."""
        at = min(connection.frame_left, end)
        produced = at > 0
        connection.frame_left -= at
        while end - at >= _REQUEST_HEAD.size:
            size, api_key, version, correlation_id, client_bytes = _REQUEST_HEAD.unpack_from(
                view, at
            )
            whole = size + 4
            here = end - at
            if here < whole and (here < HEAD_BYTES or api_key != PRODUCE):
                break
            body = at + _REQUEST_HEAD.size + max(client_bytes, 0)
            if api_key == PRODUCE:
                produced = True
                connection.answers.append(_produced(view, body, correlation_id))
            else:
                frame = bytes(view[body : at + whole])
                self._other(connection, api_key, version, correlation_id, frame)
            taken = min(whole, here)
            connection.frame_left = whole - taken
            at += taken
        return at, produced

    def _write(self, piece: memoryview) -> None:
        if self.out_bytes > FILE_BYTES_MAX:
            self._start_file_again()
        self.out_bytes += os.pwrite(self.out, piece, self.out_bytes)

    def _start_file_again(self) -> None:
        os.ftruncate(self.out, 0)
        self.out_bytes = 0

    def _answer(self, connection: Connection) -> None:
        try:
            if connection.answers:
                connection.sock.sendall(b"".join(connection.answers))
                connection.answers.clear()
            for frame in connection.fetches:
                self._send_records(connection.sock, frame)
        except OSError:
            connection.answers.clear()  # The next readable event finds it closed.
        connection.fetches.clear()

    def _other(
        self, connection: Connection, api_key: int, version: int, correlation_id: int, body: bytes
    ) -> None:
        head = struct.pack(">i", correlation_id)
        if api_key == API_VERSIONS:
            error = 35 if version else 0
            ranges = b"".join(struct.pack(">hhh", *item) for item in API_RANGES)
            answer = head + struct.pack(">hi", error, len(API_RANGES)) + ranges
        elif api_key == METADATA:
            answer = head + self._metadata(body)
        elif api_key == FETCH:
            connection.fetches.append(head + body)
            return
        else:
            raise ValueError(f"api key {api_key} was not offered")
        connection.answers.append(struct.pack(">i", len(answer)) + answer)

    def _metadata(self, body: bytes) -> bytes:
        (count,) = struct.unpack_from(">i", body, 0)
        at = 4
        topics = []
        for _ in range(max(count, 0)):
            (size,) = struct.unpack_from(">h", body, at)
            topics.append(body[at + 2 : at + 2 + size].decode())
            at += 2 + size
        parts = [struct.pack(">iii", 0, 1, 0), string("127.0.0.1")]  # throttle, one broker, id 0
        parts += [struct.pack(">ihhii", self.port, -1, -1, 0, len(topics))]
        for topic in topics:
            partitions = partition_count(topic)
            parts += [b"\0\0", string(topic), b"\0", struct.pack(">i", partitions)]
            parts += [
                struct.pack(">hiiiiii", 0, index, 0, 1, 0, 1, 0) for index in range(partitions)
            ]
        return b"".join(parts)

    def _send_records(self, sock: socket.socket, frame: bytes) -> None:
        """Answer a Fetch v4 with whole batches straight from the prepared file."""
        max_bytes = struct.unpack_from(">i", frame, 16)[0]
        (name_bytes,) = struct.unpack_from(">h", frame, 25)
        topic = frame[27 : 27 + name_bytes].decode()
        at = 27 + name_bytes
        (count,) = struct.unpack_from(">i", frame, at)
        prepared = self._open(topic)
        slices = []
        total = 0
        for index, offset, part_max in struct.iter_unpack(
            ">iqi", frame[at + 4 : at + 4 + 16 * count]
        ):
            start, size = slice_of(prepared, index, offset, min(part_max, max_bytes - total))
            slices.append((index, start, size))
            total += size
        if total == 0:
            time.sleep(0.005)  # The end: don't let the client spin.
        head = frame[:4] + struct.pack(">ii", 0, 1) + string(topic) + struct.pack(">i", count)
        sock.sendall(struct.pack(">i", len(head) + 30 * count + total) + head, socket.MSG_MORE)
        end = prepared.batches * prepared.batch_records
        for index, start, size in slices:
            sock.sendall(
                struct.pack(">ihqqii", index, 0, end, end, -1, size),
                socket.MSG_MORE if size or index != slices[-1][0] else 0,
            )
            while size:
                sent = os.sendfile(sock.fileno(), prepared.fd, start, size)
                start, size = start + sent, size - sent

    def _open(self, topic: str) -> Prepared:
        if topic not in self.prepared:
            layout = json.loads((self.data / f"{topic}.json").read_text())
            fd = os.open(self.data / f"{topic}.log", os.O_RDONLY)
            self.prepared[topic] = Prepared(fd=fd, **layout)
        return self.prepared[topic]


def slice_of(prepared: Prepared, index: int, offset: int, room: int) -> tuple[int, int]:
    """(byte position, bytes) of the whole batches from `offset` that fit in `room`, or nothing."""
    batch = offset // prepared.batch_records
    count = min(prepared.batches - batch, max(room // prepared.batch_bytes, 1))
    if count <= 0 or room <= 0:
        return 0, 0
    position = (index * prepared.batches + batch) * prepared.batch_bytes
    return position, count * prepared.batch_bytes


def partition_count(topic: str) -> int:
    """The bare loop has no topics: a topic's name says how many partitions it has (`…-p16`)."""
    found = re.search(r"-p(\d+)$", topic)
    return int(found.group(1)) if found else 1


def _produced(view: memoryview, body: int, correlation_id: int) -> bytes:
    """A Produce v7 answer without error for all partitions the head tells of (the first only)."""
    (transactional_bytes,) = struct.unpack_from(">h", view, body)
    at = body + 2 + max(transactional_bytes, 0) + 10
    (name_bytes,) = struct.unpack_from(">h", view, at)
    name = bytes(view[at : at + 2 + name_bytes])
    (index,) = struct.unpack_from(">i", view, at + 2 + name_bytes + 4)
    answer = b"".join(
        (
            struct.pack(">ii", correlation_id, 1),
            name,
            struct.pack(">iihqqqi", 1, index, 0, 0, -1, 0, 0),
        )
    )
    return struct.pack(">i", len(answer)) + answer


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sync", action="store_true")
    options = parser.parse_args()
    loop = BareLoop(options.port, options.data, options.sync)

    def stop(_signal: int, _frame: object) -> None:
        loop.running = False

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop.run()


if __name__ == "__main__":
    main()
