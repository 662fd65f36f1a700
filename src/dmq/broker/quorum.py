"""The metadata quorum as people see it: who leads, who votes, who only reads, how far each is.

Owns plain values. The service fills them in on the metadata leader; DescribeQuorum tells them.
"""

from typing import NamedTuple, Protocol
from uuid import UUID

from dmq.broker.answer import Answer


class QuorumReplica(NamedTuple):
    """One copy of the metadata log. Times are ms since 1970, -1 where the leader can't say."""

    node: int
    directory: UUID
    log_end_offset: int
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1


class QuorumNode(NamedTuple):
    """Where a voter listens: (listener, host, port)."""

    node: int
    listeners: list[tuple[str, str, int]]


class QuorumView(NamedTuple):
    """The metadata quorum as its leader sees it."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    nodes: list[QuorumNode]


class Quorum(Protocol):
    """Who can tell of the quorum: the service."""

    def quorum(self) -> Answer[QuorumView]:
        """The quorum as its leader sees it, whoever that is."""
