"""InitProducerId with a transactional id: who has the name, and since which epoch."""

import pytest
from unit.machines.transactions.coordinator_of import MINUTE, TV1, TV2, Coordinator

from dmq.broker.transaction_records import TransactionRecords
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.transactions.commands import InitProducerId, NeedsProducerIdError
from dmq.machines.transactions.facts import (
    EPOCH_LAST,
    EPOCH_MAX,
    Transaction,
    TransactionFact,
    TxnState,
)
from dmq.types import Millis


def refused_with(code: ErrorCode) -> "pytest.RaisesContext":  # type: ignore[type-arg,name-defined]
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


@pytest.fixture
def worn() -> Coordinator:
    """One whose producer has the last epoch that there is."""
    coordinator = Coordinator()
    producer_id, _ = coordinator.init()
    fact = TransactionFact("x", Transaction(producer_id, EPOCH_LAST, MINUTE))
    coordinator.records.append(TransactionRecords().encode(fact))
    return coordinator.successor()


def test_a_new_name_gets_a_new_id_and_epoch_0() -> None:
    coordinator = Coordinator()
    assert coordinator.init("x") == (100, 0)
    assert coordinator.init("y") == (101, 0)


def test_it_says_when_it_needs_an_id() -> None:
    machine = Coordinator().machine
    with pytest.raises(NeedsProducerIdError):
        machine.handle(InitProducerId("x", MINUTE), Millis(0))


def test_the_next_one_takes_the_name_over_with_the_next_epoch() -> None:
    coordinator = Coordinator()
    old = coordinator.init()
    new = coordinator.init()
    assert new == (old[0], old[1] + 1)
    with refused_with(ErrorCode.PRODUCER_FENCED):
        coordinator.add(old, 0)
    with refused_with(ErrorCode.PRODUCER_FENCED):
        coordinator.init(producer_id=old[0], producer_epoch=old[1])
    coordinator.add(new, 0)


def test_who_goes_on_gets_the_next_epoch_and_may_ask_again() -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    had = {"producer_id": mine[0], "producer_epoch": mine[1]}
    bumped = coordinator.init(**had)
    assert bumped == (mine[0], 1)
    assert coordinator.init(**had) == bumped, "its first answer was lost"
    assert coordinator.successor(compacted=True).init(**had) == bumped, "a new coordinator knows"


def test_who_asks_again_after_another_took_over_is_fenced() -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    had = {"producer_id": mine[0], "producer_epoch": mine[1]}
    coordinator.init(**had)
    coordinator.init()
    for one in (coordinator, coordinator.successor()):
        with refused_with(ErrorCode.PRODUCER_FENCED):
            one.init(**had)


def test_another_id_is_fenced() -> None:
    coordinator = Coordinator()
    coordinator.init()
    with refused_with(ErrorCode.PRODUCER_FENCED):
        coordinator.init(producer_id=7, producer_epoch=0)


def test_a_name_that_was_forgotten_begins_anew_whatever_its_producer_had() -> None:
    assert Coordinator().init(producer_id=7, producer_epoch=3) == (100, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * MINUTE + 1])
def test_timeouts_have_bounds(timeout_ms: int) -> None:
    with refused_with(ErrorCode.INVALID_TRANSACTION_TIMEOUT):
        Coordinator().init(timeout_ms=timeout_ms)


def test_a_name_is_not_empty() -> None:
    with refused_with(ErrorCode.INVALID_REQUEST):
        Coordinator().init("")


# --- a transaction in the way -------------------------------------------------------------------


@pytest.mark.parametrize("version", [TV1, TV2])
def test_an_open_transaction_is_aborted_and_its_producer_fenced(version: int) -> None:
    coordinator = Coordinator()
    old = coordinator.init()
    coordinator.add(old, 0, 1, version=version)
    answer = coordinator.ask(InitProducerId("x", MINUTE))
    assert answer.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert answer.ending is not None
    assert [(m.partition, m.is_commit) for m in answer.ending.markers] == [(0, False), (1, False)]
    assert {m.producer_epoch for m in answer.ending.markers} == {1}, "above its records'"
    with refused_with(ErrorCode.CONCURRENT_TRANSACTIONS):
        coordinator.init()
    for is_commit in (False, True):
        with refused_with(ErrorCode.PRODUCER_FENCED):
            coordinator.end(old, is_commit=is_commit, version=version)
    coordinator.written(answer.ending)
    with refused_with(ErrorCode.PRODUCER_FENCED):
        coordinator.end(old, is_commit=False, version=version)
    assert coordinator.init() == (old[0], 2)


def test_a_late_request_of_an_old_epoch_aborts_nothing() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    second = coordinator.init(producer_id=first[0], producer_epoch=first[1])
    coordinator.add(second, 0)
    with refused_with(ErrorCode.PRODUCER_FENCED):
        coordinator.init(producer_id=first[0], producer_epoch=first[1])
    assert coordinator.find().state is TxnState.ONGOING


def test_who_goes_on_with_its_own_transaction_open_gets_there_in_the_end() -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.add(mine, 0)
    had = InitProducerId("x", MINUTE, *mine)
    answer = coordinator.ask(had)
    assert answer.code is ErrorCode.CONCURRENT_TRANSACTIONS
    with refused_with(ErrorCode.CONCURRENT_TRANSACTIONS):
        coordinator.ask(had)
    coordinator.written(answer.ending)
    assert coordinator.ask(had)[1:3] == (mine[0], 1)


# --- epochs end ---------------------------------------------------------------------------------


def test_after_the_last_epoch_comes_a_new_id(worn: Coordinator) -> None:
    coordinator = worn.successor()
    old = coordinator.find().producer_id
    new = coordinator.init()
    assert new == (coordinator.next_producer_id - 1, 0)
    assert new[0] != old
    with refused_with(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        coordinator.add((old, EPOCH_LAST), 0)


def test_who_used_up_its_epochs_may_ask_again(worn: Coordinator) -> None:
    coordinator = worn.successor()
    had = {"producer_id": coordinator.find().producer_id, "producer_epoch": EPOCH_LAST}
    new = coordinator.init(**had)
    assert new[1] == 0
    assert coordinator.init(**had) == new
    assert coordinator.successor(compacted=True).init(**had) == new


def test_the_largest_epoch_only_fences(worn: Coordinator) -> None:
    coordinator = worn.successor()
    mine = coordinator.find().producer_id, EPOCH_LAST
    coordinator.add(mine, 0, version=TV2)
    answer = coordinator.ask(InitProducerId("x", MINUTE))
    assert answer.ending.producer_epoch == EPOCH_MAX
    coordinator.written(answer.ending)
    assert coordinator.init()[1] == 0


def test_the_last_transaction_of_an_id_ends_with_a_new_one(worn: Coordinator) -> None:
    coordinator = worn.successor()
    mine = coordinator.find().producer_id, EPOCH_LAST
    coordinator.add(mine, 0, version=TV2)
    ended = coordinator.end(mine, version=TV2)
    new = ended.producer_id, ended.producer_epoch
    assert new[0] != mine[0]
    assert new[1] == 0
    assert {m[2:4] for m in ended.ending.markers} == {(mine[0], EPOCH_MAX)}
    assert coordinator.end(mine, version=TV2)[:2] == new, "asked again before the markers"
    with refused_with(ErrorCode.CONCURRENT_TRANSACTIONS):
        coordinator.add(new, 0, version=TV2)
    coordinator = coordinator.successor(compacted=True)
    coordinator.written(ended.ending)
    assert coordinator.end(mine, version=TV2)[:2] == new, "and after"
    coordinator.add(new, 0, version=TV2)
