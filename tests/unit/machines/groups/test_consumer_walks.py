"""Random walks of consumer groups: both protocols, changing topics, slow members, failing leaders.

What must hold at every step: no partition is owned by two members, whatever they are told and however
late they hear it; every member's partitions are of topics that exist or existed; the log, compacted
in any way, says all of the state; and when everybody does what it must, the group settles with every
partition read.
"""

import random
from contextlib import suppress
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.machines.groups.coordinator import CLIENT, GROUP, Coordinator
from unit.machines.groups.modern import Consumer, pack
from unit.machines.groups.replaying import check_replay

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.commands import (
    Heartbeat,
    Joined,
    LeaveGroup,
    LeavingMember,
    Protocol,
    SyncGroup,
)
from dmq.machines.groups.consumer_commands import ConsumerHeartbeat
from dmq.machines.groups.consumer_protocol import read_assignment, write_assignment

NAMES = ("a", "b", "c")
STEPS = 150
CLASSIC_SESSION_MS = 10_000
"""As `Coordinator.join` asks for."""
FENCED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
Owned = set[tuple[UUID, int]]


class Modern:
    """A consumer of the new protocol that may be slow, deaf to answers, or die."""

    def __init__(self, walk: "Walk", number: int) -> None:
        self.walk = walk
        self.number = number
        self.lives = 0
        instance_id = f"static{number}" if number == 0 else None
        self.instance_id = instance_id
        self._begin()

    def _begin(self) -> None:
        self.lives += 1
        details = {} if self.instance_id is None else {"instance_id": self.instance_id}
        self.inner = Consumer(
            self.walk.coordinator, f"m{self.number}.{self.lives}", *self._topics(), **details
        )
        self.inner.is_slow = True
        self.is_unsure = False

    def _topics(self) -> tuple[str, ...]:
        return tuple(self.walk.dice.sample(NAMES, self.walk.dice.randint(1, 3)))

    @property
    def owned(self) -> Owned:
        return self.inner.owned

    def step(self, dice: random.Random) -> None:
        what = dice.random()
        if what < 0.70:
            self.beat(is_lost=dice.random() < 0.1)
        elif what < 0.90:
            self.inner.let_go()
        elif what < 0.93:
            self.inner.topics = self._topics()
            self.beat(topic_names=self.inner.topics)
        elif what < 0.96:
            self._leave(-2 if self.instance_id and dice.random() < 0.5 else -1)
        elif what < 0.98:
            self._begin()  # It died: nobody owns what it had.

    def beat(self, *, is_lost: bool = False, **details: Any) -> None:
        try:
            if is_lost and self.inner.epoch > 0:
                self._send_unheard()
            else:
                if self.is_unsure:  # It says everything, and wants to hear everything.
                    details |= {"rebalance_timeout_ms": 60_000, "topic_names": self.inner.topics}
                self.inner.beat(**details)
            self.is_unsure = is_lost
        except KafkaError as error:
            if error.code not in FENCED:
                raise
            self.inner.owned, self.inner.assigned, self.inner.epoch = set(), set(), 0

    def _send_unheard(self) -> None:
        """A heartbeat whose answer never arrives."""
        owned = pack(self.inner.owned)
        command = ConsumerHeartbeat(
            GROUP, self.inner.member_id, self.inner.epoch, CLIENT, self.instance_id, owned=owned
        )
        self.walk.coordinator.do(command)

    def _leave(self, epoch: int) -> None:
        self.inner.owned = set()
        with suppress(KafkaError):
            self.inner.leave(epoch)
        self._begin()

    def settle(self) -> None:
        self.inner.let_go()
        self.beat()
        self.inner.let_go()


class Classic:
    """A cooperative consumer of the classic protocol."""

    def __init__(self, walk: "Walk") -> None:
        self.walk = walk
        self.owned: Owned = set()
        self.member_id = ""
        self.place: Joined | None = None
        self.must_sync = False
        self.heard_at = 0
        """When the coordinator last took it for a member."""
        self.topics = NAMES[:2]

    def step(self, dice: random.Random) -> None:
        if dice.random() < 0.03:
            self._die()
        else:
            self.settle()

    def _die(self) -> None:
        if self.member_id and self.walk.dice.random() < 0.5:
            members = (LeavingMember(self.member_id),)
            self._try(lambda: self.walk.coordinator.do(LeaveGroup(GROUP, members)))
        self._lost()

    def _lost(self) -> None:
        self.owned, self.member_id, self.place, self.must_sync = set(), "", None, False

    def _try(self, act: Any) -> Any:
        try:
            return act()
        except KafkaError as error:
            return error.code

    def settle(self) -> None:
        if self.walk.coordinator.now - self.heard_at >= CLASSIC_SESSION_MS:
            self.owned = set()  # It counts for itself, and knows that others may have them.
        if self.place is None:
            self._join()
        elif self.must_sync:
            self._sync()
        else:
            self._heartbeat()

    def _join(self) -> None:
        if not self.walk.has_modern_group():
            return  # The walk is about consumer groups; an empty one would become classic.
        names = {image.topic_id: name for name, image in self.walk.coordinator.world.topics.items()}
        by_name: dict[str, list[int]] = {}
        for topic, index in sorted(self.owned):
            if topic in names:
                by_name.setdefault(names[topic], []).append(index)
        body = write_assignment(1, dict.fromkeys(self.topics, ()))
        topics = len(self.topics).to_bytes(4, "big") + b"".join(
            len(name).to_bytes(2, "big") + name.encode() for name in self.topics
        )
        metadata = body[:2] + topics + b"\xff" * 4 + write_assignment(1, by_name)[2:-4]
        answer = self._try(
            lambda: self.walk.coordinator.join(
                self.member_id, again=False, protocols=(Protocol("cooperative", metadata),)
            )
        )
        if isinstance(answer, Joined):
            self.member_id = answer.member_id
            if answer.error is ErrorCode.NONE:
                self.place, self.must_sync = answer, True
                self.heard_at = self.walk.coordinator.now
        else:
            self._lost()

    def _sync(self) -> None:
        assert self.place is not None
        command = SyncGroup(GROUP, self.place.generation, self.member_id)
        answer = self._try(lambda: self.walk.coordinator.do(command))
        self.must_sync = False
        if answer is ErrorCode.REBALANCE_IN_PROGRESS:
            self.place = None
        elif isinstance(answer, ErrorCode) or answer.error is not ErrorCode.NONE:
            self._lost()
        else:
            self.heard_at = self.walk.coordinator.now
            topics = self.walk.coordinator.world.topics
            self.owned = {
                (topics[name].topic_id, index)
                for name, found in read_assignment(answer.assignment)
                for index in found
            }

    def _heartbeat(self) -> None:
        assert self.place is not None
        command = Heartbeat(GROUP, self.place.generation, self.member_id)
        code = self._try(lambda: self.walk.coordinator.do(command))
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.heard_at = self.walk.coordinator.now
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.place = None  # It joins again with what it has.
        elif code is not ErrorCode.NONE:
            self._lost()


