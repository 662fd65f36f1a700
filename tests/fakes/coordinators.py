"""Group coordinators without a broker: a log in memory that commits when the test says so."""

from collections.abc import Callable
from typing import Any, TypeVar

from unit.machines.cluster_of import Cluster
from unit.machines.groups.coordinator import Coordinator, marker

from dmq.broker.answer import Answer
from dmq.broker.coordinators import GroupHost
from dmq.errors import DmqError, ErrorCode
from dmq.machines.groups.commands import ListedGroup, ListGroups
from dmq.machines.groups.machine import GroupMachine
from dmq.machines.groups.outcome import TransactionalProducer
from dmq.machines.machine import Command, Record
from dmq.machines.state import ClusterState

R = TypeVar("R")


class MemoryLog:
    """Records, and those who wait for them to be committed."""

    def __init__(self) -> None:
        self.entries: list[tuple[Record, int]] = []
        self.is_held = False
        self.refusal: DmqError | None = None
        self._waiting: list[Callable[[ErrorCode], None]] = []

    def append(self, records: list[Record], producer: TransactionalProducer | None) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.entries += [(record, producer.producer_id if producer else -1) for record in records]

    def when_committed(self, callback: Callable[[ErrorCode], None]) -> None:
        self._waiting.append(callback)
        if not self.is_held:
            self.commit()

    def when_newest(self, callback: Callable[[ErrorCode], None]) -> None:
        self.when_committed(callback)

    def commit(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """All that is in the log is committed, or never will be."""
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback(code)


class GroupService:
    """What handlers of group APIs need: one coordinator for all groups, and a cluster's topics."""

    def __init__(self, **config: Any) -> None:
        self._machines = Coordinator(**config)
        self.topics = Cluster()
        self.log = MemoryLog()
        self.now = 0
        self.host = GroupHost(self.new_machine(), self.log)
        self.host.lead(self.now)
        self.groups = self
        self.failure: Exception | None = None

    def new_machine(self) -> GroupMachine:
        return self._machines.new_machine()

    @property
    def world(self) -> Any:
        """Topics as the machine sees them."""
        return self._machines.world

    @property
    def cluster(self) -> ClusterState:
        return self.topics.state

    def create(self, name: str, partitions: int = 1) -> None:
        """A topic that both the handlers and the machine know."""
        created = self.topics.create(name, partitions)
        image = self.world.create(name, partitions)
        self.world.topics[name] = image._replace(topic_id=created.topic_id)

    def submit(self, group_id: str, command: Command[R]) -> Answer[R]:
        if self.failure is not None:
            answer: Answer[R] = Answer()
            answer.fail(self.failure)  # type: ignore[arg-type]
            return answer
        return self.host.submit(command, self.now)

    def list_groups(self, command: ListGroups) -> Answer[list[ListedGroup]]:
        return self.submit("", command)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.log.entries.append(marker(producer_id, commit))
        self.host.machine.complete_transaction(producer_id, commit=commit)

    def pass_time(self, ms: int) -> None:
        end = self.now + ms
        while (at := self.host.next_deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.host.tick(self.now)
        self.now = end
