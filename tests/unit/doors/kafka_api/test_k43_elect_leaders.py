"""ElectLeaders: what the door asks the service, and what clients of each version are told."""

import pytest
from fakes.calls import answer, asked

from dmq.broker.answer import Answer
from dmq.broker.elections import PREFERRED, UNCLEAN, Elected
from dmq.doors.kafka_api.k43_elect_leaders import handle
from dmq.errors import ErrorCode, KafkaError
from dmq.wire.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions

KEY = 43
VERSIONS = (0, 1, 2)


class Service:
    def __init__(self, *elected: Elected) -> None:
        self.asked: list[tuple[int, list[tuple[str, int]] | None, int]] = []
        self.answer: Answer[list[Elected]] = Answer.of(list(elected)) if elected else Answer()

    def elect_leaders(
        self, kind: int, partitions: list[tuple[str, int]] | None, timeout_ms: int
    ) -> Answer[list[Elected]]:
        self.asked.append((kind, partitions, timeout_ms))
        return self.answer


@pytest.mark.parametrize("version", VERSIONS)
def test_results_are_told_by_topic(version: int) -> None:
    service = Service(
        Elected("b", 1, ErrorCode.ELECTION_NOT_NEEDED, "it leads"),
        Elected("a", 0),
        Elected("b", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "it is down"),
    )
    topics = [TopicPartitions("b", [1, 0, 1]), TopicPartitions("a", [0])]
    request = ElectLeadersRequest(PREFERRED, topics, 1234)
    response = answer(handle, service, KEY, version, request)
    assert service.asked == [(PREFERRED, [("b", 1), ("b", 0), ("a", 0)], 1234)]
    assert response.error_code == ErrorCode.NONE
    assert [
        (topic.topic, each.partition_id, each.error_code, each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
    ] == [
        ("a", 0, ErrorCode.NONE, None),
        ("b", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "it is down"),
        ("b", 1, ErrorCode.ELECTION_NOT_NEEDED, "it leads"),
    ]


def test_a_topic_without_partitions_is_told_too() -> None:
    service = Service(Elected("b", 0))
    topics = [TopicPartitions("b", [0]), TopicPartitions("a", [])]
    response = answer(handle, service, KEY, 2, ElectLeadersRequest(PREFERRED, topics))
    told = [(each.topic, len(each.partition_result)) for each in response.replica_election_results]
    assert told == [("a", 0), ("b", 1)]


def test_of_all_partitions_those_that_need_none_are_not_told() -> None:
    service = Service(Elected("a", 0, ErrorCode.ELECTION_NOT_NEEDED), Elected("a", 1))
    response = answer(handle, service, KEY, 2, ElectLeadersRequest(UNCLEAN, None))
    assert service.asked == [(UNCLEAN, None, 60_000)]
    [topic] = response.replica_election_results
    assert [each.partition_id for each in topic.partition_result] == [1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failure_of_the_whole_is_told_for_each_partition_too(version: int) -> None:
    service = Service()
    request = ElectLeadersRequest(PREFERRED, [TopicPartitions("a", [3])])
    call = asked(handle, service, KEY, version, request)
    assert call.replies == []
    service.answer.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "nobody leads"))
    [response] = call.replies
    assert response.error_code == (ErrorCode.NOT_CONTROLLER if version else 0)
    [topic] = response.replica_election_results
    [result] = topic.partition_result
    assert (result.partition_id, result.error_code) == (3, ErrorCode.NOT_CONTROLLER)


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_kind_is_refused_before_anybody_is_asked(version: int) -> None:
    service = Service()
    response = answer(handle, service, KEY, version, ElectLeadersRequest(7, None))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert service.asked == []
