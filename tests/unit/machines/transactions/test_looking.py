"""What people see of transactions; what is forgotten; what the records are."""

import pytest
from unit.machines.transactions.coordinator_of import TV2, Coordinator, at

from dmq.broker.transaction_records import TransactionRecords
from dmq.errors import ErrorCode, KafkaError, ProtocolError
from dmq.machines.machine import Record
from dmq.machines.transactions.commands import DescribeTransaction, ForgetIdle, ListTransactions
from dmq.machines.transactions.facts import Transaction, TransactionFact, TxnState
from dmq.machines.transactions.looking import unknown_states
from dmq.types import TopicPartition
from dmq.wire.stored import TRANSACTION_STATE

DAY = 24 * 3_600_000


def refused_with(code: ErrorCode) -> "pytest.RaisesContext":  # type: ignore[type-arg,name-defined]
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def busy() -> Coordinator:
    """One at each station."""
    coordinator = Coordinator()
    for name in ("empty", "open", "deciding", "done"):
        mine = coordinator.init(name)
        if name != "empty":
            coordinator.add(mine, 1, 0, name=name, version=TV2)
        if name in ("deciding", "done"):
            ended = coordinator.end(mine, name=name, version=TV2)
        if name == "done":
            coordinator.written(ended.ending)
    return coordinator


def names(coordinator: Coordinator, **asked: object) -> list[str]:
    found = coordinator.ask(ListTransactions(**asked))  # type: ignore[arg-type]
    return sorted(view.transactional_id for view in found)


def test_one_is_described() -> None:
    coordinator = busy()
    view = coordinator.ask(DescribeTransaction("open"))
    assert view == (
        "open", "Ongoing", 60_000, coordinator.now, 101, 0,
        (TopicPartition("t", 0), TopicPartition("t", 1)),
    )  # fmt: skip
    with refused_with(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        coordinator.ask(DescribeTransaction("unknown"))
    with refused_with(ErrorCode.INVALID_REQUEST):
        coordinator.ask(DescribeTransaction(""))


def test_all_are_listed_with_filters() -> None:
    coordinator = busy()
    assert names(coordinator) == ["deciding", "done", "empty", "open"]
    assert names(coordinator, states=frozenset({"Ongoing", "PrepareCommit"})) == [
        "deciding",
        "open",
    ]
    assert names(coordinator, states=frozenset({"NoState"})) == []
    assert names(coordinator, producer_ids=frozenset({100, 101})) == ["empty", "open"]
    assert names(coordinator, matches=lambda name: name.startswith("d")) == ["deciding", "done"]
    coordinator.now += 10
    assert names(coordinator, states=frozenset({"Ongoing"}), longer_than_ms=9) == ["open"]
    assert names(coordinator, states=frozenset({"Ongoing"}), longer_than_ms=10) == []


def test_names_of_states_are_kafkas() -> None:
    known = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit"]
    known += ["CompleteAbort", "Dead", "PrepareEpochFence"]
    assert [state.label for state in TxnState] == known
    assert unknown_states([*known, "ongoing", "Foo"]) == ["ongoing", "Foo"]


# --- what is forgotten --------------------------------------------------------------------------


def test_idle_names_are_forgotten_and_busy_ones_are_not() -> None:
    coordinator = busy()
    coordinator.now += 7 * DAY - 1
    assert coordinator.ask(ForgetIdle()) == 0
    coordinator.now += 1
    assert coordinator.ask(ForgetIdle()) == 2
    assert names(coordinator) == ["deciding", "open"]
    assert names(coordinator.successor(compacted=True)) == ["deciding", "open"]


def test_at_the_limit_the_longest_unused_makes_room() -> None:
    coordinator = Coordinator(ids_max=2)
    first = coordinator.init("a")
    coordinator.init("b")
    coordinator.add(first, 0, name="a")
    coordinator.init("c")
    assert names(coordinator) == ["a", "c"]


def test_at_the_limit_with_all_busy_a_newcomer_comes_again() -> None:
    coordinator = Coordinator(ids_max=1)
    first = coordinator.init("a")
    coordinator.add(first, 0, name="a")
    with refused_with(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        coordinator.init("b")
    ended = coordinator.end(first, name="a")
    coordinator.written(ended.ending)
    coordinator.init("b")


# --- records ------------------------------------------------------------------------------------


def test_a_log_compacted_in_any_way_says_the_same() -> None:
    coordinator = busy()
    plain, compacted = coordinator.successor(), coordinator.successor(compacted=True)
    assert dict(plain.machine.state.all()) == dict(compacted.machine.state.all())
    assert dict(plain.machine.state.all()) == dict(coordinator.machine.state.all())


def test_records_are_kafkas() -> None:
    records = TransactionRecords()
    transaction = Transaction(
        producer_id=5,
        producer_epoch=6,
        timeout_ms=7,
        state=TxnState.PREPARE_COMMIT,
        partitions=at(1, 0) | at(3, topic="s"),
        start_ms=8,
        last_update_ms=9,
        previous_producer_id=5,
        next_producer_id=11,
        client_version=2,
    )
    fact = TransactionFact("me", transaction)
    record = records.encode(fact)
    assert records.decode(record) == fact
    key, value = TRANSACTION_STATE.decode(record.key, record.value)
    assert record.value is not None
    assert record.value[:2] == b"\x00\x01"
    assert (key.transactional_id, value.transaction_status) == ("me", 2)
    assert [(p.topic, p.partition_ids) for p in value.transaction_partitions] == [
        ("s", [3]),
        ("t", [0, 1]),
    ]


def test_an_empty_one_has_no_list_of_partitions() -> None:
    record = TransactionRecords().encode(TransactionFact("me", Transaction(1, 0, 1)))
    _, value = TRANSACTION_STATE.decode(record.key, record.value)
    assert value.transaction_partitions is None


def test_values_of_version_0_are_read() -> None:
    records = TransactionRecords()
    transaction = Transaction(5, 6, 7, TxnState.ONGOING, at(0), 8, 9)
    record = records.encode(TransactionFact("me", transaction))
    _, value = TRANSACTION_STATE.decode(record.key, record.value)
    old = Record(record.key, TRANSACTION_STATE.encode_value(value, 0))
    assert records.decode(old) == TransactionFact("me", transaction)


def test_a_state_that_we_do_not_know_is_not_guessed() -> None:
    records = TransactionRecords()
    record = records.encode(TransactionFact("me", Transaction(1, 0, 1)))
    _, value = TRANSACTION_STATE.decode(record.key, record.value)
    value.transaction_status = 99
    with pytest.raises(ProtocolError):
        records.decode(Record(record.key, TRANSACTION_STATE.encode_value(value)))
