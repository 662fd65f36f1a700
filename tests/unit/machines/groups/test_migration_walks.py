"""Random walks of groups that change their protocol as members come and go, under failing leaders.

Members of both protocols; classic ones are eager: they give everything up before they join again.
What must hold at every step: no partition is owned by two members that the group knows, in whichever
protocol it is; nobody waits for ever; the log says all of the state.
"""

import random
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.machines.groups.coordinator import GROUP, Coordinator, subscription
from unit.machines.groups.replaying import check_replay
from unit.machines.groups.test_consumer_walks import NAMES, Modern, Owned

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.commands import (
    Heartbeat,
    Joined,
    LeaveGroup,
    LeavingMember,
    Protocol,
    Synced,
    SyncGroup,
)
from dmq.machines.groups.consumer_protocol import read_assignment, write_assignment
from dmq.machines.groups.outcome import Later

STEPS = 200


class Eager:
    """A classic consumer that leads if it must, and gives everything up before it joins again."""

    def __init__(self, walk: "Walk") -> None:
        self.walk = walk
        self.owned: Owned = set()
        self.member_id = ""
        self.place: Joined | None = None
        self.waits_for: Later | None = None
        self.must_sync = False

    def step(self, dice: random.Random) -> None:
        if dice.random() < 0.04:
            self._leave()
        else:
            self.act()

    def act(self) -> None:
        if self.waits_for is not None:
            self._take(self.walk.coordinator.settled.get(self.waits_for))
        elif self.place is None:
            self._join()
        elif self.must_sync:
            self._sync()
        else:
            self._heartbeat()

    def _do(self, command: Any) -> Any:
        try:
            return self.walk.coordinator.do(command)
        except KafkaError as error:
            return error.code

    def _lost(self) -> None:
        self.owned, self.member_id, self.place, self.must_sync = set(), "", None, False

    def _leave(self) -> None:
        if self.waits_for is None:
            if self.member_id:
                self._do(LeaveGroup(GROUP, (LeavingMember(self.member_id),)))
            self._lost()

    def _join(self) -> None:
        self.owned = set()
        protocols = (Protocol("range", subscription(*NAMES)),)
        try:
            answer = self.walk.coordinator.join(self.member_id, again=False, protocols=protocols)
        except KafkaError as error:
            answer = error.code
        self._hear(answer)

    def _take(self, answer: Any) -> None:
        if answer is not None:
            self.waits_for = None
            self._hear(answer)

    def _hear(self, answer: Any) -> None:
        if isinstance(answer, Later):
            self.waits_for = answer
            return
        code = answer if isinstance(answer, ErrorCode) else answer.error
        if isinstance(answer, Joined) and code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            self.place, self.must_sync = None, False
        elif code is not ErrorCode.NONE:
            self._lost()
        elif isinstance(answer, Joined):
            self.member_id, self.place, self.must_sync = answer.member_id, answer, True
        else:
            self.must_sync = False
            self._own(answer)

    def _own(self, answer: Synced) -> None:
        topics = self.walk.coordinator.world.topics
        found = read_assignment(answer.assignment) if answer.assignment else ()
        self.owned = {(topics[name].topic_id, n) for name, some in found for n in some}

    def _sync(self) -> None:
        assert self.place is not None
        dealt: dict[str, dict[str, list[int]]] = {m.member_id: {} for m in self.place.members}
        names = sorted(dealt)
        for topic in self.walk.coordinator.world.topics.values() if names else ():
            for n in range(topic.partition_count):
                dealt[names[n % len(names)]].setdefault(topic.name, []).append(n)
        shares = tuple((name, write_assignment(0, found)) for name, found in dealt.items())
        command = SyncGroup(GROUP, self.place.generation, self.member_id, assignments=shares)
        self._hear(self._do(command))

    def _heartbeat(self) -> None:
        assert self.place is not None
        code = self._do(Heartbeat(GROUP, self.place.generation, self.member_id))
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.place, self.owned = None, set()
        elif code is not ErrorCode.NONE:
            self._lost()


class Walk:
    """Members of both protocols, and a leader that fails now and then."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.coordinator = Coordinator(group_initial_rebalance_delay_ms=500)
        for name in NAMES:
            self.coordinator.world.create(name, self.dice.randint(1, 4))
        self.modern: list[Any] = [Modern(self, number) for number in range(2)]  # type: ignore[arg-type]
        self.eager = [Eager(self) for _ in range(3)]
        self.kinds: list[str] = []
        self.prefers_modern = True

    def step(self) -> None:
        dice = self.dice
        self.coordinator.pass_time(dice.randrange(500))
        if dice.random() < 0.02:
            self.prefers_modern = not self.prefers_modern
            for consumer in self.modern:
                if not self.prefers_modern:
                    consumer._leave(-1)
        some = [*self.eager, *(self.modern if self.prefers_modern else [])]
        if dice.random() < 0.99:
            dice.choice(some).step(dice)
        else:
            self.coordinator.fail_over()
        self.check()

    def members(self) -> set[str]:
        state = self.coordinator.state
        group = state.consumer.get(GROUP)
        if group is not None:
            return set(group.members)
        live = self.coordinator.machine._context.live.get(GROUP)
        return set() if live is None else set(live.members)

    def check(self) -> None:
        kind = "consumer" if GROUP in self.coordinator.state.consumer else "classic"
        if not self.kinds or self.kinds[-1] != kind:
            self.kinds.append(kind)
        known, owners = self.members(), dict[tuple[UUID, int], str]()
        found = [(one.inner.member_id, one.owned) for one in self.modern]
        found += [(one.member_id, one.owned) for one in self.eager]
        for member_id, owned in found:
            if member_id in known:
                for partition in sorted(owned):
                    assert partition not in owners, "a partition has two members"
                    owners[partition] = member_id

    def end(self) -> None:
        """Nobody does anything any more: whoever waits is told in the end."""
        self.coordinator.pass_time(400_000)
        assert not self.coordinator.parked
        assert not self.members()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_walks_between_the_protocols(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    check_replay(walk.coordinator, seed)
    walk.end()
    check_replay(walk.coordinator, seed)


def test_the_walks_get_somewhere() -> None:
    """Guards the walk itself: groups that never change their protocol would prove nothing."""
    walks = [Walk(seed) for seed in range(10)]
    for walk in walks:
        for _ in range(STEPS):
            walk.step()
    assert sum(len(walk.kinds) for walk in walks) > 25
