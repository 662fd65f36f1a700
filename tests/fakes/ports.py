"""An address where nobody listens, for as long as a test needs that."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def closed_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A port that refuses connections: it is held, so nobody else on this machine can take it."""
    with socket.socket() as holder:
        holder.bind((host, 0))
        yield int(holder.getsockname()[1])
