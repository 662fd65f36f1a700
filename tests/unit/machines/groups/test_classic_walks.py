"""Random walks of classic members, simple consumers, producers and failing leaders.

What must hold: no partition has two members in one generation, committed offsets are those that the
log has last, a parked answer is settled in the end, the log says all of the state, and a generation
never comes twice with other members.
"""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.machines.groups.coordinator import GROUP, Coordinator, subscription
from unit.machines.groups.replaying import check_replay

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.commands import (
    Heartbeat,
    Joined,
    LeaveGroup,
    LeavingMember,
    Protocol,
    Synced,
)
from dmq.machines.groups.facts import OffsetKey
from dmq.machines.groups.offset_commands import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    OffsetToCommit,
)
from dmq.machines.groups.outcome import Later

PARTITIONS = 7
STEPS = 250
PASSING_MS = (1, 500, 1000, 3000, 3000, 3000, 9000, 61_000)
REJOIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class Consumer:
    """A classic consumer: what it believes, and what it does next."""

    def __init__(self, walk: "Walk", instance_id: str | None) -> None:
        self.walk = walk
        self.instance_id = instance_id
        self.member_id = ""
        self.place: Joined | None = None
        self.waits_for: Later | None = None
        self.topics = 1

    def step(self, dice: random.Random) -> None:
        if self.waits_for is not None:
            self._take()
        elif self.place is None:
            self._join()
        elif self.place.generation not in self.walk.shares.get(self, {}):
            self._sync()
        else:
            rare = dice.choice([self._join, self._leave])
            common = dice.choice([self._heartbeat, self._commit])
            (rare if dice.random() < 0.07 else common)()

    def _take(self) -> None:
        assert self.waits_for is not None
        answer = self.walk.coordinator.settled.get(self.waits_for)
        if answer is None:
            return
        self.waits_for = None
        if isinstance(answer, Joined):
            self._on_joined(answer)
        else:
            self._on_synced(answer)

    def _join(self) -> None:
        self.place = None
        topics = [f"topic{n}" for n in range(self.topics)]
        answer = self.walk.coordinator.join(
            self.member_id,
            again=False,
            instance_id=self.instance_id,
            protocols=(Protocol("range", subscription(*topics)),),
        )
        if isinstance(answer, Later):
            self.waits_for = answer
        else:
            self._on_joined(answer)

    def _on_joined(self, answer: Joined) -> None:
        if answer.error is ErrorCode.NONE:
            self.place = answer
            self.member_id = answer.member_id
            self.walk.saw_generation(answer)
        elif answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.error in REJOIN:
            self.member_id = ""

    def _sync(self) -> None:
        assert self.place is not None
        shares: dict[str, bytes] = {}
        if self.place.leader == self.member_id and not self.place.skip_assignment:
            members = [member.member_id for member in self.place.members]
            for number in range(PARTITIONS):
                member = members[number % len(members)]
                shares[member] = shares.get(member, b"") + b"%d" % number
        answer = self.walk.coordinator.sync(self.place, shares, instance_id=self.instance_id)
        if isinstance(answer, Later):
            self.waits_for = answer
        else:
            self._on_synced(answer)

    def _on_synced(self, answer: Synced) -> None:
        assert self.place is not None
        if answer.error is ErrorCode.NONE:
            self.walk.saw_share(self, self.place.generation, answer.assignment)
        else:
            self._lost(answer.error)

    def _lost(self, error: ErrorCode) -> None:
        self.place = None
        if error in REJOIN:
            self.member_id = ""

    def _heartbeat(self) -> None:
        assert self.place is not None
        command = Heartbeat(GROUP, self.place.generation, self.member_id, self.instance_id)
        error = self.walk.code_of(command)
        if error is not ErrorCode.NONE:
            self._lost(error)

    def _commit(self) -> None:
        assert self.place is not None
        command = CommitOffsets(
            GROUP,
            self.walk.next_offset(self.walk.dice.randrange(2)),
            self.member_id,
            self.place.generation,
            self.instance_id,
        )
        error = self.walk.code_of(command)
        if error is ErrorCode.NONE:
            self.walk.committed(command.offsets)

    def _leave(self) -> None:
        members = (LeavingMember(self.member_id, self.instance_id),)
        self.walk.code_of(LeaveGroup(GROUP, members))
        self.member_id, self.place = "", None


