"""What replicas say before an order, and when none is given."""

import dataclasses
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmq.broker.survivors import ELECTION_MS, Account, choose, decode, encode, epoch_seen
from dmq.errors import ErrorCode, KafkaError, ProtocolError
from dmq.machines.records import Order
from dmq.machines.state import PartitionState
from dmq.types import Position, Voter

VOTERS = tuple(Voter(node, UUID(int=node)) for node in (1, 2, 3))
PLACED = PartitionState((1, 2, 3), VOTERS)
END = Position(4, 0, 100)
LESS = Position(4, 0, 90)


def said(node: int, end: Position = END, **more: object) -> Account:
    return Account(VOTERS[node - 1], 4, end, VOTERS)._replace(**more)


def refusal(*accounts: Account) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        choose(list(accounts), PLACED)
    return raised.value


numbers = st.integers(0, 2**31 - 1)
voters = st.builds(Voter, numbers, st.uuids())
gaps = st.tuples(st.integers(0, 2**40), st.integers(0, 2**40))


@given(
    st.builds(
        Account,
        voters,
        numbers,
        st.builds(Position, st.integers(-1, 99), numbers, st.integers(0, 2**60)),
        st.lists(voters, max_size=9).map(tuple),
        st.integers(-1, 99),
        st.integers(0, 2**32 - 1),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.lists(gaps, max_size=3).map(tuple),
    )
)
def test_an_account_arrives_as_it_was_given(one: Account) -> None:
    assert decode(encode(one)) == one


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    try:
        decode(data)
    except ProtocolError:
        return


def test_whoever_has_most_goes_on() -> None:
    lost = Voter(2, UUID(int=22)), Voter(3, UUID(int=33))
    accounts = [said(1, LESS), Account(lost[0], 4, END, ()), Account(lost[1], 7, LESS, ())]
    assert choose(accounts, PLACED) is accounts[1]
    assert epoch_seen(accounts, PLACED) == 7
    ordered = dataclasses.replace(PLACED, order=Order(VOTERS[0], 1000))
    assert epoch_seen(accounts, ordered) == 1000


def test_of_two_that_have_the_same_the_undamaged_one_goes_on() -> None:
    """The third is not there, and the first two vote with others that are not there either."""
    far = (*VOTERS, Voter(4, UUID(int=4)), Voter(5, UUID(int=5)))
    good = said(1, voters=far)
    bad = said(2, voters=far, is_damaged=True, is_able=False)
    assert choose([good, bad], PLACED) is good
    assert choose([bad, good], PLACED) is good
    more = bad._replace(end=Position(4, 0, 101))
    assert choose([good, more], PLACED) is more


def test_nobody_is_ordered_where_anybody_follows_a_leader() -> None:
    error = refusal(said(1), said(3, leader=2))
    assert error.code is ErrorCode.ELECTION_NOT_NEEDED
    assert "Broker 2 leads it, as broker 3 says" in str(error)


def test_nobody_is_ordered_where_a_majority_can_elect() -> None:
    assert "wait" in str(refusal(said(1), said(2, LESS)))
    assert "wait" in str(refusal(said(1, is_recovering=True), said(2), said(3)))
    everybody = [said(node, is_recovering=True) for node in (1, 2, 3)]
    assert "wait" in str(refusal(*everybody)), "all together they may"


def test_an_order_is_given_where_a_majority_can_not_elect() -> None:
    """The one that could is behind another that can't stand; or it has had its time."""
    best = said(2, is_damaged=True, is_able=False)
    assert choose([said(1, LESS), best], PLACED) is best
    tired = said(1, leaderless_ms=ELECTION_MS), said(2, LESS, leaderless_ms=ELECTION_MS)
    assert choose([*tired], PLACED) is tired[0]
    unwell = said(1), said(2, is_recovering=True)
    assert choose([*unwell], PLACED) is unwell[1], "of equals the last"


def test_one_without_a_log_begins_only_where_all_can_be_asked() -> None:
    empty = [Account(voter, 0, Position(-1, 0, 0), ()) for voter in VOTERS]
    assert choose(empty, PLACED) is empty[2]
    assert "No replica that has a log" in str(refusal(*empty[:2]))
    assert "No replica that has a log" in str(refusal())
