"""Batches behind a refused one hear what it heard, and no others do."""

import pytest

from dmq.errors import ErrorCode
from dmq.machines.producers.refusals import BEHIND_MAX, REFUSALS_MAX, Refusals

P, EPOCH = 7, 3
FEW = ErrorCode.NOT_ENOUGH_REPLICAS


def refusals(*sequences: int) -> Refusals:
    made = Refusals()
    for sequence in sequences:
        made.refused(P, EPOCH, sequence, FEW)
    return made


def test_a_batch_behind_a_refused_one_hears_the_same() -> None:
    assert refusals(4).code_behind(P, EPOCH, 4) == FEW


@pytest.mark.parametrize("order", [(4, 5, 6), (6, 5, 4), (5, 6, 4, 4)])
def test_any_of_several_may_be_missing(order: tuple[int, ...]) -> None:
    """The first may be in the log: written before a failover, and refused while the log was read."""
    made = refusals(*order)
    assert [made.code_behind(P, EPOCH, missing) for missing in (4, 5, 6)] == [FEW] * 3
    assert made.code_behind(P, EPOCH, 7) is None
    assert made.code_behind(P, EPOCH, 3) is None


def test_sequences_begin_again_after_the_last() -> None:
    made = refusals(2**31 - 1, 0)
    assert made.code_behind(P, EPOCH, 0) == FEW
    assert made.code_behind(P, EPOCH, 1) is None
    assert made.code_behind(P, EPOCH, 2**31 - 2) is None


def test_who_misses_another_batch_has_no_excuse() -> None:
    made = refusals(4)
    assert made.code_behind(P, EPOCH, 3) is None
    assert made.code_behind(P, EPOCH + 1, 4) is None
    assert made.code_behind(P + 1, EPOCH, 4) is None


def test_a_new_epoch_takes_the_place_of_the_old_one() -> None:
    made = refusals(4)
    made.refused(P, EPOCH + 1, 9, FEW)
    assert made.code_behind(P, EPOCH + 1, 9) == FEW
    assert made.code_behind(P, EPOCH, 4) is None


def test_there_is_no_excuse_for_more_than_can_be_in_flight() -> None:
    made = refusals(4)
    assert [made.code_behind(P, EPOCH, 4) for _ in range(BEHIND_MAX + 1)] == [FEW] * BEHIND_MAX + [
        None
    ]
    made.refused(P, EPOCH, 4, FEW)
    assert made.code_behind(P, EPOCH, 4) == FEW, "the first came again, and was refused again"


def test_any_refusal_is_news() -> None:
    """One of long ago may be in the log by now, written by another leader; its successors are not."""
    made = refusals(4)
    for _ in range(BEHIND_MAX):
        made.code_behind(P, EPOCH, 4)
    made.refused(P, EPOCH, 9, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert made.code_behind(P, EPOCH, 9) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_is_not_known_does_not_begin_behind_what_was_refused() -> None:
    made = refusals(4)
    assert made.code_before(P, EPOCH, 5) == FEW
    assert made.code_before(P, EPOCH, 4) is None, "it came again"
    assert made.code_before(P, EPOCH, 3) is None
    assert made.code_before(P, EPOCH + 1, 5) is None
    assert made.code_before(P + 1, EPOCH, 5) is None


def test_it_is_over_when_the_refused_one_is_in_the_log() -> None:
    made = refusals(4)
    made.appended(P)
    assert made.code_behind(P, EPOCH, 4) is None
    assert not made


def test_the_oldest_goes_at_the_limit() -> None:
    made = Refusals()
    for producer in range(REFUSALS_MAX + 1):
        made.refused(producer, 0, 1, FEW)
    assert made.code_behind(0, 0, 1) is None
    assert made.code_behind(1, 0, 1) == FEW
