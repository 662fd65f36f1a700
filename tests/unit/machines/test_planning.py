"""Plans: valid, even, and no longer than they need to be."""

import itertools
import random
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dmq.machines.planning import Partition, Plan, PlanError, Replicas, decommission, rebalance

calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no finding."""

Placed = dict[Partition, Replicas]
Racks = dict[int, str | None]


def placements(nodes: Collection[int], topics: int = 3) -> st.SearchStrategy[Placed]:
    """Any placement of some topics on these brokers, uneven as it may be."""

    def place(seed: int) -> Placed:
        dice = random.Random(seed)
        placed: Placed = {}
        for topic in "abc"[:topics]:
            size = dice.randint(1, min(4, len(nodes)))
            for index in range(dice.randint(0, 10)):
                placed[topic, index] = tuple(dice.sample(sorted(nodes), size))
        return placed

    return st.integers(0, 2**32).map(place)


racks_of_six: st.SearchStrategy[Racks] = st.lists(
    st.sampled_from(["r", "s", "t", None]), min_size=3, max_size=6
).map(lambda racks: dict(enumerate(racks, 1)))


def after(placed: Mapping[Partition, Replicas], plan: Plan) -> Placed:
    return {**placed, **plan}


def load(placed: Mapping[Partition, Replicas], nodes: Iterable[int]) -> dict[int, int]:
    counts = Counter(node for replicas in placed.values() for node in replicas)
    return {node: counts[node] for node in nodes}


def firsts(placed: Mapping[Partition, Replicas], nodes: Iterable[int]) -> dict[int, int]:
    counts = Counter(replicas[0] for replicas in placed.values())
    return {node: counts[node] for node in nodes}


def gap(counts: Mapping[int, int]) -> int:
    return max(counts.values()) - min(counts.values())


def moves(placed: Mapping[Partition, Replicas], plan: Plan) -> int:
    return sum(len(set(new) - set(placed[partition])) for partition, new in plan.items())


def crowding(replicas: Replicas, racks: Mapping[int, str | None]) -> int:
    """The lower the better are racks used."""
    return sum(count**2 for count in Counter(racks[node] for node in replicas).values())


def best_crowding(size: int, racks: Mapping[int, str | None]) -> int:
    return min(crowding(each, racks) for each in itertools.combinations(racks, size))


def check_valid(placed: Placed, plan: Plan, nodes: Collection[int]) -> None:
    for partition, replicas in plan.items():
        assert replicas != placed[partition], "a plan has changes only"
        assert len(set(replicas)) == len(replicas) == len(placed[partition])
        assert set(replicas) <= set(nodes)


@calmly
@given(st.data(), st.integers(1, 6))
def test_rebalanced_without_racks(data: st.DataObject, count: int) -> None:
    nodes = range(1, count + 1)
    few = data.draw(st.sets(st.sampled_from(nodes), min_size=1))
    placed = data.draw(placements(few | {1}))
    plan = rebalance(placed, dict.fromkeys(nodes))
    check_valid(placed, plan, nodes)
    result = after(placed, plan)
    if placed:
        assert gap(load(result, nodes)) <= 1
    # The fewest moves: what anybody has too much; those that have most may keep one more.
    loads = sorted(load(placed, nodes).values(), reverse=True)
    least, more = divmod(sum(loads), len(loads))
    surplus = sum(max(0, n - least - (place < more)) for place, n in enumerate(loads))
    assert moves(placed, plan) == surplus
    assert rebalance(result, dict.fromkeys(nodes)) == {}, "done is done"


def leanest(placed: Placed, nodes: Iterable[int]) -> int:
    """The sum of squares of the most even choice of first replicas, by trying them all."""
    best: set[tuple[int, ...]] = {tuple(0 for _ in nodes)}
    places = {node: place for place, node in enumerate(nodes)}
    for replicas in placed.values():
        best = {
            (*counts[: places[node]], counts[places[node]] + 1, *counts[places[node] + 1 :])
            for counts in best
            for node in replicas
        }
    return min(map(squares, best))


@settings(calmly, max_examples=60)
@given(st.data())
def test_first_replicas_are_as_even_as_they_can_be(data: st.DataObject) -> None:
    nodes = range(1, 5)
    placed = data.draw(placements(nodes, topics=1))
    plan = rebalance(placed, dict.fromkeys(nodes))
    result = after(placed, plan)
    assert squares(firsts(result, nodes).values()) == leanest(result, nodes)


def test_first_replicas_of_full_copies_are_even() -> None:
    placed: Placed = {("t", n): (1, 2, 3) for n in range(10)}
    plan = rebalance(placed, dict.fromkeys([1, 2, 3]))
    assert moves(placed, plan) == 0
    assert gap(firsts(after(placed, plan), [1, 2, 3])) <= 1
    assert len(plan) == 6, "no more partitions change their order than must"


@calmly
@given(st.data(), racks_of_six)
def test_rebalanced_with_racks(data: st.DataObject, racks: Racks) -> None:
    placed = data.draw(placements(racks))
    plan = rebalance(placed, racks)
    check_valid(placed, plan, racks)
    result = after(placed, plan)
    for replicas in result.values():
        assert crowding(replicas, racks) == best_crowding(len(replicas), racks)
    assert moves(placed, plan) <= sum(map(len, placed.values()))
    assert rebalance(result, racks) == {}, "done is done"
    loads = load(result, racks)
    for replicas in result.values():
        for giver, taker in itertools.product(replicas, set(racks) - set(replicas)):
            other = tuple(taker if node == giver else node for node in replicas)
            if loads[giver] - loads[taker] >= 2:
                assert crowding(other, racks) > crowding(replicas, racks), "that would be better"


@calmly
@given(st.data(), st.integers(1, 3))
def test_equal_racks_are_even(data: st.DataObject, size: int) -> None:
    racks: Racks = {node: "rst"[node % 3] for node in range(3 * size)}
    placed = data.draw(placements(racks))
    placed = {partition: replicas[:3] for partition, replicas in placed.items()}
    result = after(placed, rebalance(placed, racks))
    assert gap(load(result, racks)) <= 1


def test_a_lonely_rack_carries_more_because_it_must() -> None:
    racks: Racks = {1: "a", 2: "b", 3: "b", 4: "b"}
    placed: Placed = {("t", n): (1, 2) for n in range(9)}
    result = after(placed, rebalance(placed, racks))
    assert load(result, racks) == {1: 9, 2: 3, 3: 3, 4: 3}


def test_replicas_get_around_a_corner() -> None:
    """Broker 4 can take nothing from broker 1 but by way of the others."""
    racks: Racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    placed: Placed = {
        ("t", 0): (1, 3),
        ("t", 1): (1, 3),
        ("t", 2): (1,),
        ("t", 3): (2,),
    }
    result = after(placed, rebalance(placed, racks))
    assert gap(load(result, racks)) <= 1


def test_a_new_broker_gets_its_share_of_each_topic() -> None:
    placed: Placed = {
        (topic, n): tuple((n + k) % 3 + 1 for k in range(3)) for topic in "abcd" for n in range(12)
    }
    plan = rebalance(placed, dict.fromkeys([1, 2, 3, 4]))
    result = after(placed, plan)
    assert load(result, [1, 2, 3, 4]) == {1: 36, 2: 36, 3: 36, 4: 36}
    assert moves(placed, plan) == 36
    for topic in "abcd":
        of_topic = {p: nodes for p, nodes in result.items() if p[0] == topic}
        assert 6 <= load(of_topic, [4])[4] <= 12


@pytest.mark.parametrize("topics", [1, 5, 30])
def test_most_copies_of_a_partition_stay_where_they_are(topics: int) -> None:
    placed: Placed = {
        (f"t{n % topics}", n // topics): tuple((n + k) % 3 + 1 for k in range(3)) for n in range(30)
    }
    plan = rebalance(placed, dict.fromkeys([1, 2, 3, 4, 5, 6]))
    assert moves(placed, plan) == 45
    moved = Counter(len(set(new) - set(placed[partition])) for partition, new in plan.items())
    assert moved[3] == 0
    neighbours = {pair for new in after(placed, plan).values() for pair in itertools.pairwise(new)}
    assert any(old <= 3 < new for old, new in neighbours), "no cluster of its own"


@calmly
@given(st.data(), racks_of_six)
def test_brokers_that_are_down_keep_what_they_have(data: st.DataObject, racks: Racks) -> None:
    placed = data.draw(placements([*racks, 99]))
    fixed = data.draw(st.sets(st.sampled_from(sorted(racks)), max_size=len(racks) - 1))
    plan = rebalance(placed, racks, fixed)
    check_valid(placed, plan, [*racks, 99])
    result = after(placed, plan)
    for partition, replicas in placed.items():
        for node in (*fixed, 99):
            assert (node in replicas) == (node in result[partition])
            assert replicas[0] == node or result[partition][0] != node


@calmly
@given(st.data(), racks_of_six)
def test_a_broker_leaves(data: st.DataObject, racks: Racks) -> None:
    placed = data.draw(placements(racks))
    leaving = data.draw(st.sampled_from(sorted(racks)))
    others = {node: rack for node, rack in racks.items() if node != leaving}
    touched = [partition for partition, nodes in placed.items() if leaving in nodes]
    if any(len(placed[partition]) > len(others) for partition in touched):
        with pytest.raises(PlanError):
            decommission(placed, racks, leaving)
        return
    plan = decommission(placed, racks, leaving)
    check_valid(placed, plan, others)
    assert sorted(plan) == sorted(touched), "nothing else moves"
    assert moves(placed, plan) == len(touched)
    result = after(placed, plan)
    for partition in touched:
        stay = [node for node in placed[partition] if node != leaving]
        options = [(*stay, node) for node in others if node not in stay]
        assert crowding(result[partition], racks) == min(
            crowding(option, racks) for option in options
        )
    assert decommission(result, racks, leaving) == {}


def squares(counts: Iterable[int]) -> int:
    """The lower, the more even."""
    return sum(count**2 for count in counts)


@settings(calmly, max_examples=60)
@given(st.data())
def test_what_a_leaving_broker_had_is_spread_as_evenly_as_it_can_be(data: st.DataObject) -> None:
    nodes = range(1, 6)
    placed = {p: replicas[:3] for p, replicas in data.draw(placements(nodes, topics=1)).items()}
    others = [node for node in nodes if node != 1]
    stay = {p: tuple(node for node in replicas if node != 1) for p, replicas in placed.items()}
    best = {tuple(load(stay, others).values())}
    for partition, replicas in placed.items():
        if 1 in replicas:
            best = {
                tuple(count + (node == heir) for node, count in zip(others, counts, strict=True))
                for counts in best
                for heir in others
                if heir not in stay[partition]
            }
    result = after(placed, decommission(placed, dict.fromkeys(nodes), 1))
    assert squares(load(result, others).values()) == min(map(squares, best))


def test_the_leavers_successor_is_not_first_if_an_older_copy_is_there() -> None:
    placed: Placed = {("t", 0): (1, 2, 3)}
    assert decommission(placed, dict.fromkeys([1, 2, 3, 4]), 1) == {("t", 0): (2, 3, 4)}


def test_nobody_is_left() -> None:
    with pytest.raises(PlanError, match="t-0"):
        decommission({("t", 0): (1, 2, 3)}, dict.fromkeys([1, 2, 3]), 1)
    with pytest.raises(PlanError, match="t-0"):
        decommission({("t", 0): (1, 2, 3)}, dict.fromkeys([1, 2, 3, 4]), 1, fixed=[4])


def test_nothing_to_do() -> None:
    assert rebalance({}, {}) == {}
    assert rebalance({}, dict.fromkeys([1, 2])) == {}
    assert decommission({("t", 0): (1,)}, dict.fromkeys([1, 2]), 2) == {}


def test_five_thousand_partitions_are_planned_in_seconds() -> None:
    placed: Placed = {
        (f"topic-{n % 100}", n // 100): tuple((n + k) % 3 + 1 for k in range(3))
        for n in range(5_000)
    }
    racks: Racks = {node: "abc"[node % 3] for node in range(1, 7)}
    begin = time.process_time()
    result = after(placed, rebalance(placed, racks))
    assert gap(load(result, racks)) <= 1
    assert gap(firsts(result, racks)) <= 1
    back = after(result, decommission(result, racks, 6))
    assert load(back, [6]) == {6: 0}
    # About 1 s here; CPU time, with room for a slower and busier machine.
    assert time.process_time() - begin < 10.0
