"""Open transactions, markers, the last stable offset and the abort index."""

import pytest
from unit.machines.producers.partition_log import Partition

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.producers.aborted import AbortedTxn, AbortIndex
from dmq.types import Position

P, Q = 7, 8
TV1, TV2 = 1, 2


def refused_with(code: ErrorCode) -> "pytest.RaisesContext":  # type: ignore[type-arg,name-defined]
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def begun(partition: Partition, producer_id: int = P, sequence: int = 0, **more: int) -> int:
    offset = partition.produce(producer_id, sequence, in_txn=True, verified=TV1, **more)
    assert isinstance(offset, int)
    return offset


# --- who may write ------------------------------------------------------------------------------


def test_the_first_batch_of_a_transaction_needs_the_coordinators_word() -> None:
    partition = Partition()
    with refused_with(ErrorCode.INVALID_TXN_STATE):
        partition.produce(P, 0, in_txn=True)
    begun(partition)
    assert partition.produce(P, 1, in_txn=True) == 1, "the log vouches for the second"


def test_after_the_marker_the_next_transaction_asks_again() -> None:
    partition = Partition()
    begun(partition)
    partition.end_txn(P)
    with refused_with(ErrorCode.INVALID_TXN_STATE):
        partition.produce(P, 1, in_txn=True)


def test_an_open_transaction_of_another_epoch_vouches_for_nothing() -> None:
    partition = Partition()
    begun(partition)
    with refused_with(ErrorCode.INVALID_TXN_STATE):
        partition.produce(P, 0, epoch=1, in_txn=True)


def test_plain_records_do_not_go_into_an_open_transaction() -> None:
    partition = Partition()
    begun(partition)
    with refused_with(ErrorCode.INVALID_TXN_STATE):
        partition.produce(P, 1)


def test_with_an_epoch_per_transaction_an_unknown_producer_begins_with_0() -> None:
    partition = Partition()
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(P, 4, in_txn=True, verified=TV2)
    assert partition.produce(P, 4, in_txn=True, verified=TV1) == 0


def test_after_a_marker_of_the_next_epoch_sequences_begin_anew() -> None:
    partition = Partition()
    begun(partition)
    partition.end_txn(P, epoch=1, version=TV2)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.produce(P, 1, epoch=0, in_txn=True)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(P, 1, epoch=1, in_txn=True, verified=TV2)
    assert partition.produce(P, 0, epoch=1, in_txn=True, verified=TV2) == 2


def test_after_a_marker_of_the_same_epoch_sequences_go_on() -> None:
    partition = Partition()
    begun(partition)
    partition.end_txn(P)
    assert begun(partition, sequence=1) == 2


# --- markers ------------------------------------------------------------------------------------


def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    partition = Partition()
    begun(partition)
    partition.end_txn(P, epoch=1, version=TV2)
    partition.produce(P, 0, epoch=1, in_txn=True, verified=TV2)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.end_txn(P, epoch=1, version=TV2)
    assert partition.state.has_open(P, 1)


def test_a_marker_may_be_written_twice() -> None:
    partition = Partition()
    begun(partition)
    partition.end_txn(P, epoch=1, version=TV2)
    partition.end_txn(P, epoch=1, version=TV2)
    partition.commit_all()
    assert partition.last_stable_offset == 3


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    partition = Partition()
    begun(partition, epoch=2)
    for version in (TV1, TV2):
        with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
            partition.end_txn(P, epoch=1, version=version)


def test_without_an_epoch_per_transaction_the_marker_has_that_of_the_records() -> None:
    partition = Partition()
    begun(partition)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.end_txn(P, epoch=0, version=TV2)
    partition.end_txn(P, epoch=0, version=TV1)


