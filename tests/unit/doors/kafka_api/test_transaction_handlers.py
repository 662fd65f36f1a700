"""The APIs of transactions, every version over the real codecs, on the real coordinator."""

from typing import Any

import pytest
from fakes.calls import answer
from fakes.transactions import TransactionService

from dmq.broker.answer import Answer
from dmq.doors.kafka_api import (
    k22_init_producer_id,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k27_write_txn_markers,
    k28_txn_offset_commit,
    k61_describe_producers,
    k65_describe_transactions,
    k66_list_transactions,
)
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.transactions.facts import TxnState
from dmq.types import TopicPartition
from dmq.wire.messages.k22_init_producer_id import InitProducerIdRequest
from dmq.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from dmq.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from dmq.wire.messages.k26_end_txn import EndTxnRequest
from dmq.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from dmq.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from dmq.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from dmq.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from dmq.wire.messages.k66_list_transactions import ListTransactionsRequest

HANDLES: dict[int, Any] = {
    22: k22_init_producer_id.handle,
    24: k24_add_partitions_to_txn.handle,
    25: k25_add_offsets_to_txn.handle,
    26: k26_end_txn.handle,
    27: k27_write_txn_markers.handle,
    28: k28_txn_offset_commit.handle,
    61: k61_describe_producers.handle,
    65: k65_describe_transactions.handle,
    66: k66_list_transactions.handle,
}


@pytest.fixture
def service() -> TransactionService:
    service = TransactionService()
    service.create("t", 2)
    return service


def ask(service: TransactionService, api_key: int, version: int, request: object) -> Any:
    return answer(HANDLES[api_key], service, api_key, version, request)


def init(service: TransactionService, name: str | None = "x") -> tuple[int, int]:
    reply = ask(service, 22, 4, InitProducerIdRequest(name, 60_000))
    assert reply.error_code == 0
    return reply.producer_id, reply.producer_epoch


def add(
    service: TransactionService, version: int, producer: tuple[int, int], **topics: list[int]
) -> dict[tuple[str, int], int]:
    """Codes by partition."""
    wanted = [AddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()]
    if version < 4:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=wanted,
        )
        results = ask(service, 24, version, request).results_by_topic_v3_and_below
    else:
        transaction = AddPartitionsToTxnTransaction("x", *producer, False, wanted)
        reply = ask(service, 24, version, AddPartitionsToTxnRequest(transactions=[transaction]))
        (one,) = reply.results_by_transaction
        assert one.transactional_id == "x"
        results = one.topic_results
    return {
        (topic.name, partition.partition_index): partition.partition_error_code
        for topic in results
        for partition in topic.results_by_partition
    }


def state(service: TransactionService) -> TxnState:
    found = service.machine.state.find("x")
    assert found is not None
    return found.state


# --- InitProducerId -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_22_with_and_without_a_name(service: TransactionService, version: int) -> None:
    reply = ask(service, 22, version, InitProducerIdRequest(None, 60_000))
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, 100, 0)
    for epoch in (0, 1):
        reply = ask(service, 22, version, InitProducerIdRequest("x", 60_000))
        assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, 101, epoch)


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90), (5, 90)])
def test_22_the_fenced_are_told_what_they_know(
    service: TransactionService, version: int, code: int
) -> None:
    producer = init(service)
    init(service)
    reply = ask(service, 22, version, InitProducerIdRequest("x", 60_000, *producer))
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (code, -1, -1)


def test_22_an_id_comes_with_its_epoch(service: TransactionService) -> None:
    for had in ((5, -1), (-1, 5)):
        reply = ask(service, 22, 4, InitProducerIdRequest("x", 60_000, *had))
        assert reply.error_code == ErrorCode.INVALID_REQUEST


def test_22_refusals(service: TransactionService) -> None:
    assert ask(service, 22, 4, InitProducerIdRequest("", 60_000)).error_code == 42
    assert ask(service, 22, 4, InitProducerIdRequest("x", 0)).error_code == 50


