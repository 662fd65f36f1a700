"""Who leads instead, told together with the refusal (KIP-951), so that a client need not ask first.

Owns the collection of leaders that one answer names, and their addresses on the client's listener.
Used by Produce and Fetch, and only when they have to refuse.
"""

from typing import Protocol
from uuid import UUID

from dmq.broker.views import BrokerView
from dmq.errors import ErrorCode

MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Refusals after which a client looks for another leader."""


class Leaders(Protocol):
    """Who knows the leaders: the service."""

    def leader_of(self, topic: str, topic_id: UUID, index: int) -> tuple[int, int]: ...
    def brokers(self, listener: str) -> list[BrokerView]: ...


class LeaderHints:
    """The leaders that one answer names. A leader whose address is not known is not named."""

    def __init__(self, service: Leaders, listener: str) -> None:
        self._service = service
        self._brokers = {broker.node_id: broker for broker in service.brokers(listener)}
        self._named: dict[int, None] = {}

    def find(self, topic: str, topic_id: UUID, index: int) -> tuple[int, int] | None:
        """(leader, epoch) of a partition, if there is one that can be dialled."""
        leader, epoch = self._service.leader_of(topic, topic_id, index)
        if leader not in self._brokers:
            return None
        self._named[leader] = None
        return leader, epoch

    def named(self) -> list[BrokerView]:
        """The brokers behind what was found."""
        return [self._brokers[node] for node in self._named]
