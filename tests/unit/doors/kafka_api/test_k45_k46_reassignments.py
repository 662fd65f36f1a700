"""Moves of replicas: the door and the real metadata machine together, in every version."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from fakes.calls import answer

from dmq.broker.answer import Answer
from dmq.config.broker import BrokerConfig
from dmq.config.rules import ConfigRules
from dmq.config.settings import Settings
from dmq.doors.kafka_api import k45_alter_partition_reassignments as alter
from dmq.doors.kafka_api import k46_list_partition_reassignments as listing
from dmq.errors import DmqError, ErrorCode, KafkaError
from dmq.machines.cluster import ClusterMachine
from dmq.machines.commands import CreateTopics, FormCluster, NewTopic, RegisterBroker
from dmq.types import Millis
from dmq.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from dmq.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


class Service:
    """A metadata machine of one broker's own: what is handled is committed at once."""

    def __init__(self) -> None:
        self._machine = ClusterMachine(ConfigRules(Settings(BrokerConfig())), {})
        self.do(FormCluster("c"))
        for node in (1, 2, 3, 4):
            self.do(RegisterBroker(node, UUID(int=node), UUID(int=100 + node)))
        placed = ((0, (1, 2, 3)), (1, (2, 3, 1)))
        self.do(CreateTopics((NewTopic("t", UUID(int=9), assignments=placed),)))

    @property
    def cluster(self) -> Any:
        return self._machine.state

    def do(self, command: Any) -> Any:
        outcome = self._machine.handle(command, Millis(0))
        for record in outcome.records:
            self._machine.apply(record)
        return outcome.response

    def submit(self, command: Any) -> Answer[Any]:
        try:
            return Answer.of(self.do(command))
        except DmqError as error:
            refused: Answer[Any] = Answer()
            refused.fail(error)
            return refused

    def answer_settled(self, make: Callable[[], Any], reply: Callable[[Any], None]) -> None:
        reply(make())


Wishes = dict[tuple[str, int], list[int] | None]


def altered(service: Service, wishes: Wishes, version: int = 1, may_resize: bool = True) -> Any:
    topics = [
        ReassignableTopic(name, [ReassignablePartition(index, replicas)])
        for (name, index), replicas in wishes.items()
    ]
    request = AlterPartitionReassignmentsRequest(1000, may_resize, topics)
    return answer(alter.handle, service, 45, version, request)


def code(response: Any) -> ErrorCode:
    [topic] = response.responses
    [partition] = topic.partitions
    return ErrorCode(partition.error_code)


def listed(service: Service, topics: Any = None) -> dict[tuple[str, int], Any]:
    request = ListPartitionReassignmentsRequest(1000, topics)
    response = answer(listing.handle, service, 46, 0, request)
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.name, each.partition_index): (
            each.replicas,
            each.adding_replicas,
            each.removing_replicas,
        )
        for topic in response.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", [0, 1])
def test_a_move_is_listed_until_it_is_called_off(version: int) -> None:
    service = Service()
    assert listed(service) == {}
    assert code(altered(service, {("t", 0): [4, 2, 3]}, version)) == ErrorCode.NONE
    replicas, adding, removing = listed(service)["t", 0]
    assert (sorted(replicas), adding, removing) == ([1, 2, 3, 4], [4], [1])
    asked = [
        ListPartitionReassignmentsTopics("t", [1, 7]),
        ListPartitionReassignmentsTopics("u", [0]),
    ]
    assert listed(service, asked) == {}
    assert list(listed(service, [ListPartitionReassignmentsTopics("t", [0])])) == [("t", 0)]
    assert code(altered(service, {("t", 0): None}, version)) == ErrorCode.NONE
    _, adding, removing = listed(service)["t", 0]
    assert (adding, removing) == ([], [4])


def test_a_topic_without_partitions_is_told_too() -> None:
    topics = [ReassignableTopic("t", []), ReassignableTopic("u", [])]
    request = AlterPartitionReassignmentsRequest(1000, True, topics)
    response = answer(alter.handle, Service(), 45, 1, request)
    assert [(topic.name, topic.partitions) for topic in response.responses] == [
        ("t", []),
        ("u", []),
    ]


def test_another_order_is_done_at_once() -> None:
    service = Service()
    assert code(altered(service, {("t", 0): [3, 1, 2]})) == ErrorCode.NONE
    assert listed(service) == {}
    assert service.cluster.topics["t"].partitions[0].replicas == (3, 1, 2)


@pytest.mark.parametrize(
    ("where", "replicas", "may_resize", "expected"),
    [
        (("nope", 0), [1, 2, 3], True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 99), [1], True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 0), [], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("t", 0), [1, 1], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("t", 0), [1, 2, 77], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("t", 0), [-1], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("t", 0), None, True, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (("t", 0), [1], False, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_codes_are_kafkas(
    where: tuple[str, int], replicas: list[int] | None, may_resize: bool, expected: ErrorCode
) -> None:
    """Each as a Kafka 4.3 answers the same request."""
    response = altered(Service(), {where: replicas}, may_resize=may_resize)
    assert code(response) == expected
    assert response.error_code == ErrorCode.NONE
    assert response.allow_replication_factor_change == may_resize


def test_partitions_succeed_and_fail_by_themselves() -> None:
    response = altered(Service(), {("t", 0): [4, 2, 3], ("t", 5): [1], ("u", 0): [1]})
    told = [
        (topic.name, each.partition_index, each.error_code)
        for topic in response.responses
        for each in topic.partitions
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told == [("t", 0, ErrorCode.NONE), ("t", 5, unknown), ("u", 0, unknown)]


def test_a_cluster_without_a_head_says_so_for_the_whole() -> None:
    class Headless(Service):
        def submit(self, command: Any) -> Answer[Any]:
            refused: Answer[Any] = Answer()
            refused.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "nobody leads the metadata"))
            return refused

    response = altered(Headless(), {("t", 0): [4, 2, 3]})
    assert response.error_code == ErrorCode.NOT_CONTROLLER
    assert response.error_message == "nobody leads the metadata"
    assert response.responses == []
