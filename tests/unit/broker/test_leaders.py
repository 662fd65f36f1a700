"""The table of leaders: claims travel, the highest epoch wins, and nobody is believed for too long."""

import contextlib
import random
import time
from collections import deque
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dmq.broker.leaders import FRAME_BYTES_MAX, VOTERS_MAX, Key, Leadership, LeaderTable
from dmq.errors import ProtocolError

calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no finding."""

TOPIC, OTHER = UUID(int=10), UUID(int=11)


def tell(sender: LeaderTable, *receivers: LeaderTable, full: bool = False) -> list[Key]:
    """What changed at the last receiver."""
    changed: list[Key] = []
    frames = sender.full() if full else sender.take_delta()
    for receiver in receivers:
        changed = [key for frame in frames for key in receiver.apply(sender.node, frame)]
    return changed


@pytest.fixture
def one() -> LeaderTable:
    return LeaderTable(1, life=5)


@pytest.fixture
def two() -> LeaderTable:
    return LeaderTable(2, life=6)


@pytest.fixture
def three() -> LeaderTable:
    return LeaderTable(3, life=7)


def test_a_claim_travels(one: LeaderTable, two: LeaderTable) -> None:
    tell(one, two, full=True)
    one.leads(TOPIC, 0, 4, (3, 1), (1, 2, 3))
    assert one.get(TOPIC, 0) == Leadership(1, 4, (1, 3), (1, 2, 3)), "in the order of the voters"
    assert tell(one, two) == [(TOPIC, 0)]
    assert two.get(TOPIC, 0) == one.get(TOPIC, 0)
    assert two.led_by(1) == [(TOPIC, 0)]
    assert one.take_delta() == [], "said once"
    one.leads(TOPIC, 0, 4, (1, 3), (1, 2, 3))
    assert one.take_delta() == [], "nothing new"
    one.leads(TOPIC, 0, 4, (1, 2, 3), (1, 2, 3))
    assert tell(one, two) == [(TOPIC, 0)]
    assert two.get(TOPIC, 0) == Leadership(1, 4, (1, 2, 3), (1, 2, 3))
    assert two.wanting == []


def test_the_higher_epoch_wins_in_any_order(
    one: LeaderTable, two: LeaderTable, three: LeaderTable
) -> None:
    one.leads(TOPIC, 0, 4, (1,), (1, 2, 3))
    two.leads(TOPIC, 0, 5, (2,), (1, 2, 3))
    old, new = one.full(), two.full()
    for frame in new:
        assert three.apply(2, frame) == [(TOPIC, 0)]
    for frame in old:
        assert three.apply(1, frame) == []
    assert three.get(TOPIC, 0) == Leadership(2, 5, (2,), (1, 2, 3))
    assert three.led_by(1) == []
    for frame in new:
        one.apply(2, frame)
    assert tell(one, three) == [], "what is not true any more is not claimed"
    one.leads(TOPIC, 0, 4, (1, 2), (1, 2, 3))
    assert one.get(TOPIC, 0) == Leadership(2, 5, (2,), (1, 2, 3)), "never back"


def test_nobody_leads_what_a_dead_broker_led(
    one: LeaderTable, two: LeaderTable, three: LeaderTable
) -> None:
    one.leads(TOPIC, 0, 4, (1, 2), (1, 2, 3))
    two.leads(TOPIC, 1, 9, (2,), (2, 3))
    tell(one, three, full=True)
    tell(two, three, full=True)
    assert three.died(1) == [(TOPIC, 0)]
    assert three.get(TOPIC, 0) == Leadership(-1, 4, (1, 2), (1, 2, 3))
    assert three.get(TOPIC, 1) == Leadership(2, 9, (2,), (2, 3))
    assert not three.has_heard(1)
    one.leads(TOPIC, 0, 3, (1,), (1, 2, 3))
    two.leads(TOPIC, 0, 3, (2,), (1, 2, 3))
    tell(two, three)
    assert three.get(TOPIC, 0) == Leadership(-1, 4, (1, 2), (1, 2, 3)), "an old claim"
    two.leads(TOPIC, 0, 5, (2,), (1, 2, 3))
    tell(two, three)
    assert three.get(TOPIC, 0) == Leadership(2, 5, (2,), (1, 2, 3))


def test_who_was_only_cut_off_leads_on(one: LeaderTable, three: LeaderTable) -> None:
    one.leads(TOPIC, 0, 4, (1, 2), (1, 2, 3))
    tell(one, three, full=True)
    three.died(1)
    assert tell(one, three, full=True) == [(TOPIC, 0)]
    assert three.get(TOPIC, 0) == Leadership(1, 4, (1, 2), (1, 2, 3))


def test_a_restarted_broker_leads_nothing_of_what_it_led(three: LeaderTable) -> None:
    before, after = LeaderTable(1, life=5), LeaderTable(1, life=6)
    before.leads(TOPIC, 0, 4, (1,), (1, 2, 3))
    before.leads(TOPIC, 1, 4, (1,), (1, 2, 3))
    tell(before, three, full=True)
    after.leads(TOPIC, 1, 7, (1,), (1, 2, 3))
    # Nobody noticed that it was gone.
    assert sorted(tell(after, three, full=True)) == [(TOPIC, 0), (TOPIC, 1)]
    assert three.get(TOPIC, 0) == Leadership(-1, 4, (1,), (1, 2, 3))
    assert three.get(TOPIC, 1) == Leadership(1, 7, (1,), (1, 2, 3))
    before.leads(TOPIC, 0, 9, (1,), (1, 2, 3))
    assert tell(before, three) == tell(before, three, full=True) == [], "of a former life"
    assert three.has_heard(1)
    assert three.wanting == []


def test_a_leader_resigns(one: LeaderTable, two: LeaderTable) -> None:
    tell(one, two, full=True)
    one.leads(TOPIC, 0, 4, (1,), (1, 2))
    tell(one, two)
    one.lost(TOPIC, 0)
    one.lost(TOPIC, 1)
    assert tell(one, two) == [(TOPIC, 0)]
    expected = Leadership(-1, 4, (1,), (1, 2))
    assert one.get(TOPIC, 0) == two.get(TOPIC, 0) == expected
    one.lost(TOPIC, 0)
    assert one.take_delta() == []
    # A resignation that comes late takes nothing from the successor.
    one.leads(TOPIC, 0, 5, (1,), (1, 2))
    tell(one, two)
    two.leads(TOPIC, 0, 6, (2,), (1, 2))
    one.lost(TOPIC, 0)
    assert tell(one, two) == []
    assert two.get(TOPIC, 0) == Leadership(2, 6, (2,), (1, 2))


def test_a_deleted_partition_is_forgotten_also_if_a_claim_comes_late(
    one: LeaderTable, two: LeaderTable
) -> None:
    tell(one, two, full=True)
    one.leads(TOPIC, 0, 4, (1,), (1, 2))
    two.forget(TOPIC, 0)
    assert two.take_delta() == [], "it did not lead it"
    tell(one, two)
    assert two.get(TOPIC, 0) is not None
    one.forget(TOPIC, 0)
    assert tell(one, two) == [(TOPIC, 0)]
    assert (len(one), len(two), one.led_by(1), two.led_by(1)) == (0, 0, [], [])


def test_what_came_too_late_is_pruned(one: LeaderTable, two: LeaderTable) -> None:
    one.leads(TOPIC, 0, 4, (1,), (1, 2))
    one.leads(OTHER, 0, 4, (1,), (1, 2))
    tell(one, two, full=True)
    two.died(1)
    two.prune({OTHER: None})
    assert two.get(TOPIC, 0) is None
    assert len(two) == 1
    assert two.take_delta() == []


def test_who_misses_a_succession_learns_that_the_predecessor_is_out(
    one: LeaderTable, two: LeaderTable, three: LeaderTable
) -> None:
    """The successor told the predecessor only, and died."""
    one.leads(TOPIC, 0, 4, (1,), (1, 2, 3))
    tell(one, two, three, full=True)
    one.take_delta()
    two.leads(TOPIC, 0, 5, (2,), (1, 2, 3))
    tell(two, one)
    one.died(2)
    assert tell(one, three) == [(TOPIC, 0)]
    assert three.get(TOPIC, 0) == Leadership(-1, 4, (1,), (1, 2, 3))


def test_what_was_missed_is_noticed(one: LeaderTable, two: LeaderTable) -> None:
    one.leads(TOPIC, 0, 4, (1,), (1, 2))
    tell(one, two)
    assert two.get(TOPIC, 0) is not None, "a claim is good by itself"
    assert (two.wanting, two.has_heard(1)) == ([1], False)
    tell(one, two, full=True)
    assert (two.wanting, two.has_heard(1)) == ([], True)
    one.leads(TOPIC, 1, 4, (1,), (1, 2))
    one.take_delta()
    one.leads(TOPIC, 2, 4, (1,), (1, 2))
    tell(one, two)
    assert two.wanting == [1]
    tell(one, two, full=True)
    assert two.wanting == []
    assert two.get(TOPIC, 1) == one.get(TOPIC, 1)


def test_frames_that_come_twice_or_late_change_nothing(one: LeaderTable, two: LeaderTable) -> None:
    tell(one, two, full=True)
    one.leads(TOPIC, 0, 4, (1, 2), (1, 2))
    (first,) = one.take_delta()
    one.leads(TOPIC, 0, 4, (1,), (1, 2))
    (second,) = one.take_delta()
    for frame in (first, second, first, second):
        two.apply(1, frame)
    assert two.get(TOPIC, 0) == Leadership(1, 4, (1,), (1, 2))
    assert two.wanting == []


def test_a_full_account_whose_beginning_was_missed_ends_nothing(two: LeaderTable) -> None:
    one = LeaderTable(1, life=1)
    for index in range(5_000):
        one.leads(TOPIC, index, 4, (1, 2, 3), (1, 2, 3))
    frames = one.full()
    assert len(frames) > 2
    tell(one, two, full=True)
    assert two.has_heard(1)
    two.died(1)
    for frame in frames[1:]:
        two.apply(1, frame)
    assert (two.wanting, two.has_heard(1)) == ([1], False)
    tell(one, two, full=True)
    assert (two.wanting, len(two.led_by(1))) == ([], 5_000)


def test_five_thousand_partitions_are_cheap_and_frames_stay_small(two: LeaderTable) -> None:
    one = LeaderTable(1, life=1)
    topics = [UUID(int=n) for n in range(100)]
    begin = time.process_time()
    for topic_id in topics:
        for index in range(50):
            one.leads(topic_id, index, 4, (1, 2, 3), (1, 2, 3))
    frames = one.take_delta() + one.full()
    assert max(map(len, frames)) <= FRAME_BYTES_MAX
    assert sum(map(len, frames)) < 2 * 5_000 * 50
    for frame in frames:
        two.apply(1, frame)
    assert len(two.led_by(1)) == 5_000
    two.died(1)
    tell(one, two, full=True)
    assert all(two.get(topic_id, 49) == one.get(topic_id, 49) for topic_id in topics)
    # About 0.15 s here for all of it; CPU time, with room for a slower and busier machine.
    assert time.process_time() - begin < 3.0


def test_many_voters_fit(one: LeaderTable, two: LeaderTable) -> None:
    voters = tuple(range(1, VOTERS_MAX + 1))
    one.leads(TOPIC, 0, 4, voters, voters)
    tell(one, two, full=True)
    assert two.get(TOPIC, 0) == Leadership(1, 4, voters, voters)


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_bytes_that_are_no_frame_are_refused(one: LeaderTable, two: LeaderTable, cut: int) -> None:
    one.leads(TOPIC, 0, 4, (1, 2), (1, 2))
    (frame,) = one.full()
    for bad in (frame[:-cut], frame + bytes(cut), b"", b"\x02" + frame[1:]):
        with pytest.raises(ProtocolError):
            two.apply(1, bad)
    assert len(two) == 0, "all or nothing"


@calmly
@given(st.data())
def test_any_bytes_are_taken_or_refused(data: st.DataObject) -> None:
    one, two = LeaderTable(1, life=1), LeaderTable(2, life=1)
    for index in range(data.draw(st.integers(0, 3))):
        one.leads(TOPIC, index, 4, (1,), (1, 2, 3))
    (frame,) = one.full()
    spoilt = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        spoilt[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        two.apply(1, bytes(spoilt))
    with contextlib.suppress(ProtocolError):
        two.apply(1, data.draw(st.binary(max_size=60)))
    two.died(1)


class World:
    """Three brokers, links that break and lose what is on them, and Raft as an oracle."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.lives = dict.fromkeys((1, 2, 3), 1)
        self.tables = {node: LeaderTable(node, 1) for node in self.lives}
        self.links: dict[tuple[int, int], deque[bytes]] = {}
        self.truth: dict[Key, Leadership] = {}
        self.gone: dict[int, dict[Key, None]] = {node: {} for node in self.lives}
        self.deleted: dict[Key, None] = {}
        self.seen: dict[tuple[int, Key], int] = {}
        for a, b in ((1, 2), (1, 3), (2, 3)):
            self.connect(a, b)

    def connect(self, a: int, b: int) -> None:
        for sender, receiver in ((a, b), (b, a)):
            self.links[sender, receiver] = deque(self.tables[sender].full())

    def cut(self, a: int, b: int) -> None:
        for sender, receiver in ((a, b), (b, a)):
            if self.links.pop((sender, receiver), None) is not None:
                self.tables[receiver].died(sender)

    def restart(self, node: int) -> None:
        for other in self.tables:
            if other != node:
                self.cut(node, other)
        self.lives[node] += 1
        self.tables[node] = LeaderTable(node, self.lives[node])
        self.gone[node].clear()
        self.seen = {key: epoch for key, epoch in self.seen.items() if key[0] != node}
        for key, known in self.truth.items():
            if known.leader == node:
                self.truth[key] = known._replace(leader=-1)

    def elect(self, key: Key) -> None:
        known = self.truth.get(key)
        epoch = 1 if known is None else known.epoch + self.dice.randint(1, 2)
        leader = self.dice.randint(1, 3)
        self.truth[key] = Leadership(leader, epoch, (leader,), (1, 2, 3))
        self.tables[leader].leads(*key, epoch, (leader,), (1, 2, 3))
        if known is not None and known.leader not in (-1, leader) and self.dice.random() < 0.5:
            self.tables[known.leader].lost(*key)

    def change(self, key: Key) -> None:
        known = self.truth.get(key)
        if known is None or known.leader == -1:
            return
        table = self.tables[known.leader]
        if self.dice.random() < 0.3:
            table.lost(*key)
            self.truth[key] = known._replace(leader=-1)
            return
        isr = tuple(node for node in (1, 2, 3) if node == known.leader or self.dice.random() < 0.5)
        self.truth[key] = known._replace(isr=isr)
        table.leads(*key, known.epoch, isr, (1, 2, 3))

    def delete(self, key: Key) -> None:
        """Every broker learns it when it does. A topic's id is never used again."""
        if self.truth.pop(key, None) is not None:
            self.deleted[key] = None
            for node in self.tables:
                self.gone[node][key] = None

    def forget(self, node: int) -> None:
        for key in self.gone[node]:
            self.tables[node].forget(*key)
            self.seen.pop((node, key), None)
        self.gone[node].clear()

    def send(self, node: int) -> None:
        frames = self.tables[node].take_delta()
        for (sender, _), queue in self.links.items():
            if sender == node:
                queue.extend(frames)

    def deliver(self, sender: int, receiver: int) -> None:
        queue = self.links.get((sender, receiver))
        if queue:
            self.tables[receiver].apply(sender, queue.popleft())
            self.check(receiver)

    def check(self, node: int) -> None:
        """Epochs never go back."""
        for key in self.truth:
            known = self.tables[node].get(*key)
            if known is not None:
                assert known.epoch >= self.seen.get((node, key), 0)
                assert known.epoch <= self.truth[key].epoch
                self.seen[node, key] = known.epoch

    def act(self, topics: list[UUID]) -> None:
        a, b = self.dice.sample((1, 2, 3), 2)
        key = (self.dice.choice(topics), self.dice.randint(0, 4))
        choice = self.dice.randrange(20)
        if choice < 3 and key not in self.deleted:
            self.elect(key)
        elif choice < 6:
            self.change(key)
        elif choice < 10:
            self.send(a)
        elif choice < 15:
            self.deliver(a, b)
        elif choice == 15:
            self.cut(a, b)
        elif choice == 16 and (a, b) not in self.links:
            self.connect(a, b)
        elif choice == 17 and self.dice.random() < 0.3:
            self.restart(a)
        elif choice == 18 and self.dice.random() < 0.3:
            self.delete(key)
        elif choice == 19:
            self.forget(a)

    def settle(self) -> None:
        """All links are up, everything is said and heard."""
        for a, b in ((1, 2), (1, 3), (2, 3)):
            if (a, b) not in self.links:
                self.connect(a, b)
        for node, table in self.tables.items():
            self.forget(node)
            for key in table.led_by(node):
                if self.truth[key].leader != node:  # Its replica has learnt it by now.
                    table.lost(*key)
            self.send(node)
        while any(self.links.values()):
            for sender, receiver in self.links:
                self.deliver(sender, receiver)


@settings(calmly, max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_everybody_knows_who_leads_in_the_end(seed: int, steps: int) -> None:
    world = World(seed)
    topics = [TOPIC, OTHER]
    for _ in range(steps):
        world.act(topics)
    world.settle()
    for node, table in world.tables.items():
        for key, known in world.truth.items():
            told = table.get(*key)
            if known.leader == -1:
                assert told is None or told.leader == -1, (node, key)
            else:
                assert told == known, (node, key)
        led = [key for key, known in world.truth.items() if known.leader != -1]
        claimed = [key for other in world.tables for key in table.led_by(other)]
        assert sorted(claimed) == sorted(led), "nothing more, and nothing of what was deleted"
        assert table.wanting == []
        assert all(table.has_heard(other) for other in world.tables if other != node)
