"""How the brokers of a test cluster reach each other, and how they are cut from each other.

Owns the seam `Network` with its simplest form, `Direct`: loopback, nothing can be cut. The others:
`proxy` (no root needed) and `namespaces` (Linux, root). Brokers have slots, counted from 1 in the
order in which they are placed; node ids are the cluster's business. Called by `cluster` only.
"""

import random
import socket
from dataclasses import dataclass
from typing import Protocol

CLIENTS = 0
"""The slot of everybody who is not a broker."""

_PORTS = range(10_240, 32_000)
"""Below the ports that systems give to outgoing connections, so that a broker that is down for a while
finds its port free when it comes back."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker of the cluster lives."""

    slot: int
    host: str
    kafka_port: int
    peer_port: int
    """Where its peer door listens."""
    peer_advertised: tuple[str, int]
    """Where its peers are told to look for it."""
    prefix: tuple[str, ...] = ()
    """What its command line begins with."""


class NotPossibleError(RuntimeError):
    """This network can't do that; the message says which one can."""


class Network(Protocol):
    """A cut is one-way: nothing of `source` reaches `target` until it is healed. Silently: nobody is
    told, connections stay open, as with a cable that was pulled."""

    name: str
    what: str
    """For people: what a cut is made of."""

    def place(self) -> Place: ...
    def is_up(self, slot: int, pid: int) -> None: ...
    def is_down(self, slot: int) -> None: ...
    def cut(self, source: int, target: int) -> None: ...
    def heal(self, source: int, target: int) -> None: ...
    def cleanup(self) -> list[list[str]]:
        """Commands that remove what is left of it when its owner was killed."""
        ...

    def close(self) -> None: ...


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on now."""
    dice = random.SystemRandom()
    for _ in range(1000):
        port = dice.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port on {host} between {_PORTS.start} and {_PORTS.stop}")


class Direct:
    """Loopback."""

    name = "direct"
    what = "loopback, nothing in between: nothing can be cut"

    def __init__(self) -> None:
        self._slots = 0

    def place(self) -> Place:
        self._slots += 1
        host, peer_port = "127.0.0.1", free_port()
        return Place(self._slots, host, free_port(), peer_port, (host, peer_port))

    def is_up(self, slot: int, pid: int) -> None:
        pass

    def is_down(self, slot: int) -> None:
        pass

    def cut(self, source: int, target: int) -> None:
        raise NotPossibleError(
            "nothing lies between these brokers that could be cut: "
            'use Cluster(network="proxy") or, as root on Linux, "namespaces"'
        )

    def heal(self, source: int, target: int) -> None:
        pass

    def cleanup(self) -> list[list[str]]:
        return []

    def close(self) -> None:
        pass