def test_a_replaced_coordinator_is_fenced() -> None:
    partition = Partition()
    begun(partition)
    partition.end_txn(P, coordinator_epoch=5)
    with refused_with(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        partition.end_txn(P, coordinator_epoch=4)
    partition.end_txn(P, coordinator_epoch=5)


def test_a_marker_for_someone_unknown_is_written() -> None:
    partition = Partition()
    partition.end_txn(P, epoch=3)
    partition.commit_all()
    assert partition.last_stable_offset == 1
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.produce(P, 0, epoch=2)


# --- the last stable offset ---------------------------------------------------------------------


def test_it_is_the_high_watermark_without_transactions() -> None:
    partition = Partition()
    partition.produce(P, 0, count=3)
    assert partition.last_stable_offset == 0
    partition.commit_all()
    assert partition.last_stable_offset == 3


def test_it_stays_at_the_oldest_open_transaction() -> None:
    partition = Partition()
    partition.produce(-1, -1, count=5)
    begun(partition, P)
    begun(partition, Q)
    partition.commit_all()
    assert partition.last_stable_offset == 5
    partition.end_txn(P)
    partition.commit_all()
    assert partition.last_stable_offset == 6
    partition.end_txn(Q)
    partition.commit_all()
    assert partition.last_stable_offset == 9


def test_it_waits_for_the_commit_of_the_marker() -> None:
    partition = Partition()
    begun(partition)
    partition.commit_all()
    partition.end_txn(P)
    assert partition.last_stable_offset == 0, "the marker may still be cut"
    partition.cut(partition.commit)
    partition.commit_all()
    assert partition.last_stable_offset == 0
    assert partition.state.has_open(P, 0), "it is open again"


def test_a_transaction_above_the_high_watermark_does_not_move_it() -> None:
    partition = Partition()
    partition.produce(-1, -1, count=4)
    partition.commit_all()
    begun(partition)
    assert partition.last_stable_offset == 4


def test_it_never_lies_below_the_logs_start() -> None:
    partition = Partition()
    begun(partition)
    partition.produce(-1, -1, count=9)
    partition.commit_all()
    partition.state.trim(6)
    assert partition.last_stable_offset == 6


def test_the_transaction_that_holds_it_can_be_named() -> None:
    partition = Partition()
    assert partition.state.oldest_open() is None
    begun(partition, P)
    begun(partition, Q)
    partition.commit_all()
    assert partition.state.oldest_open() == (0, P)


# --- aborted transactions -----------------------------------------------------------------------


def test_an_abort_is_indexed_when_its_marker_is_committed() -> None:
    partition = Partition()
    begun(partition)
    partition.commit_all()
    partition.end_txn(P, is_commit=False)
    assert partition.state.aborted(0, 10) == []
    partition.commit_all()
    assert partition.state.aborted(0, 10) == [AbortedTxn(P, 0, 1, 2)]


def test_commits_and_empty_transactions_are_not_indexed() -> None:
    partition = Partition()
    begun(partition)
    partition.end_txn(P, is_commit=True)
    partition.end_txn(P, is_commit=False)
    partition.commit_all()
    assert partition.state.aborted(0, 10) == []


def test_only_those_that_overlap_are_told() -> None:
    partition = Partition()
    for n in range(10):  # One takes the offsets 2n and 2n + 1.
        begun(partition, sequence=n)
        partition.end_txn(P, is_commit=False)
    partition.commit_all()
    assert [a.first_offset for a in partition.state.aborted(5, 8)] == [4, 6]
    assert [a.first_offset for a in partition.state.aborted(6, 7)] == [6]
    assert partition.state.aborted(20, 30) == []


def test_a_long_transaction_is_found_behind_shorter_ones() -> None:
    partition = Partition()
    begun(partition, Q)
    for n in range(5):
        begun(partition, P, sequence=n)
        partition.end_txn(P, is_commit=False)
    partition.end_txn(Q, is_commit=False)
    partition.commit_all()
    assert [a.producer_id for a in partition.state.aborted(0, 1)] == [Q]
    assert [a.producer_id for a in partition.state.aborted(0, 3)] == [P, Q]


def test_the_index_forgets_what_the_log_forgot() -> None:
    index = AbortIndex()
    index.add(AbortedTxn(P, 0, 5, 6))
    index.add(AbortedTxn(Q, 2, 9, 10))
    index.trim(6)
    assert index.overlapping(0, 100) == [AbortedTxn(Q, 2, 9, 10)]
    index.trim(10)
    assert len(index) == 0


def test_a_cut_marker_leaves_no_abort() -> None:
    partition = Partition()
    begun(partition)
    partition.commit_all()
    partition.end_txn(P, is_commit=False)
    partition.cut(partition.commit)
    partition.end_txn(P, is_commit=True)
    partition.commit_all()
    assert partition.state.aborted(0, 10) == []
    assert partition.last_stable_offset == 2
    assert partition.commit == Position(2, 0, 2)
