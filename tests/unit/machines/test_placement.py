"""Where replicas go."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmq.machines.placement import Placer
from dmq.machines.state import BrokerLoad


def placer(racks: dict[int, str | None], **loads: BrokerLoad) -> Placer:
    return Placer(racks, {int(node[1:]): load for node, load in loads.items()}, {})


def spread(counts: Counter[int], nodes: list[int]) -> int:
    values = [counts[node] for node in nodes]
    return max(values) - min(values)


@given(st.integers(1, 7), st.integers(1, 5), st.integers(1, 40))
def test_a_topic_is_spread_evenly(brokers: int, replicas: int, partitions: int) -> None:
    replicas = min(replicas, brokers)
    nodes = list(range(1, brokers + 1))
    place = placer(dict.fromkeys(nodes))
    placed = [place.place(replicas) for _ in range(partitions)]
    for one in placed:
        assert len(set(one)) == replicas
    assert spread(Counter(one[0] for one in placed), nodes) <= 1
    # Leaders are balanced first; what remains may be off by a little more.
    assert spread(Counter(node for one in placed for node in one), nodes) <= 2


def test_successors_are_spread_too() -> None:
    place = placer(dict.fromkeys([1, 2, 3]))
    placed = [place.place(3) for _ in range(60)]
    pairs = Counter(one[:2] for one in placed)
    assert set(pairs.values()) == {10}


def test_replicas_stand_in_different_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    place = placer(racks)
    for _ in range(60):
        assert len({racks[node] for node in place.place(3)}) == 3
    for _ in range(60):
        assert Counter(racks[node] for node in place.place(4)).most_common()[0][1] == 2


def test_the_second_replica_is_in_another_rack_than_the_first() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b"}
    place = placer(racks)
    for _ in range(30):
        one = place.place(3)
        if "b" in (racks[one[0]], racks[one[1]]):
            continue
        pytest.fail(f"first and second in rack a: {one}")


def test_single_partitions_go_where_the_fewest_are() -> None:
    place = placer(dict.fromkeys([1, 2, 3]), n1=BrokerLoad(9, 9), n2=BrokerLoad(9, 9))
    assert place.place(1) == (3,)


def test_an_empty_broker_gets_its_share_of_a_topic_and_not_all_of_it() -> None:
    place = placer(dict.fromkeys([1, 2, 3]), n1=BrokerLoad(90, 90), n2=BrokerLoad(90, 90))
    place.begin_topic(())
    placed = Counter(place.place(1)[0] for _ in range(12))
    assert placed == {1: 4, 2: 4, 3: 4}


def test_a_growing_topic_goes_on_where_it_stopped() -> None:
    place = placer(dict.fromkeys([1, 2, 3]))
    place.begin_topic([(1,), (1,), (2,)])
    assert sorted(place.place(1)[0] for _ in range(3)) == [2, 3, 3]


def test_who_is_down_only_fills_up_and_never_comes_first() -> None:
    racks: dict[int, str | None] = dict.fromkeys([1, 2, 3, 4, 5])
    place = Placer(racks, {}, {}, live=[1, 2])
    assert (place.size, place.live) == (5, 2)
    assert {frozenset(place.place(2)) for _ in range(10)} == {frozenset((1, 2))}
    placed = [place.place(3) for _ in range(60)]
    assert {frozenset(one) & {1, 2} for one in placed} == {frozenset((1, 2))}
    assert Counter(one[0] for one in placed) == {1: 30, 2: 30}
    assert Counter(node for one in placed for node in one if node > 2) == {3: 20, 4: 20, 5: 20}


def test_successors_are_spread_over_those_that_come_back_too() -> None:
    place = Placer(dict.fromkeys([1, 2, 3]), {}, {}, live=[1, 2])
    pairs = Counter(place.place(3)[:2] for _ in range(40))
    assert pairs == {(1, 2): 10, (1, 3): 10, (2, 1): 10, (2, 3): 10}


def test_who_is_down_fills_up_from_other_racks_first() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "a", 4: "b", 5: "c"}
    place = Placer(racks, {}, {}, live=[1, 2])
    assert {place.place(3)[0] for _ in range(10)} == {1, 2}
    assert {frozenset(place.place(3)) for _ in range(10)} == {frozenset((1, 2, 5))}
