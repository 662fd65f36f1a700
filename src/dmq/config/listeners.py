"""Listeners in Kafka's notation: NAME://host:port, and which of them clients are told.

Pure text work; binding and looking up host names is the runtime's. Called by `broker.py`.
"""

import re
from typing import NamedTuple

from dmq.config.broker_node import PROTOCOLS

SERVED_PROTOCOLS = ("PLAINTEXT",)
"""Security protocols that the Kafka door speaks."""

ANY_HOST = ("", "0.0.0.0", "::")  # noqa: S104  Names, nothing is bound here.
"""Hosts that mean every address of the machine; no client can be told one of them."""

_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_]+)://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]+)"
)


def host_port(host: str, port: object) -> str:
    """An address as text; the host of version 6 with or without its brackets."""
    is_bare = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if is_bare else f"{host}:{port}"


class Listener(NamedTuple):
    """One address of the Kafka door."""

    name: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{host_port(self.host, self.port)}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """NAME:PROTOCOL pairs. Raises ValueError with the reason."""
    protocols: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = pair.partition(":")
        if not colon or protocol.upper() not in PROTOCOLS:
            raise ValueError(f"{pair!r} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}")
        if name.upper() in protocols:
            raise ValueError(f"{name} appears twice")
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_listener(text: str, protocols: dict[str, str]) -> Listener:
    """One listener. Raises ValueError with the reason."""
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form NAME://host:port")
    name, port = match["name"].upper(), int(match["port"])
    if port > 65535:
        raise ValueError(f"the port of {text!r} is greater than 65535")
    if name not in protocols:
        raise ValueError(f"no security protocol is known for listener {name}")
    return Listener(
        name, protocols[name], match["v6"] if match["v6"] else match["host"] or "", port
    )


def parse_listeners(texts: tuple[str, ...], protocols: dict[str, str]) -> tuple[Listener, ...]:
    """Several listeners with different names and ports. Raises ValueError with the reason."""
    listeners = tuple(parse_listener(text, protocols) for text in texts)
    names = [listener.name for listener in listeners]
    if len(set(names)) < len(names):
        raise ValueError("each listener must have its own name")
    return listeners


def check_served(listeners: tuple[Listener, ...]) -> None:
    """Raises ValueError for a protocol that the door does not speak, and for two on one port."""
    for listener in listeners:
        if listener.protocol not in SERVED_PROTOCOLS:
            raise ValueError(f"{listener} asks for {listener.protocol}, which is not served yet")
    bound = [(listener.host, listener.port) for listener in listeners if listener.port]
    if len(set(bound)) < len(bound):
        raise ValueError("each listener must have its own host and port")


def check_advertised(advertised: tuple[Listener, ...], listeners: tuple[Listener, ...]) -> None:
    """Raises ValueError for an address that can't be told to a client."""
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.host in ANY_HOST:
            raise ValueError(f"{listener} is no address that a client can connect to")
        if listener.name not in names:
            raise ValueError(f"there is no listener {listener.name}")