def test_22_waits_for_the_transaction_in_the_way(service: TransactionService) -> None:
    add(service, 3, init(service), t=[0])
    service.has_leaders = False
    for _ in range(2):
        reply = ask(service, 22, 4, InitProducerIdRequest("x", 60_000))
        assert reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    service.has_leaders = True
    service.coordinator.send_again()
    assert init(service) == (100, 2)


# --- AddPartitionsToTxn, AddOffsetsToTxn --------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_24_adds(service: TransactionService, version: int) -> None:
    producer = init(service)
    assert add(service, version, producer, t=[1, 0]) == {("t", 1): 0, ("t", 0): 0}
    found = service.machine.state.find("x")
    assert found is not None
    assert found.partitions == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert found.client_version == (1 if version < 4 else 2)


@pytest.mark.parametrize("version", range(6))
def test_24_one_unknown_partition_fails_them_all(service: TransactionService, version: int) -> None:
    codes = add(service, version, init(service), t=[0, 2], nowhere=[0])
    assert codes == {("t", 0): 55, ("t", 2): 3, ("nowhere", 0): 3}
    assert state(service) is TxnState.EMPTY


@pytest.mark.parametrize(("version", "code", "other"), [(0, 29, 55), (3, 29, 55), (4, 0, 0)])
def test_24_only_brokers_add_a_coordinators_partition(
    service: TransactionService, version: int, code: int, other: int
) -> None:
    service.create("__consumer_offsets", 1)
    codes = add(service, version, init(service), t=[0], __consumer_offsets=[0])
    assert codes == {("t", 0): other, ("__consumer_offsets", 0): code}


@pytest.mark.parametrize(("version", "code"), [(0, 47), (1, 47), (2, 90), (3, 90), (4, 90)])
def test_24_the_fenced_are_told_what_they_know(
    service: TransactionService, version: int, code: int
) -> None:
    producer = init(service)
    init(service)
    assert add(service, version, producer, t=[0]) == {("t", 0): code}


@pytest.mark.parametrize(("version", "code"), [(4, 48), (5, 120)])
def test_24_brokers_ask_for_several(service: TransactionService, version: int, code: int) -> None:
    producer = init(service)
    add(service, 3, producer, t=[0])
    topics = [AddPartitionsToTxnTopic("t", [0, 1])]
    reply = ask(
        service, 24, version,
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction("x", *producer, True, topics),
                AddPartitionsToTxnTransaction("y", 7, 0, False, topics),
                AddPartitionsToTxnTransaction("z", 7, 0, True, topics),
            ]
        ),
    )  # fmt: skip
    assert [
        (each.transactional_id, [p.partition_error_code for p in topic.results_by_partition])
        for each in reply.results_by_transaction
        for topic in each.topic_results
    ] == [("x", [0, code]), ("y", [49, 49]), ("z", [49, 49])]


@pytest.mark.parametrize("version", range(5))
def test_25_adds_where_the_offsets_are(service: TransactionService, version: int) -> None:
    producer = init(service)
    request = AddOffsetsToTxnRequest("x", *producer, "group")
    assert ask(service, 25, version, request).error_code == 0
    found = service.machine.state.find("x")
    assert found is not None
    assert found.partitions == {TopicPartition("__consumer_offsets", 0)}
    init_again = ask(service, 25, version, AddOffsetsToTxnRequest("x", producer[0], 9, "group"))
    assert init_again.error_code == (47 if version < 2 else 90)
    assert ask(service, 25, version, AddOffsetsToTxnRequest("x", *producer, "")).error_code == 24


# --- EndTxn, WriteTxnMarkers --------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("is_commit", [True, False])
def test_26_ends(service: TransactionService, version: int, is_commit: bool) -> None:
    producer = init(service)
    add(service, 3 if version < 5 else 4, producer, t=[0, 1])
    for _ in range(2):
        reply = ask(service, 26, version, EndTxnRequest("x", *producer, is_commit))
        assert reply.error_code == 0
        if version >= 5:
            assert (reply.producer_id, reply.producer_epoch) == (producer[0], 1)
    assert [marker.is_commit for marker in service.markers] == [is_commit] * 2
    assert ask(service, 26, version, EndTxnRequest("x", *producer, not is_commit)).error_code == 48


