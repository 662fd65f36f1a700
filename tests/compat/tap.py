"""A tap on the wire: passes bytes between clients and one broker, and notes which requests went by.

Stands at the address that the broker tells clients (`advertised.listeners`), so that they stay on it.
Reads frame by frame and looks at the first four bytes of a request only: API key and version.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple

_PIECE_BYTES = 64 * 1024


class Asked(NamedTuple):
    """One request of a client."""

    api_key: int
    version: int


class Tap:
    """`with Tap() as tap:`, then `tap.to(broker address)`; `tap.asked` grows in order per client."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[Asked] = []
        self._target = ("", 0)
        self._open: list[socket.socket] = []

    def __enter__(self) -> "Tap":
        return self

    def __exit__(self, *error: object) -> None:
        for one in (self._listener, *self._open):
            _end(one)

    def to(self, bootstrap: str) -> None:
        """Begin to pass on."""
        host, _, port = bootstrap.rpartition(":")
        self._target = (host, int(port))
        _run(self._accept)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # The tap is closed.
                return
            broker = socket.create_connection(self._target)
            self._open += [client, broker]
            _run(self._pass_requests, client, broker)
            _run(self._pass_answers, broker, client)

    def _pass_requests(self, client: socket.socket, broker: socket.socket) -> None:
        with client.makefile("rb") as source:
            while size := source.read(4):
                body = source.read(*struct.unpack(">i", size))
                self.asked.append(Asked(*struct.unpack_from(">hh", body)))
                broker.sendall(size + body)
        _end(broker)

    def _pass_answers(self, broker: socket.socket, client: socket.socket) -> None:
        while piece := broker.recv(_PIECE_BYTES):
            client.sendall(piece)
        _end(client)


def _run(work: Callable[..., None], *args: socket.socket) -> None:
    def until_closed() -> None:
        try:
            work(*args)
        except (OSError, ValueError, struct.error):  # Either side hung up, perhaps in a frame.
            for one in args:
                _end(one)

    threading.Thread(target=until_closed, name="tap", daemon=True).start()


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):  # The other side was quicker.
        one.shutdown(socket.SHUT_RDWR)
    one.close()
