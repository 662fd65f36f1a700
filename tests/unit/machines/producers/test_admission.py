"""A batch of a transaction from its arrival to the log."""

import pytest
from unit.machines.producers.partition_log import header_of

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.producers.admission import Admission, Leave
from dmq.machines.producers.entries import Marker
from dmq.machines.producers.guards import VerificationGuards
from dmq.machines.producers.state import Duplicate, ProducerState
from dmq.records import CONTROL, TRANSACTIONAL, BatchHeader
from dmq.types import Position

P = 7


def refused_with(code: ErrorCode) -> "pytest.RaisesContext":  # type: ignore[type-arg,name-defined]
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


class Leader:
    def __init__(self) -> None:
        self.admission = Admission(ProducerState(), VerificationGuards())
        self.end = 0

    def header(self, sequence: int, epoch: int = 0, attributes: int = TRANSACTIONAL) -> BatchHeader:
        return header_of(P, sequence, epoch=epoch, offset=self.end, attributes=attributes)

    def check(self, sequence: int, epoch: int = 0) -> Duplicate | Leave | None:
        return self.admission.check(self.header(sequence, epoch), 0)

    def append(self, header: BatchHeader, marker: Marker | None = None) -> None:
        self.end += 1
        self.admission.appended(header, Position(1, 0, self.end), marker)

    def end_txn(self, epoch: int) -> None:
        self.append(self.header(-1, epoch, TRANSACTIONAL | CONTROL), Marker(True, 1))


def left(verdict: object) -> Leave:
    assert isinstance(verdict, Leave)
    return verdict


def test_the_first_batch_asks_and_the_next_ones_do_not() -> None:
    leader = Leader()
    leave = left(leader.check(0))
    assert leave[:2] == (P, 0)
    assert leader.admission.vouch(leave, 2)
    assert leader.check(0) is None
    leader.append(leader.header(0))
    assert leader.check(1) is None
    assert isinstance(leader.check(0), Duplicate)
    assert len(leader.admission.guards) == 0, "the log vouches from now on"


def test_batches_without_a_transaction_ask_nobody() -> None:
    leader = Leader()
    for producer_id in (-1, P):
        assert leader.admission.check(header_of(producer_id, 0), 0) is None
    assert len(leader.admission.guards) == 0


def test_a_marker_in_between_takes_the_leave_back() -> None:
    leader = Leader()
    leave = left(leader.check(0))
    leader.end_txn(epoch=0)
    assert not leader.admission.vouch(leave, 1)
    assert left(leader.check(0)).token != leave.token


def test_a_marker_after_the_answer_takes_it_back_too() -> None:
    leader = Leader()
    assert leader.admission.vouch(left(leader.check(0)), 1)
    leader.end_txn(epoch=0)
    left(leader.check(0))


def test_a_duplicate_and_an_old_epoch_need_no_question() -> None:
    leader = Leader()
    leader.admission.vouch(left(leader.check(0)), 1)
    leader.append(leader.header(0))
    leader.end_txn(epoch=0)
    assert isinstance(leader.check(0), Duplicate)
    left(leader.check(0, epoch=1))
    leader.end_txn(epoch=2)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        leader.check(1, epoch=1)


def test_a_later_batch_waits_for_the_first() -> None:
    leader = Leader()
    leave = left(leader.check(0))
    assert left(leader.check(1)) == leave
    leader.admission.vouch(leave, 1)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        leader.check(1)
    assert leader.check(0) is None


def test_coordinators_ask_as_well() -> None:
    leader = Leader()
    own = leader.header(-1)
    leave = left(leader.admission.check_own(own, 0))
    assert leader.admission.vouch(leave, 2)
    assert leader.admission.check_own(own, 0) is None
    leader.append(own)
    assert leader.admission.check_own(leader.header(-1), 0) is None
    leader.end_txn(epoch=1)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        leader.admission.check_own(leader.header(-1, epoch=0), 0)
    left(leader.admission.check_own(leader.header(-1, epoch=1), 0))