class Walk:
    """Everybody, the coordinator, and what was seen."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.coordinator = Coordinator(group_max_size=5)
        self.consumers = [Consumer(self, f"static{n}" if n < 2 else None) for n in range(6)]
        self.shares: dict[Consumer, dict[int, bytes]] = {}
        self.owners: dict[tuple[int, int], Consumer] = {}
        self.generations: dict[int, str] = {}
        self.offsets: dict[int, int] = {}
        self.open: dict[int, int] = {}
        """Offset pending, by producer; all of partition 1."""
        self.number = 0

    def code_of(self, command: Any) -> ErrorCode:
        try:
            answer = self.coordinator.do(command)
        except KafkaError as error:
            return error.code
        return answer if isinstance(answer, ErrorCode) else ErrorCode.NONE

    def saw_generation(self, place: Joined) -> None:
        if place.members and not place.skip_assignment:
            members = " ".join(sorted(member.member_id for member in place.members))
            known = self.generations.setdefault(place.generation, members)
            assert known == members, "a generation came twice"

    def saw_share(self, consumer: Consumer, generation: int, share: bytes) -> None:
        self.shares.setdefault(consumer, {})[generation] = share
        for number in share:
            owner = self.owners.setdefault((generation, number), consumer)
            assert owner is consumer, "a partition has two members in one generation"

    def next_offset(self, partition: int) -> tuple[OffsetToCommit, ...]:
        self.number += 1
        return (OffsetToCommit("topic", partition, self.number),)

    def committed(self, offsets: tuple[OffsetToCommit, ...]) -> None:
        for one in offsets:
            self.offsets[one.partition] = one.offset

    def step(self) -> None:
        dice = self.dice
        self.coordinator.pass_time(dice.randrange(300))
        what = dice.random()
        if what < 0.92:
            consumer = dice.choice(self.consumers)
            if dice.random() < 0.01:
                consumer.topics = 3 - consumer.topics
                consumer.place = consumer.place if consumer.waits_for else None
            consumer.step(dice)
        elif what < 0.96:
            self.coordinator.pass_time(dice.choice(PASSING_MS))
        elif what < 0.995:
            self._transact()
        else:
            self.coordinator.fail_over()
        self.check()

    def _transact(self) -> None:
        producer = self.dice.randrange(3)
        if producer in self.open and self.dice.random() < 0.5:
            commit = self.dice.random() < 0.5
            self.coordinator.end_transaction(producer, commit=commit)
            offset = self.open.pop(producer)
            if commit and offset > self.offsets.get(1, -1):
                self.offsets[1] = offset
            return
        offsets = self.next_offset(1)
        command = CommitOffsetsInTransaction(GROUP, producer, 0, offsets)
        if self.code_of(command) is ErrorCode.NONE:
            self.open[producer] = offsets[0].offset

    def check(self) -> None:
        for partition in (0, 1):
            found = self.coordinator.state.offsets.get(OffsetKey(GROUP, "topic", partition))
            expected = self.offsets.get(partition)
            assert (None if found is None else found.offset) == expected

    def end(self) -> None:
        """Nobody does anything any more: whoever waits is told in the end."""
        self.coordinator.pass_time(400_000)
        assert not self.coordinator.parked


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_walks_of_classic_groups(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    check_replay(walk.coordinator, seed)
    walk.end()
    check_replay(walk.coordinator, seed)


def test_the_walks_get_somewhere() -> None:
    """Guards the walk itself: a group that never settles would prove nothing."""
    walks = [Walk(seed) for seed in range(20)]
    for walk in walks:
        for _ in range(STEPS):
            walk.step()
    assert sum(len(walk.generations) for walk in walks) > 40
    assert sum(len(walk.owners) for walk in walks) > 200
    assert sum(len(walk.offsets) for walk in walks) > 20
