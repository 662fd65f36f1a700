"""How a broker comes to belong to a cluster: the values that the broker and its peer door exchange.

The broker says who it is (`Newcomer`); the peer door finds its place (`Founded`, `Joined`) and answers
other newcomers in the name of a `Member`. Values and protocols only. See doors/peer/joining.py for
the rules.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from dmq.broker.answer import Answer
from dmq.broker.peers import Address, LinkEvents, Peers
from dmq.types import Voter


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A broker with an empty directory, and how its registration is written and its result read."""

    node_id: int
    """-1: whichever it is given."""
    directory: UUID
    command: Callable[[], bytes]
    """A registration under `node_id`, or for any number if that is -1."""
    result: Callable[[bytes], tuple[int, int]]
    """Node id and broker epoch. Raises KafkaError if it is a refusal."""
    new_cluster_id: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Founded:
    """This broker is to form a cluster."""

    cluster_id: str
    node_id: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The cluster registered this broker."""

    cluster_id: str
    node_id: int
    broker_epoch: int
    metadata_voters: tuple[Voter, ...]
    addresses: dict[int, Address]
    """Peer addresses of the other brokers."""


class Member(Protocol):
    """A broker that takes part in its cluster, as newcomers need it."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def node_id(self) -> int: ...

    def metadata_leader(self) -> int | None:
        """Its node id, which may be ours; None: nobody knows now."""

    def metadata_voters(self) -> tuple[Voter, ...]: ...

    def addresses(self) -> Mapping[int, Address]:
        """Peer addresses of all registered brokers, ours too."""

    def register(self, command: bytes) -> Answer[bytes]:
        """Submit a registration, as metadata leader; the answer is the encoded result.

        The bytes are a stranger's: refuse, with KafkaError, what is no registration.
        """


class Entrance(Protocol):
    """The peer door as the start of a broker needs it."""

    @property
    def peers(self) -> Peers: ...

    def listen(self, directory: UUID, cluster_id: str | None) -> int:
        """Let strangers ask who we are; the port that it became. Raises OSError."""

    async def find_place(self, newcomer: Newcomer) -> Founded | Joined:
        """What a broker with an empty directory is to do. Raises JoinError."""

    async def check_cluster(self, cluster_id: str) -> dict[int, Address]:
        """Ask those that the settings name: where those of our cluster answer. Raises JoinError if one
        is of another."""

    def belongs(self, cluster_id: str, node_id: int) -> None:
        """This broker is of a cluster from now on, and that is on disk."""

    def open_links(self, events: LinkEvents) -> None:
        """Link with those that `peers` knows."""

    def admit(self, member: Member) -> None:
        """Answer newcomers in the name of this member."""
