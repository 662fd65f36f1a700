"""Who is at an address: a broker, nobody, somebody mute, somebody else. With real sockets."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from dmq.cli.knock import knock
from dmq.cli.raw import api_versions


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        assert chunk, "the caller hung up in the middle of its question"
        data += chunk
    return data


def as_kafka(connection: socket.socket) -> None:
    """Answer the question as a broker that refuses it: that, too, is Kafka."""
    size, key, version, correlation_id = struct.unpack(">ihhi", _receive(connection, 14)[:12])
    assert (size, key, version) == (10, 18, 0)
    connection.sendall(struct.pack(">iih", 6, correlation_id, 35))


def as_web_server(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def hanging_up(connection: socket.socket) -> None:
    _receive(connection, 14)


@contextmanager
def server(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """Somebody at a port who takes one connection and behaves so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection:
                behave(connection)
                with suppress(OSError):  # the caller has its answer and may be gone already
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("behave", "expected"),
    [(as_kafka, ""), (as_web_server, "another language"), (hanging_up, "is it a peer port")],
)
def test_who_answers(behave: Callable[[socket.socket], None], expected: str) -> None:
    with server(behave) as port:
        problem = knock("127.0.0.1", port, 60.0, is_plain=True)
    assert expected in problem
    assert bool(problem) == bool(expected)


def test_somebody_mute_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        problem = knock("127.0.0.1", listener.getsockname()[1], 0.2, is_plain=True)
    assert "does not answer" in problem


def test_with_tls_or_a_login_nothing_is_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert knock("127.0.0.1", listener.getsockname()[1], 60.0, is_plain=False) == ""


def test_who_hangs_up_at_the_first_question_may_be_a_peer() -> None:
    with server(hanging_up) as port, pytest.raises(ConnectionResetError, match="a peer port"):
        api_versions("127.0.0.1", port)