@pytest.mark.parametrize(("version", "code"), [(1, 47), (2, 90), (5, 90)])
def test_26_the_fenced_are_told_what_they_know(
    service: TransactionService, version: int, code: int
) -> None:
    producer = init(service)
    init(service)
    reply = ask(service, 26, version, EndTxnRequest("x", *producer, True))
    assert reply.error_code == code


@pytest.mark.parametrize("version", [1, 2])
def test_27_writes_markers(service: TransactionService, version: int) -> None:
    topics = [WritableTxnMarkerTopic("t", [0, 1]), WritableTxnMarkerTopic("nowhere", [0])]
    request = WriteTxnMarkersRequest([WritableTxnMarker(7, 3, False, topics, 5, 2)])
    reply = ask(service, 27, version, request)
    (marker,) = reply.markers
    assert marker.producer_id == 7
    assert [
        (topic.name, p.partition_index, p.error_code)
        for topic in marker.topics
        for p in topic.partitions
    ] == [("t", 0, 0), ("t", 1, 0), ("nowhere", 0, 3)]
    assert [m[2:] for m in service.markers] == [(7, 3, False, 5, version)] * 2
    older = [WritableTxnMarker(7, 2, False, topics[:1], 5, 2)]
    (late,) = ask(service, 27, version, WriteTxnMarkersRequest(older)).markers
    assert [p.error_code for p in late.topics[0].partitions] == [47, 47]
    stale = [WritableTxnMarker(7, 4, False, topics[:1], 4, 2)]
    (fenced,) = ask(service, 27, version, WriteTxnMarkersRequest(stale)).markers
    assert [p.error_code for p in fenced.topics[0].partitions] == [52, 52]


def test_27_with_nothing_to_write(service: TransactionService) -> None:
    assert ask(service, 27, 1, WriteTxnMarkersRequest([])).markers == []


# --- TxnOffsetCommit ----------------------------------------------------------------------------


def offsets(producer: tuple[int, int], *indexes: int, name: str = "t") -> TxnOffsetCommitRequest:
    partitions = [TxnOffsetCommitRequestPartition(index, 7, -1, "m") for index in indexes]
    topics = [TxnOffsetCommitRequestTopic(name, partitions)]
    return TxnOffsetCommitRequest("x", "group", *producer, topics=topics)


def codes(reply: Any) -> list[int]:
    return [p.error_code for topic in reply.topics for p in topic.partitions]


@pytest.mark.parametrize("version", range(6))
def test_28_commits_in_the_transaction(service: TransactionService, version: int) -> None:
    producer = init(service)
    if version < 5:
        request = AddOffsetsToTxnRequest("x", *producer, "group")
        assert ask(service, 25, 3, request).error_code == 0
    assert codes(ask(service, 28, version, offsets(producer, 0, 1, 2))) == [0, 0, 3]
    assert [writer for _, writer in service.log.entries] == [producer[0]] * 2
    found = service.machine.state.find("x")
    assert found is not None
    assert found.partitions == {TopicPartition("__consumer_offsets", 0)}


@pytest.mark.parametrize("version", range(5))
def test_28_must_be_added_before(service: TransactionService, version: int) -> None:
    reply = ask(service, 28, version, offsets(init(service), 0))
    assert codes(reply) == [120 if version >= 4 else 48]
    assert service.log.entries == []


def test_28_the_fenced_write_nothing(service: TransactionService) -> None:
    producer = init(service)
    init(service)
    assert codes(ask(service, 28, 5, offsets(producer, 0))) == [47]
    assert service.log.entries == []


