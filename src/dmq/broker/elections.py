"""What the verbs about leaders and replicas take and give: elections, moves of replicas, farewells.

Owns plain values, and the one reading of the cluster's state that ListPartitionReassignments needs.
The service makes them, doors tell them; the commands are the metadata machine's and are named here
because doors know no machines.
"""

from typing import NamedTuple, Protocol

from dmq.broker.answer import Answer
from dmq.errors import ErrorCode
from dmq.machines.commands import AlterReassignments as AlterReassignments
from dmq.machines.commands import Done as Done
from dmq.machines.commands import Reassigned as Reassigned
from dmq.machines.commands import Reassignment as Reassignment
from dmq.machines.commands import UnregisterBroker as UnregisterBroker
from dmq.machines.state import ClusterState

PREFERRED, UNCLEAN = 0, 1
"""Kinds of elections, by Kafka's codes."""


class Elected(NamedTuple):
    """How an election of one partition's leader went."""

    topic: str
    partition: int
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


class Elections(Protocol):
    """Who can hold elections: the service."""

    def elect_leaders(
        self, kind: int, partitions: list[tuple[str, int]] | None, timeout_ms: int
    ) -> Answer[list[Elected]]:
        """Elect leaders of these partitions, of all for None; each succeeds or fails by itself."""


class Moving(NamedTuple):
    """A partition that is being moved; `replicas` are all that may have it now."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def moving(state: ClusterState) -> list[Moving]:
    """Every partition that is being moved, in order."""
    found: list[Moving] = []
    for (topic_id, index), placed in state.moving.items():
        topic = state.topics_by_id.get(topic_id)
        if topic is not None:
            found.append(Moving(topic.name, index, placed.members, placed.adding, placed.removing))
    return sorted(found)
