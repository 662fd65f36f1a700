"""Is there a Kafka broker at this address? Answered in seconds; librdkafka would knock for thirty.

Owns one connection attempt, and over a plain connection one smallest question (ApiVersions 0, which
every broker answers, with 14 bytes that are written here so that nothing need be imported). Never
sees records.
"""

import socket
import struct
import time

CONNECT_TIMEOUT_S = 5.0
"""How long an address may take to accept a connection and, if asked, to answer."""
HANGS_UP = "takes the connection and hangs up: is it a peer port, and not that of clients?"

_CORRELATION_ID = 0x646D71
_QUESTION = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
_ANSWER_BYTES_MAX = 1 << 20


def knock(host: str, port: int, timeout_s: float, *, is_plain: bool) -> str:
    """Why nobody can be spoken to there, or nothing. `is_plain`: no TLS and no login."""
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection((host, port), timeout=max(0.1, timeout_s)) as connection:
            return _ask(connection, deadline) if is_plain else ""
    except OSError as error:
        return _reason(error)


def _ask(connection: socket.socket, deadline: float) -> str:
    try:
        connection.sendall(_QUESTION)
        answer = b""
        while len(answer) < 8:
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            piece = connection.recv(8 - len(answer))
            if not piece:
                return HANGS_UP
            answer += piece
    except ConnectionResetError:
        return HANGS_UP
    except TimeoutError:
        return "takes the connection but does not answer"
    size, correlation_id = struct.unpack(">ii", answer)
    if correlation_id != _CORRELATION_ID or not 4 < size <= _ANSWER_BYTES_MAX:
        return "somebody else answers, in another language than Kafka's"
    return ""


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return (error.strerror or str(error)).lower()
