"""Tokens that stand from the question to the coordinator until the append."""

import pytest

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.producers.guards import GUARDS_MAX, VerificationGuards

P = 7


def refused_with(code: ErrorCode) -> "pytest.RaisesContext":  # type: ignore[type-arg,name-defined]
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def test_a_token_stands_until_the_append() -> None:
    guards = VerificationGuards()
    token = guards.ask(P, 0, 0, now=0)
    assert guards.stands(P, token)
    guards.appended(P)
    assert not guards.stands(P, token)


def test_batches_of_one_epoch_share_a_token() -> None:
    guards = VerificationGuards()
    assert guards.ask(P, 0, 0, now=0) == guards.ask(P, 0, 1, now=0)


def test_what_was_vouched_for_counts_until_it_is_revoked() -> None:
    guards = VerificationGuards()
    token = guards.ask(P, 3, 0, now=0)
    assert guards.verified(P, 3) == 0
    assert guards.vouch(P, token, 2)
    assert guards.verified(P, 3) == 2
    assert guards.verified(P, 4) == guards.verified(P, 2) == guards.verified(8, 3) == 0
    guards.revoke(P)
    assert guards.verified(P, 3) == 0
    assert not guards.vouch(P, token, 2), "the answer came too late"
    assert guards.ask(P, 3, 0, now=0) != token
    assert not guards.vouch(P, token, 2)
    assert guards.verified(P, 3) == 0


def test_a_newer_epoch_replaces_it_and_an_older_one_gets_none() -> None:
    guards = VerificationGuards()
    token = guards.ask(P, 0, 0, now=0)
    newer = guards.ask(P, 1, 0, now=0)
    assert not guards.stands(P, token)
    assert guards.stands(P, newer)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        guards.ask(P, 0, 1, now=0)


def test_a_later_batch_does_not_enter_before_an_earlier_one() -> None:
    guards = VerificationGuards()
    guards.ask(P, 0, 3, now=0)
    guards.check_order(P, 3)
    guards.ask(P, 0, 0, now=0)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        guards.check_order(P, 3)
    guards.check_order(P, 0)
    guards.ask(P, 0, 5, now=0)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        guards.check_order(P, 5)


@pytest.mark.parametrize("sequences", [(-1, 0), (0, -1)])
def test_a_batch_without_a_sequence_is_before_none(sequences: tuple[int, ...]) -> None:
    guards = VerificationGuards()
    for sequence in sequences:
        guards.ask(P, 0, sequence, now=0)
    guards.check_order(P, 0)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        guards.check_order(P, 1)


def test_questions_that_nobody_waits_for_go() -> None:
    guards = VerificationGuards()
    old = guards.ask(P, 0, 0, now=0)
    new = guards.ask(8, 0, 0, now=50)
    guards.expire(before=50)
    assert not guards.stands(P, old)
    assert guards.stands(8, new)
    guards.clear()
    assert len(guards) == 0


def test_their_number_is_bounded() -> None:
    guards = VerificationGuards()
    tokens = [guards.ask(producer_id, 0, 0, now=0) for producer_id in range(GUARDS_MAX + 1)]
    assert len(guards) == GUARDS_MAX
    assert not guards.stands(0, tokens[0])
    assert guards.stands(GUARDS_MAX, tokens[-1])
