"""Adding partitions, ending transactions, finishing them; version 1 and version 2."""

import pytest
from unit.machines.transactions.coordinator_of import MINUTE, TV1, TV2, Coordinator, at

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.transactions.commands import (
    AbortTimedOut,
    EndTransaction,
    MarkersWritten,
    ResumeEndings,
    TxnMarker,
    VerifyPartitions,
)
from dmq.machines.transactions.facts import TxnState

BOTH = pytest.mark.parametrize("version", [TV1, TV2])


def refused_with(code: ErrorCode) -> "pytest.RaisesContext":  # type: ignore[type-arg,name-defined]
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


# --- adding -------------------------------------------------------------------------------------


@BOTH
def test_the_first_partition_begins_a_transaction(version: int) -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.add(mine, 0, version=version)
    coordinator.now += 5
    coordinator.add(mine, 1, version=version)
    found = coordinator.find()
    assert found.state is TxnState.ONGOING
    assert found.partitions == at(0, 1)
    assert found.start_ms == coordinator.now - 5, "the second one does not begin it anew"


def test_what_is_in_it_needs_no_record() -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.add(mine, 0, 1)
    written = len(coordinator.records)
    coordinator.add(mine, 1)
    coordinator.add(mine)
    assert len(coordinator.records) == written


def test_only_who_has_the_name_may_add() -> None:
    coordinator = Coordinator()
    producer_id, epoch = coordinator.init()
    with refused_with(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        coordinator.add((producer_id, epoch), 0, name="unknown")
    with refused_with(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        coordinator.add((producer_id + 1, epoch), 0)
    for other in (epoch - 1, epoch + 1):
        with refused_with(ErrorCode.PRODUCER_FENCED):
            coordinator.add((producer_id, other), 0)


@BOTH
def test_nothing_is_added_while_the_last_one_is_not_finished(version: int) -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.add(mine, 0, version=version)
    ended = coordinator.end(mine, version=version)
    with refused_with(ErrorCode.CONCURRENT_TRANSACTIONS):
        coordinator.add(ended[:2], 1, version=version)
    coordinator.written(ended.ending)
    coordinator.add(ended[:2], 1, version=version)
    assert coordinator.find().partitions == at(1)


def test_a_leader_may_ask_without_adding() -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.add(mine, 0)
    records = len(coordinator.records)
    verdicts = coordinator.ask(VerifyPartitions("x", *mine, at(0, 1)))
    assert list(verdicts.values()) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert len(coordinator.records) == records
    with refused_with(ErrorCode.PRODUCER_FENCED):
        coordinator.ask(VerifyPartitions("x", mine[0], mine[1] + 1, at(0)))
    coordinator.end(mine)
    with refused_with(ErrorCode.CONCURRENT_TRANSACTIONS):
        coordinator.ask(VerifyPartitions("x", *mine, at(0)))


# --- ending, version 1 --------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_v1_ends_with_markers_of_the_same_epoch(is_commit: bool) -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.add(mine, 2, 0)
    ended = coordinator.end(mine, is_commit=is_commit)
    assert ended[:2] == mine
    assert ended.ending is not None
    assert ended.ending.markers == tuple(
        TxnMarker("t", partition, *mine, is_commit, 1, TV1) for partition in (0, 2)
    )
    assert coordinator.written(ended.ending)
    assert coordinator.find().state.label == ("CompleteCommit" if is_commit else "CompleteAbort")
    assert coordinator.find().partitions == frozenset()


def test_v1_asked_again_gives_the_same_answer_and_the_other_is_refused() -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.add(mine, 0)
    ended = coordinator.end(mine)
    records = len(coordinator.records)
    for _ in range(2):
        assert coordinator.end(mine) == (*mine, None), "markers are on their way once"
        with refused_with(ErrorCode.INVALID_TXN_STATE):
            coordinator.end(mine, is_commit=False)
        assert len(coordinator.records) == records
        coordinator = coordinator.successor(compacted=True)
        coordinator.written(ended.ending)
        records = len(coordinator.records)


def test_v1_needs_an_open_transaction() -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    for is_commit in (True, False):
        with refused_with(ErrorCode.INVALID_TXN_STATE):
            coordinator.end(mine, is_commit=is_commit)


@BOTH
def test_only_who_has_the_name_may_end(version: int) -> None:
    coordinator = Coordinator()
    producer_id, epoch = coordinator.init()
    coordinator.add((producer_id, epoch), 0, version=version)
    with refused_with(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        coordinator.end((producer_id, epoch), name="unknown", version=version)
    with refused_with(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        coordinator.end((producer_id + 1, epoch), version=version)
    for other in (epoch - 1, epoch + 1):
        with refused_with(ErrorCode.PRODUCER_FENCED):
            coordinator.end((producer_id, other), version=version)


# --- ending, version 2 --------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_v2_ends_with_the_next_epoch(is_commit: bool) -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.add(mine, 0, version=TV2)
    ended = coordinator.end(mine, is_commit=is_commit, version=TV2)
    assert ended[:2] == (mine[0], mine[1] + 1)
    assert ended.ending is not None
    (marker,) = ended.ending.markers
    assert marker == TxnMarker("t", 0, mine[0], mine[1] + 1, is_commit, 1, TV2)


@pytest.mark.parametrize("is_commit", [True, False])
def test_v2_asked_again_gives_the_same_answer(is_commit: bool) -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.add(mine, 0, version=TV2)
    ended = coordinator.end(mine, is_commit=is_commit, version=TV2)
    for _ in range(2):
        again = coordinator.end(mine, is_commit=is_commit, version=TV2)
        assert again == (*ended[:2], None)
        with refused_with(ErrorCode.INVALID_TXN_STATE):
            coordinator.end(mine, is_commit=not is_commit, version=TV2)
        coordinator = coordinator.successor(compacted=True)
        coordinator.written(ended.ending)


def test_v2_a_late_end_does_not_meet_the_next_transaction() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    ended = coordinator.committed(first, 0, version=TV2)
    second = ended[:2]
    coordinator.add(second, 1, version=TV2)
    for is_commit in (True, False):
        with refused_with(ErrorCode.PRODUCER_FENCED):
            coordinator.end(first, is_commit=is_commit, version=TV2)
    assert coordinator.find().state is TxnState.ONGOING


@pytest.mark.parametrize("before", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_v2_may_abort_what_never_began(before: str) -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    if before != "Empty":
        coordinator.add(mine, 0, version=TV2)
        ended = coordinator.end(mine, is_commit=before == "CompleteCommit", version=TV2)
        coordinator.written(ended.ending)
        mine = ended[:2]
    assert coordinator.find().state.label == before
    with refused_with(ErrorCode.INVALID_TXN_STATE):
        coordinator.end(mine, version=TV2)
    aborted = coordinator.end(mine, is_commit=False, version=TV2)
    assert aborted == (mine[0], mine[1] + 1, None), "no partitions, no markers"
    assert coordinator.find().state is TxnState.COMPLETE_ABORT
    assert coordinator.end(mine, is_commit=False, version=TV2) == aborted


def test_v2_the_next_end_waits_for_the_last_one() -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.add(mine, 0, version=TV2)
    ended = coordinator.end(mine, version=TV2)
    with refused_with(ErrorCode.CONCURRENT_TRANSACTIONS):
        coordinator.end(ended[:2], is_commit=False, version=TV2)


def test_v2_after_an_init_the_end_before_it_is_fenced() -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.init(producer_id=mine[0], producer_epoch=mine[1])
    with refused_with(ErrorCode.PRODUCER_FENCED):
        coordinator.end(mine, is_commit=False, version=TV2)


# --- finishing ----------------------------------------------------------------------------------


@BOTH
def test_a_new_coordinator_finishes_what_is_decided(version: int) -> None:
    coordinator = Coordinator()
    mine, other = coordinator.init("x"), coordinator.init("y")
    coordinator.add(mine, 0, version=version)
    coordinator.add(other, 1, name="y", version=version)
    ended = coordinator.end(mine, version=version)
    new = coordinator.successor(compacted=True)
    (ending,) = new.ask(ResumeEndings())
    assert ended.ending is not None
    assert ending.markers == tuple(
        marker._replace(coordinator_epoch=2) for marker in ended.ending.markers
    )
    assert new.written(ending)
    assert new.ask(ResumeEndings()) == []


def test_markers_that_were_written_are_told_once() -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.add(mine, 0)
    ended = coordinator.end(mine)
    assert coordinator.written(ended.ending)
    assert not coordinator.written(ended.ending)
    assert not coordinator.ask(MarkersWritten("unknown", 1, 0))
    coordinator.add(mine, 1)
    assert not coordinator.written(ended.ending), "the next transaction is not its business"
    assert coordinator.find().state is TxnState.ONGOING


def test_the_word_of_another_epoch_finishes_nothing() -> None:
    coordinator = Coordinator()
    mine = coordinator.init()
    coordinator.add(mine, 0)
    coordinator.end(mine)
    assert not coordinator.ask(MarkersWritten("x", mine[0], mine[1] + 1))
    assert coordinator.find().state is TxnState.PREPARE_COMMIT


# --- time ---------------------------------------------------------------------------------------


@BOTH
def test_what_is_open_for_too_long_is_aborted(version: int) -> None:
    coordinator = Coordinator()
    mine = coordinator.init(timeout_ms=1_000)
    other = coordinator.init("y", timeout_ms=5_000)
    coordinator.add(mine, 0, version=version)
    coordinator.add(other, 1, name="y", version=version)
    coordinator.now += 1_000
    assert coordinator.ask(AbortTimedOut(0)) == []
    coordinator.now += 1
    (ending,) = coordinator.ask(AbortTimedOut(0))
    assert [(m.partition, m.is_commit, m.producer_epoch) for m in ending.markers] == [(0, False, 1)]
    with refused_with(ErrorCode.PRODUCER_FENCED if version == TV1 else ErrorCode.INVALID_TXN_STATE):
        coordinator.end(mine, version=version)
    with refused_with(ErrorCode.PRODUCER_FENCED):
        coordinator.add(mine, 2, version=version)
    assert coordinator.written(ending)


def test_who_was_too_slow_may_go_on_after_an_abort() -> None:
    coordinator = Coordinator()
    mine = coordinator.init(timeout_ms=1_000)
    coordinator.add(mine, 0, version=TV2)
    coordinator.now += 2_000
    (ending,) = coordinator.ask(AbortTimedOut(0))
    coordinator.written(ending)
    assert coordinator.end(mine, is_commit=False, version=TV2)[:2] == (mine[0], 1)
    assert coordinator.init(producer_id=mine[0], producer_epoch=mine[1]) == (mine[0], 1)


def test_a_new_coordinator_gives_full_time() -> None:
    coordinator = Coordinator()
    mine = coordinator.init(timeout_ms=1_000)
    coordinator.add(mine, 0)
    coordinator.now += 100_000
    new = coordinator.successor()
    since = new.now
    assert new.ask(AbortTimedOut(since)) == []
    new.now += 1_001
    assert len(new.ask(AbortTimedOut(since))) == 1


def test_every_answer_names_a_transactional_id() -> None:
    with refused_with(ErrorCode.INVALID_REQUEST):
        Coordinator().ask(EndTransaction("", 1, 0, True))
    with refused_with(ErrorCode.INVALID_REQUEST):
        Coordinator().add((1, 0), 0, name="")
    with refused_with(ErrorCode.INVALID_REQUEST):
        Coordinator().ask(VerifyPartitions("", 1, 0, at(0)))


def test_a_minute_is_a_usual_timeout() -> None:
    coordinator = Coordinator()
    coordinator.init(timeout_ms=MINUTE)
    assert coordinator.find().timeout_ms == MINUTE
