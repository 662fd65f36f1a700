"""Between classic and consumer groups while they run."""

from typing import Any

import pytest
from unit.machines.groups.coordinator import GROUP, Coordinator
from unit.machines.groups.modern import Consumer, settle

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.commands import (
    DescribeClassicGroup,
    Joined,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    Protocol,
    Synced,
)
from dmq.machines.groups.consumer_commands import DescribeConsumerGroup
from dmq.machines.groups.consumer_protocol import read_assignment, write_assignment
from dmq.machines.groups.offset_commands import CommitOffsets, FetchOffsets, OffsetToCommit
from dmq.machines.groups.outcome import Later

DELAY_MS = 3000
TOPICS = b"\0\0\0\1\0\5topic"
NO_DATA = b"\xff\xff\xff\xff"


def wants(*owned: int) -> tuple[Protocol, ...]:
    """A cooperative subscription, version 1, that says which partitions it has."""
    has = write_assignment(1, {"topic": owned} if owned else {})[2:-4]
    return (Protocol("cooperative", b"\0\1" + TOPICS + NO_DATA + has),)


def shares(**members: tuple[int, ...]) -> dict[str, bytes]:
    return {name: write_assignment(1, {"topic": found}) for name, found in members.items()}


def indexes(synced: Any) -> list[int]:
    assert isinstance(synced, Synced)
    assert synced.error is ErrorCode.NONE
    return [index for _, found in read_assignment(synced.assignment) for index in found]


class Classic:
    """A classic consumer, cooperative: it keeps what it has while it joins again."""

    def __init__(self, coordinator: Coordinator, **details: Any) -> None:
        self.coordinator = coordinator
        self.details = details
        self.has: list[int] = []
        self.later = coordinator.join(protocols=wants(), **details)
        self.place: Joined | None = None

    def joined(self) -> Joined:
        self.place = self.coordinator.joined(self.later)
        return self.place

    def rejoin(self) -> Joined:
        assert self.place is not None
        protocols = wants(*self.has)
        self.later = self.coordinator.join(
            self.place.member_id, protocols=protocols, **self.details
        )
        return self.joined()

    def sync(self) -> None:
        assert self.place is not None
        instance_id = self.details.get("instance_id")
        self.has = indexes(self.coordinator.sync(self.place, instance_id=instance_id))

    def follow(self) -> None:
        """Heartbeat, and join and sync again if that is what it is told."""
        assert self.place is not None
        code = self.coordinator.heartbeat(self.place, instance_id=self.details.get("instance_id"))
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            assert self.rejoin().error is ErrorCode.NONE
            self.sync()


def classic_group(coordinator: Coordinator, size: int = 2) -> list[Classic]:
    """A stable classic group of consumers; the topic has four partitions."""
    members = [Classic(coordinator) for _ in range(size)]
    coordinator.pass_time(DELAY_MS * 2)
    places = [member.joined() for member in members]
    dealt = {place.member_id: tuple(range(n, 4, size)) for n, place in enumerate(places)}
    waiting = [coordinator.sync(place) for place in places[1:]]
    members[0].has = indexes(coordinator.sync(places[0], shares(**dealt)))
    for member, later in zip(members[1:], waiting, strict=True):
        member.has = indexes(coordinator.synced(later))
    return members


def coordinating(**config: Any) -> Coordinator:
    coordinator = Coordinator(**config)
    coordinator.world.create("topic", 4)
    return coordinator


def kind(coordinator: Coordinator) -> tuple[str, str]:
    (group,) = coordinator.do(ListGroups())
    return group.group_type, group.state


def together(coordinator: Coordinator, classic: list[Classic], modern: list[Consumer]) -> None:
    """Everybody does what it must until the group is settled."""
    for _ in range(8):
        coordinator.pass_time(1000)
        for consumer in modern:
            consumer.beat()
        for member in classic:
            member.follow()
        owned = [index for member in classic for index in member.has]
        owned += [index for consumer in modern for index in consumer.indexes]
        assert len(owned) == len(set(owned)), "a partition has two members"