@pytest.mark.parametrize("version", range(6))
def test_28_a_group_has_a_name(service: TransactionService, version: int) -> None:
    request = offsets(init(service), 0, 2)
    request.group_id = ""
    assert codes(ask(service, 28, version, request)) == [ErrorCode.INVALID_GROUP_ID, 3]
    assert state(service) is TxnState.EMPTY


def test_28_unknown_topics_ask_nobody(service: TransactionService) -> None:
    assert codes(ask(service, 28, 5, offsets((1, 0), 0, name="nowhere"))) == [3]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_28_what_became_of_the_log_is_told_in_words_that_clients_try_again_after(
    service: TransactionService,
    monkeypatch: pytest.MonkeyPatch,
    code: ErrorCode,
    told: ErrorCode,
) -> None:
    def refuse(*asked: object) -> Answer[None]:
        refused: Answer[None] = Answer()
        refused.fail(KafkaError(code))
        return refused

    monkeypatch.setattr(service.transactions, "enter", refuse)
    assert codes(ask(service, 28, 5, offsets(init(service), 0))) == [told]


# --- looking ------------------------------------------------------------------------------------


def test_61_tells_producers(service: TransactionService) -> None:
    producer = init(service)
    partition = service.partition(TopicPartition("t", 0))
    header = partition.header(*producer, 0)
    partition.guards.vouch(producer[0], partition.guards.ask(*producer, 0, 0), 1)
    assert partition.append(header, "v", lambda code: None, 0) is ErrorCode.NONE
    partition.commit(partition.log[-1].position)
    request = DescribeProducersRequest([TopicRequest("t", [0, 1]), TopicRequest("nowhere", [0])])
    reply = ask(service, 61, 0, request)
    first, second, third = [p for topic in reply.topics for p in topic.partitions]
    (shown,) = first.active_producers
    assert (shown.producer_id, shown.producer_epoch, shown.last_sequence) == (100, 0, 0)
    assert (shown.coordinator_epoch, shown.current_txn_start_offset) == (-1, 0)
    assert second.active_producers == []
    assert third.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_65_describes(service: TransactionService) -> None:
    producer = init(service)
    add(service, 3, producer, t=[1, 0])
    reply = ask(service, 65, 0, DescribeTransactionsRequest(["x", "unknown", ""]))
    known, unknown, empty = reply.transaction_states
    assert (known.error_code, known.transaction_state, known.producer_id) == (0, "Ongoing", 100)
    assert (known.transaction_timeout_ms, known.transaction_start_time_ms) == (60_000, service.now)
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [("t", [0, 1])]
    assert (unknown.error_code, unknown.transactional_id) == (105, "unknown")
    assert empty.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(3))
def test_66_lists(service: TransactionService, version: int) -> None:
    add(service, 3, init(service, "x"), t=[0])
    init(service, "y")

    def listed(**asked: Any) -> list[str]:
        request = ListTransactionsRequest(asked.pop("states", []), asked.pop("ids", []), **asked)
        reply = ask(service, 66, version, request)
        assert reply.error_code == 0
        return [each.transactional_id for each in reply.transaction_states]

    assert sorted(listed()) == ["x", "y"]
    assert listed(states=["Ongoing"]) == ["x"]
    assert listed(ids=[101]) == ["y"]
    service.now += 100
    if version >= 1:
        assert listed(states=["Ongoing"], duration_filter=99) == ["x"]
        assert listed(states=["Ongoing"], duration_filter=100) == []
    if version >= 2:
        assert listed(transactional_id_pattern="[xz]") == ["x"]
        assert sorted(listed(transactional_id_pattern="")) == ["x", "y"]


def test_66_names_what_it_does_not_know(service: TransactionService) -> None:
    reply = ask(service, 66, 2, ListTransactionsRequest(["Ongoing", "Asleep"], []))
    assert reply.unknown_state_filters == ["Asleep"]
    bad = ListTransactionsRequest([], [], transactional_id_pattern="(")
    assert ask(service, 66, 2, bad).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
