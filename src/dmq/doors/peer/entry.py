"""What a newcomer and a cluster say to each other, as values and as bytes.

    probe   who are you?                      Probed: node, directory, cluster if any, list of peers
    join    register me (a command's bytes)   Redirected | Postponed | Admitted

JSON, because it is said rarely, by versions that may be far apart: fields that we don't know are skipped.
Bytes are somebody's: they give a value or raise ProtocolError. The command and its result are other
people's bytes and are not opened here. Pure.
"""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from dmq.broker.peers import Address
from dmq.errors import ProtocolError
from dmq.types import Voter

VERSION = 1
PROBE = "probe"
JOIN = "join"


@dataclass(frozen=True, slots=True)
class Probed:
    """Who answers at an address."""

    node: int
    """-1: it has no number yet."""
    directory: UUID
    cluster_id: str | None
    """None: its directory is empty."""
    peers: tuple[int, ...] = ()
    """The ids of the list that it was started with."""


@dataclass(frozen=True, slots=True)
class Redirected:
    """Ask there: that is the metadata leader, as far as we know."""

    address: Address


@dataclass(frozen=True, slots=True)
class Postponed:
    """Ask again later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The command was done, or refused: its result says."""

    cluster_id: str
    result: bytes
    metadata_voters: tuple[Voter, ...]
    addresses: dict[int, Address]
    """Peer addresses of all brokers."""


Reply = Redirected | Postponed | Admitted


def encode_probed(probed: Probed) -> bytes:
    return _json(
        node=probed.node,
        directory=probed.directory.hex,
        cluster=probed.cluster_id,
        peers=list(probed.peers),
    )


def decode_probed(data: bytes) -> Probed:
    """Raises ProtocolError."""
    raw = _object(data)
    try:
        cluster_id = raw["cluster"]
        return Probed(
            int(raw["node"]),
            UUID(raw["directory"]),
            None if cluster_id is None else str(cluster_id),
            tuple(int(node) for node in raw["peers"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"no answer to a probe: {error!r}") from error


def encode_join(command: bytes) -> bytes:
    return _json(command=command.hex())


def decode_join(data: bytes) -> bytes:
    """The command. Raises ProtocolError."""
    try:
        return bytes.fromhex(_object(data)["command"])
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"no request to join: {error!r}") from error


def encode_reply(reply: Reply) -> bytes:
    if isinstance(reply, Redirected):
        return _json(leader=list(reply.address))
    if isinstance(reply, Postponed):
        return _json(later=reply.reason)
    return _json(
        cluster=reply.cluster_id,
        result=reply.result.hex(),
        voters=[[voter.node, voter.directory.hex] for voter in reply.metadata_voters],
        addresses=[[node, *address] for node, address in reply.addresses.items()],
    )


def decode_reply(data: bytes) -> Reply:
    """Raises ProtocolError."""
    raw = _object(data)
    try:
        if "leader" in raw:
            host, port = raw["leader"]
            return Redirected((str(host), int(port)))
        if "later" in raw:
            return Postponed(str(raw["later"]))
        return Admitted(
            str(raw["cluster"]),
            bytes.fromhex(raw["result"]),
            tuple(Voter(int(node), UUID(directory)) for node, directory in raw["voters"]),
            {int(node): (str(host), int(port)) for node, host, port in raw["addresses"]},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"no answer to a request to join: {error!r}") from error


def _json(**fields: Any) -> bytes:
    return json.dumps({"v": VERSION, **fields}, separators=(",", ":")).encode()


def _object(data: bytes) -> dict[str, Any]:
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"no JSON: {error}") from error
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        raise ProtocolError(f"not of version {VERSION}")
    return raw
