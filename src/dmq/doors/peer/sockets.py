"""Sockets for the peer door: dialing by name or address, and listening.

Owns the options of these sockets. Never knows what is said on them.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable

from dmq.broker.peers import Address

BACKLOG = 128
ACCEPTS_PER_EVENT = 16
ACCEPT_REST_S = 0.1
"""After the system refused a connection (out of descriptors): the backlog waits."""


class NobodyThereError(ConnectionRefusedError):
    """Every address of that name refused: no process listens there."""


async def connect(address: Address) -> socket.socket:
    """A connection to one of the addresses of a name.

    Raises NobodyThereError, or OSError if we can't tell whether somebody is there.
    """
    loop = asyncio.get_running_loop()
    last: OSError | None = None
    are_all_refused = True
    for family, target in await _resolve(address):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, target)
            _tune(sock)
        except ConnectionRefusedError as error:
            sock.close()
            last = error
        except OSError as error:
            sock.close()
            last, are_all_refused = error, False
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    if last is None:
        raise OSError(f"{address[0]} has no address")
    if are_all_refused:
        raise NobodyThereError(*last.args)
    raise last


async def _resolve(address: Address) -> list[tuple[int, tuple[str, int]]]:
    host, port = address
    if not 0 < port < 65536:
        raise OSError(f"there is no port {port}")
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except ValueError as error:  # What can't even be asked for: an empty label, a null byte.
            raise OSError(f"{host!r} is no name of a host") from error
        return [(family, (str(target[0]), port)) for family, _, _, _, target in found]
    # No thread is asked for what is an address already.
    return [(socket.AF_INET6 if version == 6 else socket.AF_INET, (host, port))]


def _tune(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class Listening:
    """A listening socket on the loop; `admit` gets each connection and the address it came from."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        admit: Callable[[socket.socket, str], None],
        complain: Callable[[str], None],
    ) -> None:
        """Raises OSError."""
        host, port = address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._sock.setblocking(False)
        self._loop = loop
        self._admit = admit
        self._complain = complain
        self._is_closed = False
        self._loop.add_reader(self._sock.fileno(), self._accept)

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_EVENT):
            if self._is_closed:
                return
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._complain(f"can't accept a connection: {error}")
                self._loop.remove_reader(self._sock.fileno())
                self._loop.call_later(ACCEPT_REST_S, self._resume)
                return
            _tune(sock)
            self._admit(sock, f"{address[0]}:{address[1]}")

    def _resume(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