def test_a_classic_group_becomes_a_consumer_group_without_stopping() -> None:
    coordinator = coordinating()
    classic = classic_group(coordinator)
    generation = classic[0].joined().generation
    newcomer = Consumer(coordinator, "new", "topic")
    newcomer.beat()
    assert kind(coordinator)[0] == "consumer"
    assert newcomer.indexes == [], "the classic members have everything"
    group = coordinator.state.consumer[GROUP]
    assert group.epoch == generation + 1
    together(coordinator, classic, [newcomer])
    assert kind(coordinator) == ("consumer", "Stable")
    everybody = sorted([*classic[0].has, *classic[1].has, *newcomer.indexes])
    assert everybody == [0, 1, 2, 3]
    assert len(newcomer.indexes) == 1
    described = coordinator.do(DescribeConsumerGroup(GROUP))
    assert sorted(member.is_classic for member in described.members) == [False, True, True]


def test_a_group_whose_assignments_we_cannot_read_stays_classic() -> None:
    coordinator = coordinating()
    member = Classic(coordinator)
    coordinator.pass_time(DELAY_MS)
    place = member.joined()
    coordinator.sync(place, {place.member_id: b"?"})
    with pytest.raises(KafkaError, match="malformed") as refused:
        Consumer(coordinator, "new", "topic").beat()
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert kind(coordinator) == ("classic", "Stable")
    assert coordinator.heartbeat(place) is ErrorCode.NONE


def test_the_last_of_the_new_protocol_to_leave_makes_it_classic_again() -> None:
    coordinator = coordinating()
    classic = classic_group(coordinator)
    newcomer = Consumer(coordinator, "new", "topic")
    newcomer.beat()
    together(coordinator, classic, [newcomer])
    newcomer.leave()
    assert kind(coordinator) == ("classic", "PreparingRebalance")
    assert GROUP not in coordinator.state.consumer
    for member in classic:
        assert member.place is not None
        assert coordinator.heartbeat(member.place) is ErrorCode.REBALANCE_IN_PROGRESS
        protocols = wants(*member.has)
        member.later = coordinator.join(member.place.member_id, protocols=protocols)
    places = [member.joined() for member in classic]
    assert places[0].generation == places[1].generation
    leader = next(place for place in places if place.members)
    dealt = {place.member_id: (n, n + 2) for n, place in enumerate(places)}
    follower = next(place for place in places if place is not leader)
    waiting = coordinator.sync(follower)
    coordinator.sync(leader, shares(**dealt))
    assert coordinator.synced(waiting).error is ErrorCode.NONE
    assert kind(coordinator) == ("classic", "Stable")


def test_a_silent_last_member_of_the_new_protocol_makes_it_classic_again() -> None:
    coordinator = coordinating()
    classic = classic_group(coordinator, 1)
    newcomer = Consumer(coordinator, "new", "topic")
    newcomer.beat()
    together(coordinator, classic, [newcomer])
    for _ in range(10):
        coordinator.pass_time(5000)
        if GROUP in coordinator.state.consumer:
            classic[0].follow()
    assert kind(coordinator)[0] == "classic"


def test_a_group_whose_classic_members_left_stays_new() -> None:
    coordinator = coordinating()
    classic = classic_group(coordinator)
    newcomer = Consumer(coordinator, "new", "topic")
    newcomer.beat()
    together(coordinator, classic, [newcomer])
    (left,) = coordinator.leave(classic[0].joined())
    assert left.error is ErrorCode.NONE
    together(coordinator, classic[1:], [newcomer])
    coordinator.leave(classic[1].joined())
    settle(coordinator, newcomer)
    assert newcomer.indexes == [0, 1, 2, 3]
    assert kind(coordinator) == ("consumer", "Stable")


def test_classic_members_join_a_consumer_group() -> None:
    coordinator = coordinating()
    modern = Consumer(coordinator, "new", "topic")
    modern.beat()
    coordinator.pass_time(1000)
    required = coordinator.join(protocols=wants(), again=False)
    assert required.error is ErrorCode.MEMBER_ID_REQUIRED
    member = Classic(coordinator)
    place = member.joined()
    assert (place.protocol_type, place.protocol, place.members) == ("consumer", "cooperative", ())
    assert place.leader != place.member_id
    member.sync()
    together(coordinator, [member], [modern])
    assert sorted(member.has + modern.indexes) == [0, 1, 2, 3]


