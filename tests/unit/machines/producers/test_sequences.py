"""Epochs, sequences, duplicates, and what a failed append means for the next one."""

import pytest
from unit.machines.producers.partition_log import Partition, header_of

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.producers.state import Duplicate
from dmq.types import Position

P = 7


def refused_with(code: ErrorCode) -> "pytest.RaisesContext":  # type: ignore[type-arg,name-defined]
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def test_batches_without_a_producer_id_leave_no_trace() -> None:
    partition = Partition()
    for _ in range(3):
        assert isinstance(partition.produce(-1, -1), int)
    partition.commit_all()
    assert partition.state.producers() == []


def test_sequences_follow_each_other() -> None:
    partition = Partition()
    assert partition.produce(P, 0, count=3) == 0
    assert partition.produce(P, 3) == 3
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(P, 5)
    assert partition.produce(P, 4) == 4


def test_who_is_not_known_may_begin_with_any_sequence() -> None:
    partition = Partition()
    assert partition.produce(P, 41) == 0
    assert partition.produce(P, 42) == 1


def test_sequences_wrap_after_the_largest() -> None:
    partition = Partition()
    partition.produce(P, 2**31 - 2, count=2)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(P, 1)
    assert partition.produce(P, 0) == 2


def test_a_batch_may_wrap_in_its_middle() -> None:
    partition = Partition()
    assert partition.produce(P, 2**31 - 1, count=3) == 0
    assert partition.produce(P, 2**31 - 1, count=3) == Duplicate(0, 1_000, Position(1, 0, 3))
    assert partition.produce(P, 2) == 3


def test_an_older_epoch_is_refused() -> None:
    partition = Partition()
    partition.produce(P, 0, epoch=2)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.produce(P, 1, epoch=1)


def test_a_newer_epoch_begins_with_sequence_0() -> None:
    partition = Partition()
    partition.produce(P, 0, epoch=2)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(P, 1, epoch=3)
    assert partition.produce(P, 0, epoch=3) == 1


def test_a_client_must_give_a_sequence() -> None:
    with refused_with(ErrorCode.INVALID_RECORD):
        Partition().produce(P, -1)


# --- duplicates ---------------------------------------------------------------------------------


def test_a_duplicate_of_an_uncommitted_batch_waits_like_it() -> None:
    partition = Partition()
    partition.produce(-1, -1, count=10)
    partition.produce(P, 0, count=2, timestamp=77)
    assert partition.produce(P, 0, count=2) == Duplicate(10, 77, Position(1, 0, 12))
    assert partition.end == 12, "nothing was appended"


def test_a_duplicate_of_a_committed_batch_need_not_wait() -> None:
    partition = Partition()
    partition.produce(P, 0, timestamp=77)
    partition.commit_all()
    assert partition.produce(P, 0) == Duplicate(0, 77, None)


def test_the_last_five_batches_are_remembered() -> None:
    partition = Partition()
    for sequence in range(6):
        partition.produce(P, sequence)
        partition.commit_all()
    for sequence in range(1, 6):
        assert partition.produce(P, sequence) == Duplicate(sequence, 1_000, None)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(P, 0)


def test_a_batch_of_other_length_is_no_duplicate() -> None:
    partition = Partition()
    partition.produce(P, 0, count=3)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(P, 0, count=2)


def test_what_an_earlier_epoch_wrote_is_no_duplicate() -> None:
    partition = Partition()
    partition.produce(P, 0)
    assert partition.produce(P, 0, epoch=1) == 1
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.produce(P, 0, epoch=0)


# --- failures -----------------------------------------------------------------------------------


def test_a_failed_append_fences_the_next_one_of_a_new_producer() -> None:
    partition = Partition()
    partition.state.failed(header_of(P, 0))
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(P, 1)
    assert partition.produce(P, 0) == 0
    assert partition.produce(P, 1) == 1


def test_the_lowest_failed_sequence_counts() -> None:
    partition = Partition()
    for sequence in (5, 4, 6):
        partition.state.failed(header_of(P, sequence))
    for sequence in (5, 6, 7):
        with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            partition.produce(P, sequence)
    assert partition.produce(P, 4) == 0


def test_a_new_epoch_is_not_fenced_by_failures_of_the_old_one() -> None:
    partition = Partition()
    partition.state.failed(header_of(P, 3))
    assert partition.produce(P, 0, epoch=1) == 0


def test_a_failed_append_of_a_known_producer_changes_nothing() -> None:
    partition = Partition()
    partition.produce(P, 0)
    partition.state.failed(header_of(P, 1))
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(P, 2)
    assert partition.produce(P, 1) == 1


def test_a_batch_that_the_disk_refused_is_not_overtaken() -> None:
    partition = Partition()
    partition.produce(P, 0)
    partition.produce(P, 1)
    partition.cut(Position(1, 0, 0))
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(P, 1)
    assert partition.produce(P, 0) == 0


# --- cuts ---------------------------------------------------------------------------------------


def test_a_cut_takes_back_sequences() -> None:
    partition = Partition()
    partition.produce(P, 0)
    partition.commit_all()
    partition.produce(P, 1)
    partition.produce(P, 2)
    partition.cut(Position(1, 0, 2))
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(P, 3)
    assert partition.produce(P, 2) == 2
    partition.cut(partition.commit)
    assert partition.produce(P, 1) == 1, "no duplicate: the first one is gone"


def test_a_cut_takes_back_an_epoch_and_gives_the_window_again() -> None:
    partition = Partition()
    partition.produce(P, 0)
    partition.commit_all()
    partition.produce(P, 0, epoch=1)
    partition.cut(partition.commit)
    assert partition.produce(P, 0, epoch=0) == Duplicate(0, 1_000, None)


def test_a_cut_after_a_commit_in_between_goes_back_to_the_committed_state() -> None:
    partition = Partition()
    partition.produce(P, 0)
    partition.produce(P, 1)
    partition.commit_to(partition.log[0].position)
    partition.cut(partition.commit)
    assert partition.state.producers()[0][1].last_sequence == 0
    assert partition.produce(P, 1) == 1
    partition.commit_all()
    assert partition.state.producers()[0][1].last_sequence == 1


def test_coordinators_write_without_sequences_but_not_for_fenced_epochs() -> None:
    partition = Partition()
    partition.produce(P, 0, epoch=2)
    own = header_of(P, -1, epoch=2, offset=partition.end, attributes=0x10)
    partition.state.check_own(own, 1)
    partition.append(own)
    assert partition.state.has_open(P, 2)
    partition.state.check_own(header_of(P, -1, epoch=2, attributes=0x10))
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.state.check_own(header_of(P, -1, epoch=1, attributes=0x10), 1)
    with refused_with(ErrorCode.INVALID_TXN_STATE):
        partition.state.check_own(header_of(P, -1, epoch=3, attributes=0x10))
