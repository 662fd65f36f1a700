"""Settings of a broker among others: how it finds its cluster, and its door for other brokers.

Fields only; `broker.py` puts the groups of settings together. `parse_address` and `parse_peers` read the
texts, for the checks there and for whoever dials.
"""

import dataclasses
import re

from dmq.config.checks import AtLeast, Between
from dmq.config.definitions import BOOLEAN, HIGH, INT, LIST, LOW, STRING, setting

_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]@,]*)):(?P<port>[0-9]+)")

Address = tuple[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The cluster, and the door for other brokers."""

    cluster_bootstrap: bool = setting(
        BOOLEAN,
        False,
        "Form a new cluster, if the data directory is empty. It is what a broker does anyway that is "
        "told neither `cluster.join` nor `cluster.peers`.",
        importance=HIGH,
    )
    cluster_join: tuple[str, ...] = setting(
        LIST,
        (),
        "Join a cluster, if the data directory is empty: peer addresses (host:port) of some of its "
        "brokers. The broker gets its number from the cluster unless `node.id` is set, and tries until "
        "somebody answers.",
        importance=HIGH,
    )
    cluster_peers: tuple[str, ...] = setting(
        LIST,
        (),
        "All brokers of a cluster whose first brokers are started at once, each as id@host:port "
        "(peer address), with the same list on each. The lowest id forms the cluster when all others "
        "have said that they are empty; the others join it.",
        importance=HIGH,
    )
    peer_listener: str = setting(
        STRING,
        "",
        "The address (host:port) that the door for other brokers binds; the usual port is 9093, and 0 "
        "lets the system choose. Empty: no other broker can be in the cluster.",
        importance=HIGH,
    )
    peer_advertised: str = setting(
        STRING,
        "",
        "The address (host:port) that other brokers are told. Empty: `peer.listener`; needed when "
        "that binds 0.0.0.0 and the machine's name is not known to the others.",
        importance=HIGH,
    )
    peer_connect_timeout_ms: int = setting(
        INT,
        1000,
        "How long a broker tries to connect to another, and how long the two may take to greet each "
        "other. Too low: no link over a slow network; too high: a cut network is found healed late.",
        check=Between(10, 60_000),
        importance=LOW,
        unit="ms",
    )
    peer_reconnect_backoff_ms: int = setting(
        INT,
        20,
        "The pause after the first failed attempt to connect to another broker. It doubles with each "
        "one. The first attempt after a link is lost comes at once.",
        check=AtLeast(1),
        importance=LOW,
        unit="ms",
    )
    peer_reconnect_backoff_max_ms: int = setting(
        INT,
        500,
        "The longest of these pauses. Too high: a broker that comes back is found late, unless it "
        "finds the others itself.",
        check=AtLeast(1),
        importance=LOW,
        unit="ms",
    )
    peer_silence_max_ms: int = setting(
        INT,
        3000,
        "A link on which nothing came, or nothing could be sent, for so long is given up and begun "
        "anew. Others take over from a silent broker long before, after 500 ms. Too low: a busy broker "
        "loses its links; too high: TCP alone decides when a healed network carries data again.",
        check=Between(1000, 600_000),
        importance=LOW,
        unit="ms",
    )


def parse_address(text: str) -> Address:
    """host:port or [v6]:port. Raises ValueError with the reason."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form host:port")
    port = int(match["port"])
    if port > 65535:
        raise ValueError(f"the port of {text!r} is greater than 65535")
    return (match["v6"] or match["host"] or "", port)


def parse_target(text: str) -> Address:
    """An address that one can connect to. Raises ValueError with the reason."""
    host, port = parse_address(text)
    if not host or not port:
        raise ValueError(f"{text!r} is no address that a broker can connect to")
    return host, port


def parse_peers(texts: tuple[str, ...]) -> dict[int, Address]:
    """id@host:port, by id in order. Raises ValueError with the reason."""
    peers: dict[int, Address] = {}
    for text in texts:
        number, at, address = text.partition("@")
        if not at or not (number.isascii() and number.isdigit()):
            raise ValueError(f"{text!r} is not of the form id@host:port")
        if int(number) in peers:
            raise ValueError(f"broker {int(number)} appears twice")
        peers[int(number)] = parse_target(address)
    if len(set(peers.values())) < len(peers):
        raise ValueError("each broker must have its own address")
    return dict(sorted(peers.items()))