def test_what_a_classic_member_of_a_consumer_group_must_fit() -> None:
    coordinator = coordinating()
    modern = Consumer(coordinator, "new", "topic")
    modern.beat()
    coordinator.pass_time(1000)
    place = Classic(coordinator).joined()

    def code(act: Any) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            act()
        return refused.value.code

    wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(lambda: coordinator.join(protocol_type="connect")) is wrong
    assert code(lambda: coordinator.join(protocols=(Protocol("cooperative", b"?"),))) is wrong
    assert code(lambda: coordinator.join(protocols=(Protocol("other", TOPICS),))) is wrong
    assert code(lambda: coordinator.sync(place, protocol="other")) is wrong
    late = Joined(ErrorCode.NONE, place.member_id, 1)
    assert code(lambda: coordinator.sync(late)) is ErrorCode.ILLEGAL_GENERATION
    assert code(lambda: coordinator.heartbeat(late)) is ErrorCode.ILLEGAL_GENERATION
    fetch = FetchOffsets(GROUP, None, member_id=place.member_id, member_epoch=1)
    assert code(lambda: coordinator.do(fetch)) is ErrorCode.ILLEGAL_GENERATION
    not_classic = Joined(ErrorCode.NONE, "new", modern.epoch)
    assert code(lambda: coordinator.heartbeat(not_classic)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_members_do_not_join_again_for_a_target_that_is_not_made_yet() -> None:
    coordinator = coordinating()
    (classic,) = classic_group(coordinator, 1)
    modern = [Consumer(coordinator, name, "topic") for name in ("one", "two", "three")]
    modern[0].beat()
    together(coordinator, [classic], modern[:1])
    for newcomer in modern[1:]:  # The second comes too soon after the first for another target.
        newcomer.beat()
    joins = 0
    while coordinator.heartbeat(place := classic.joined()) is not ErrorCode.NONE:
        joins += 1
        assert joins <= 2, "it joins again and again, and nothing changes"
        classic.rejoin()
        classic.sync()
    group = coordinator.state.consumer[GROUP]
    assert place.generation == group.assignment_epoch == group.group_epoch - 1
    coordinator.pass_time(1000)  # Now there may be another.
    assert coordinator.heartbeat(place) is ErrorCode.REBALANCE_IN_PROGRESS
    together(coordinator, [classic], modern)
    assert kind(coordinator) == ("consumer", "Stable")
    assert [len(classic.has), *(len(one.indexes) for one in modern)] == [1, 1, 1, 1]


def test_an_admin_has_members_of_the_new_protocol_leave() -> None:
    coordinator = coordinating()
    classic = classic_group(coordinator, 1)
    one = Consumer(coordinator, "one", "topic")
    two = Consumer(coordinator, "two", "topic", instance_id="i")
    for newcomer in (one, two):
        newcomer.beat()
    together(coordinator, classic, [one, two])

    def leave(*members: tuple[str, str | None]) -> list[ErrorCode]:
        leaving = tuple(LeavingMember(*member) for member in members)
        return [left.error for left in coordinator.do(LeaveGroup(GROUP, leaving))]

    unknown, fenced = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
    assert leave(("", None), ("", "no"), ("no", None), ("one", "i")) == [unknown] * 3 + [fenced]
    assert kind(coordinator) == ("consumer", "Stable")
    assert leave(("one", None)) == [ErrorCode.NONE]
    assert leave(("one", None)) == [unknown]
    with pytest.raises(KafkaError, match="not a member"):
        one.beat()
    together(coordinator, classic, [two])
    assert sorted(classic[0].has + two.indexes) == [0, 1, 2, 3]
    assert leave(("", "i")) == [ErrorCode.NONE]  # The last: the others go on as a classic group.
    assert kind(coordinator) == ("classic", "PreparingRebalance")


def test_a_classic_member_that_does_not_join_again_in_time_is_out() -> None:
    coordinator = coordinating()
    (member,) = classic_group(coordinator, 1)
    newcomer = Consumer(coordinator, "new", "topic")
    newcomer.beat()
    place = member.joined()
    for _ in range(9):
        coordinator.pass_time(8000)
        newcomer.beat()
        if place.member_id in coordinator.state.consumer[GROUP].members:
            assert coordinator.heartbeat(place) is ErrorCode.REBALANCE_IN_PROGRESS
    settle(coordinator, newcomer, rounds=2)
    assert newcomer.indexes == [0, 1, 2, 3]


def test_classic_members_commit_by_generation() -> None:
    coordinator = coordinating()
    (member,) = classic_group(coordinator, 1)
    Consumer(coordinator, "new", "topic").beat()
    place = member.joined()
    offsets = (OffsetToCommit("topic", 0, 5),)
    command = CommitOffsets(GROUP, offsets, place.member_id, place.generation, knows_epochs=False)
    (result,) = coordinator.do(command)
    assert result.error is ErrorCode.NONE
    with pytest.raises(KafkaError) as refused:
        coordinator.do(CommitOffsets(GROUP, offsets, place.member_id, 9))
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION


def test_whoever_waits_in_the_classic_group_is_told_to_join_again() -> None:
    coordinator = coordinating()
    classic_group(coordinator, 1)
    waiting = coordinator.join(protocols=wants())
    assert isinstance(waiting, Later)
    Consumer(coordinator, "new", "topic").beat()
    assert coordinator.joined(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_the_policy_says_which_way_is_open(policy: str, upgrades: bool, downgrades: bool) -> None:
    coordinator = coordinating(group_consumer_migration_policy=policy)
    classic_group(coordinator, 1)
    newcomer = Consumer(coordinator, "new", "topic")
    if upgrades:
        newcomer.beat()
    else:
        with pytest.raises(KafkaError) as refused:
            newcomer.beat()
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert kind(coordinator) == ("classic", "Stable")
        return
    newcomer.leave()
    assert kind(coordinator)[0] == ("classic" if downgrades else "consumer")


def test_groups_that_are_no_consumers_stay_classic() -> None:
    coordinator = coordinating()
    coordinator.stable(1, protocol_type="connect")
    with pytest.raises(KafkaError) as refused:
        Consumer(coordinator, "new", "topic").beat()
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_becomes_what_its_next_member_is() -> None:
    coordinator = coordinating()
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    one.leave()
    later = coordinator.join(protocols=wants())
    assert kind(coordinator)[0] == "classic"
    coordinator.pass_time(DELAY_MS)
    coordinator.leave(coordinator.joined(later))
    assert coordinator.do(DescribeClassicGroup(GROUP)).state == "Empty"
    one.beat()
    assert one.indexes == [0, 1, 2, 3]
    assert kind(coordinator) == ("consumer", "Stable")


def test_offsets_stay_with_a_group_that_changes_its_kind() -> None:
    coordinator = coordinating()
    coordinator.do(CommitOffsets(GROUP, (OffsetToCommit("topic", 0, 5),)))
    Consumer(coordinator, "one", "topic").beat()
    assert [value.offset for _, value in coordinator.state.offsets.of_group(GROUP)] == [5]
    assert kind(coordinator) == ("consumer", "Stable")


def test_a_static_member_changes_its_protocol_and_with_it_the_group() -> None:
    coordinator = coordinating()
    modern = Consumer(coordinator, "new", "topic", instance_id="static")
    modern.beat()
    coordinator.pass_time(1000)
    member = Classic(coordinator, instance_id="static")
    place = member.joined()
    assert (place.error, kind(coordinator)) == (ErrorCode.NONE, ("classic", "Stable"))
    member.sync()
    assert member.has == [0, 1, 2, 3]
    with pytest.raises(KafkaError):
        modern.beat()
    again = Consumer(coordinator, "newer", "topic", instance_id="static")
    again.beat()
    assert (again.indexes, kind(coordinator)[0]) == ([0, 1, 2, 3], "consumer")


def test_a_group_that_changed_its_kind_survives_its_leader() -> None:
    coordinator = coordinating()
    classic = classic_group(coordinator)
    newcomer = Consumer(coordinator, "new", "topic")
    newcomer.beat()
    coordinator.fail_over()
    together(coordinator, classic, [newcomer])
    newcomer.leave()
    coordinator.fail_over()
    place = classic[0].joined()
    assert coordinator.heartbeat(place) is ErrorCode.REBALANCE_IN_PROGRESS, "somebody left"