class Walk:
    """Everybody, the coordinator, and time."""

    def __init__(self, seed: int, *, classic: int) -> None:
        self.dice = random.Random(seed)
        policy = "disabled"  # Whether the group may become classic is another test's matter.
        self.coordinator = Coordinator(group_consumer_migration_policy=policy)
        for name in NAMES:
            self.coordinator.world.create(name, self.dice.randint(1, 5))
        self.modern = [Modern(self, number) for number in range(4)]
        self.classic = [Classic(self) for _ in range(classic)]
        self.shared = 0

    @property
    def everybody(self) -> list[Any]:
        return [*self.modern, *self.classic]

    def has_modern_group(self) -> bool:
        group = self.coordinator.state.consumer.get(GROUP)
        return group is not None and bool(group.members)

    def step(self) -> None:
        dice = self.dice
        self.coordinator.pass_time(dice.randrange(400))
        what = dice.random()
        if what < 0.93:
            dice.choice(self.everybody).step(dice)
        elif what < 0.95:
            self.coordinator.pass_time(dice.choice([1000, 5000, 46_000, 61_000]))
            self._expire()
        elif what < 0.98:
            self._change_topics()
        else:
            self.coordinator.fail_over()
        self.check()

    def _expire(self) -> None:
        """Who was silent beyond its session knows that itself, and stops."""
        group = self.coordinator.state.consumer.get(GROUP)
        members = {} if group is None else group.members
        for consumer in self.modern:
            if consumer.inner.member_id not in members:
                consumer.inner.owned = set()
        for consumer in self.classic:
            if consumer.member_id not in members:
                consumer.owned = set()

    def _change_topics(self) -> None:
        world, name = self.coordinator.world, self.dice.choice(NAMES)
        if self.dice.random() < 0.3:
            gone = world.delete(name)
            for consumer in self.everybody:
                mine = {one for one in consumer.owned if one[0] == gone.topic_id}
                consumer.owned.difference_update(mine)
            world.create(name, self.dice.randint(1, 5))
        else:
            world.grow(name, world.topics[name].partition_count + 1)

    def check(self) -> None:
        """No partition has two owners; timers may have fired, which members can't know yet."""
        group = self.coordinator.state.consumer.get(GROUP)
        members = {} if group is None else group.members
        owners: dict[tuple[UUID, int], Any] = {}
        for consumer in self.everybody:
            name = consumer.inner.member_id if isinstance(consumer, Modern) else consumer.member_id
            if name not in members:
                continue  # It is fenced: what it still reads it can't commit.
            for partition in sorted(consumer.owned):
                assert partition not in owners, "a partition has two members"
                owners[partition] = consumer
                self.shared += len(members) > 1

    def end(self) -> None:
        """Everybody does what it must: the group settles, and every partition is read."""
        for _ in range(70):
            self.coordinator.pass_time(1000)
            for consumer in self.everybody:
                consumer.settle()
                self.check()
        group = self.coordinator.state.consumer[GROUP]
        assert group.state.value == "Stable"
        topics = self.coordinator.world.topics
        wanted = {
            (topics[name].topic_id, index)
            for name in group.subscribed
            for index in range(topics[name].partition_count)
        }
        read = [partition for consumer in self.everybody for partition in consumer.owned]
        assert sorted(read) == sorted(wanted)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), classic=st.integers(0, 2))
def test_walks_of_consumer_groups(seed: int, classic: int) -> None:
    walk = Walk(seed, classic=classic)
    for _ in range(STEPS):
        walk.step()
    check_replay(walk.coordinator, seed)
    walk.end()
    check_replay(walk.coordinator, seed)


def test_the_walks_get_somewhere() -> None:
    """Guards the walk itself: members that never share a group would prove nothing."""
    walks = [Walk(seed, classic=seed % 3) for seed in range(10)]
    for walk in walks:
        for _ in range(STEPS):
            walk.step()
    assert sum(walk.shared for walk in walks) > 3000
    assert sum(len(walk.coordinator.log) for walk in walks) > 1000
