"""A member of the consumer protocol as a client library plays it."""

from typing import Any
from uuid import UUID

from unit.machines.groups.coordinator import CLIENT, GROUP, Coordinator

from dmq.machines.groups.consumer_commands import ConsumerBeat, ConsumerHeartbeat
from dmq.machines.groups.facts import Partitions


class Consumer:
    """Sends what it must and does at once what it is told, unless `is_slow` to give up."""

    def __init__(self, coordinator: Coordinator, name: str, *topics: str, **details: Any) -> None:
        self.coordinator = coordinator
        self.member_id = name
        self.epoch = 0
        self.owned: set[tuple[UUID, int]] = set()
        self.assigned: set[tuple[UUID, int]] = set()
        self.details = details
        self.topics: tuple[str, ...] | None = topics
        self.is_slow = False
        self.interval_ms = 0

    def beat(self, **details: Any) -> ConsumerBeat:
        """One heartbeat: full when joining, else with what it owns. It takes what it is given."""
        wanted: dict[str, Any] = {"owned": pack(self.owned)}
        if self.epoch == 0:
            wanted |= {"rebalance_timeout_ms": 60_000, "topic_names": self.topics}
        if "instance_id" in self.details:
            wanted["instance_id"] = self.details["instance_id"]
        if self.epoch == 0:
            wanted |= self.details
        command = ConsumerHeartbeat(GROUP, self.member_id, self.epoch, CLIENT, **(wanted | details))
        answer = self.coordinator.do(command)
        assert isinstance(answer, ConsumerBeat)
        self.take(answer)
        return answer

    def take(self, answer: ConsumerBeat) -> None:
        self.epoch = answer.member_epoch
        self.interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self.assigned = {(topic, index) for topic, some in answer.assignment for index in some}
            if self.is_slow:
                self.owned |= self.assigned
            else:
                self.owned = set(self.assigned)

    def let_go(self) -> None:
        """Give up what it was told to."""
        self.owned &= self.assigned

    def leave(self, epoch: int = -1) -> ConsumerBeat:
        instance_id = self.details.get("instance_id")
        command = ConsumerHeartbeat(GROUP, self.member_id, epoch, CLIENT, instance_id)
        answer = self.coordinator.do(command)
        self.epoch, self.owned, self.assigned = 0, set(), set()
        assert isinstance(answer, ConsumerBeat)
        return answer

    @property
    def indexes(self) -> list[int]:
        """The numbers of its partitions."""
        return sorted(index for _, index in self.owned)


def pack(partitions: set[tuple[UUID, int]]) -> Partitions:
    topics: dict[UUID, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return tuple((topic, tuple(indexes)) for topic, indexes in topics.items())


def settle(coordinator: Coordinator, *consumers: Consumer, rounds: int = 6) -> None:
    """Everybody heartbeats, often enough for a rebalance to end."""
    for _ in range(rounds):
        coordinator.pass_time(1000)
        for consumer in consumers:
            consumer.beat()
