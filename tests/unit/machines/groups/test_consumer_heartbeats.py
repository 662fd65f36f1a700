"""ConsumerGroupHeartbeat: joining, epochs, reconciliation, leaving, timers."""

from typing import Any

import pytest
from unit.machines.groups.coordinator import CLIENT, GROUP, Coordinator
from unit.machines.groups.modern import Consumer, settle

from dmq.config.broker import BROKER
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.assignors import ASSIGNORS
from dmq.machines.groups.commands import DeleteGroup, ListedGroup, ListGroups
from dmq.machines.groups.consumer_commands import ConsumerHeartbeat, DescribeConsumerGroup
from dmq.machines.groups.offset_commands import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    DeleteOffsets,
    FetchOffsets,
    OffsetToCommit,
)

SESSION_MS = 45_000


def coordinating(partitions: int = 4, **config: Any) -> Coordinator:
    coordinator = Coordinator(**config)
    coordinator.world.create("topic", partitions)
    return coordinator


def state_of(coordinator: Coordinator) -> str:
    return str(coordinator.do(DescribeConsumerGroup(GROUP)).state)


def refusal(consumer: Consumer, **details: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        consumer.beat(**details)
    return refused.value.code


# --- joining -------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once() -> None:
    coordinator = coordinating()
    one = Consumer(coordinator, "one", "topic")
    answer = one.beat()
    assert (answer.member_id, answer.member_epoch) == ("one", 2)
    assert answer.heartbeat_interval_ms == 5000
    assert one.indexes == [0, 1, 2, 3]
    assert state_of(coordinator) == "Stable"
    assert coordinator.do(ListGroups()) == [ListedGroup(GROUP, "consumer", "Stable", "consumer")]


def test_a_member_that_says_nothing_new_is_told_nothing_new() -> None:
    coordinator = coordinating()
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    before = len(coordinator.log)
    answer = one.beat()
    assert answer.assignment is None
    assert len(coordinator.log) == before
    full = one.beat(rebalance_timeout_ms=60_000, topic_names=("topic",))
    assert full.assignment is not None
    assert len(coordinator.log) == before


def test_a_member_stays_in_its_epoch_for_as_long_as_it_must_give_up() -> None:
    coordinator = coordinating(12)
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    for name, size in (("two", 6), ("three", 4)):
        coordinator.pass_time(1000)
        Consumer(coordinator, name, "topic").beat()
        answer = one.beat()  # It gave up what it was told before, and is told more.
        assert (answer.member_epoch, len(one.owned)) == (2, size)
    assert one.beat().member_epoch == 4


def test_the_older_version_makes_ids_here() -> None:
    coordinator = coordinating()
    consumer = Consumer(coordinator, "", "topic", needs_member_id=False)
    assert consumer.beat().member_id


def test_a_second_member_gets_its_share_after_the_first_gave_it_up() -> None:
    coordinator = coordinating()
    one, two = Consumer(coordinator, "one", "topic"), Consumer(coordinator, "two", "topic")
    one.beat()
    coordinator.pass_time(1000)
    one.is_slow = True
    two.beat()
    assert two.indexes == [], "the first has not given up"
    assert two.interval_ms == 1000, "who waits asks more often"
    told = one.beat()
    assert told.member_epoch == 2, "it stays in its epoch until it has given up"
    assert len(one.assigned) == 2
    described = coordinator.do(DescribeConsumerGroup(GROUP)).members[0]
    (has,), (target,) = described.assignment, described.target
    assert (len(has[1]), len(target[1])) == (4, 2), "it has what it has not given up"
    assert two.beat().assignment is None
    one.beat()
    assert two.beat().assignment is None
    one.let_go()
    assert one.beat().member_epoch == 3
    two.beat()
    assert sorted(one.indexes + two.indexes) == [0, 1, 2, 3]
    assert state_of(coordinator) == "Stable"


def test_many_who_join_at_once_are_assigned_at_once() -> None:
    coordinator = coordinating(8)
    members = [Consumer(coordinator, f"member{n}", "topic") for n in range(4)]
    for member in members:
        member.beat()
    assert coordinator.state.consumer[GROUP].target_epoch == 2
    assert state_of(coordinator) == "Assigning"
    settle(coordinator, *members)
    assert [len(member.indexes) for member in members] == [2, 2, 2, 2]
    assert coordinator.state.consumer[GROUP].target_epoch == 5


@pytest.mark.parametrize(
    ("details", "code"),
    [
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_what_a_first_heartbeat_must_say(details: dict[str, Any], code: ErrorCode) -> None:
    coordinator = coordinating()
    assert refusal(Consumer(coordinator, "one", "topic"), **details) is code
    assert not coordinator.log


def test_what_any_heartbeat_must_say() -> None:
    coordinator = coordinating()
    for group_id, member_id, epoch in (("", "one", 1), (GROUP, "", 1), (GROUP, "one", -3)):
        with pytest.raises(KafkaError) as refused:
            coordinator.do(ConsumerHeartbeat(group_id, member_id, epoch, CLIENT))
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(KafkaError) as refused:
        coordinator.do(ConsumerHeartbeat(GROUP, "one", -2, CLIENT))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(KafkaError) as refused:
        coordinator.do(ConsumerHeartbeat(GROUP, "one", 1, CLIENT))
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_who_wants_nothing_gets_nothing_and_changes_nothing() -> None:
    coordinator = coordinating()
    idle = Consumer(coordinator, "idle")
    idle.beat(topic_names=())
    assert (idle.epoch, idle.indexes) == (1, [])
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    idle.beat()
    assert (one.indexes, idle.indexes) == ([0, 1, 2, 3], [])
    assert state_of(coordinator) == "Stable"


def test_a_full_group_takes_no_more() -> None:
    coordinator = coordinating(group_consumer_max_size=1)
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    two = Consumer(coordinator, "two", "topic")
    assert refusal(two) is ErrorCode.GROUP_MAX_SIZE_REACHED
    one.beat()


# --- epochs --------------------------------------------------------------------------------------


def test_a_member_must_be_in_its_epoch() -> None:
    coordinator = coordinating()
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    for epoch in (1, 3):
        one.epoch = epoch
        assert refusal(one) is ErrorCode.FENCED_MEMBER_EPOCH
    stranger = Consumer(coordinator, "stranger", "topic")
    stranger.epoch = 1
    assert refusal(stranger) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_missed_an_answer_may_be_one_epoch_behind() -> None:
    coordinator = coordinating()
    one, two = Consumer(coordinator, "one", "topic"), Consumer(coordinator, "two", "topic")
    one.beat()
    settle(coordinator, one, two)
    assert (one.epoch, two.epoch) == (3, 3)
    two.leave()
    coordinator.pass_time(1000)
    behind = Consumer(coordinator, "one", "topic")
    behind.epoch, behind.owned = one.epoch, set(one.owned)
    one.beat()
    assert one.epoch == 4
    behind.beat(rebalance_timeout_ms=60_000, topic_names=("topic",))
    assert (behind.epoch, behind.owned) == (4, one.owned)


def test_a_member_that_is_behind_and_has_too_much_is_fenced() -> None:
    coordinator = coordinating()
    one, two = Consumer(coordinator, "one", "topic"), Consumer(coordinator, "two", "topic")
    one.beat()
    all_of_it = set(one.owned)
    settle(coordinator, one, two)
    one.epoch, one.owned = 2, all_of_it
    assert refusal(one) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_begins_again_has_nothing_and_gets_its_share_back() -> None:
    coordinator = coordinating()
    one, two = Consumer(coordinator, "one", "topic"), Consumer(coordinator, "two", "topic")
    one.beat()
    settle(coordinator, one, two)
    share = one.indexes
    one.epoch, one.owned = 0, set()
    one.beat()
    assert (one.epoch, one.indexes) == (3, share)
    assert coordinator.state.consumer[GROUP].epoch == 3, "that is no change of the group"


# --- subscriptions -------------------------------------------------------------------------------


def test_another_subscription_moves_the_group() -> None:
    coordinator = coordinating()
    other = coordinator.world.create("other", 2)
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    coordinator.pass_time(1000)
    one.beat(topic_names=("other",))
    one.beat()
    assert {topic for topic, _ in one.owned} == {other.topic_id}


def test_new_partitions_and_new_topics_are_found() -> None:
    coordinator = coordinating(2)
    one = Consumer(coordinator, "one", "topic", "later")
    one.beat()
    assert one.indexes == [0, 1]
    coordinator.world.grow("topic", 3)
    settle(coordinator, one, rounds=2)
    assert one.indexes == [0, 1, 2]
    coordinator.world.create("later", 1)
    settle(coordinator, one, rounds=2)
    assert one.indexes == [0, 0, 1, 2]
    coordinator.world.delete("topic")
    settle(coordinator, one, rounds=2)
    assert one.indexes == [0]


def test_what_happens_to_other_topics_moves_nobody() -> None:
    coordinator = coordinating()
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    before = len(coordinator.log)
    coordinator.world.create("other")
    settle(coordinator, one)
    assert len(coordinator.log) == before


def test_who_is_no_member_hears_of_that_before_its_pattern() -> None:
    coordinator = coordinating()
    one = Consumer(coordinator, "one", "topic")
    one.epoch = 7
    assert refusal(one, topic_regex="(") is ErrorCode.GROUP_ID_NOT_FOUND
    one.epoch = 0
    one.beat()
    assert refusal(one, topic_regex="(") is ErrorCode.INVALID_REGULAR_EXPRESSION
    one.epoch = 7
    assert refusal(one, topic_regex="(") is ErrorCode.FENCED_MEMBER_EPOCH
    one.epoch = -1
    assert one.beat(topic_regex="(").member_epoch == -1


def test_topics_by_pattern() -> None:
    coordinator = coordinating()
    coordinator.world.create("top", 1)
    coordinator.world.create("other", 1)
    one = Consumer(coordinator, "one", topic_regex="(^top.*)", topic_names=None)
    one.beat()
    assert one.indexes == [0, 0, 1, 2, 3]
    assert coordinator.state.consumer[GROUP].regexes["(^top.*)"].topics == ("top", "topic")
    coordinator.world.create("topper", 1)
    settle(coordinator, one, rounds=2)
    assert one.indexes == [0, 0, 0, 1, 2, 3]
    one.beat(topic_regex="", topic_names=("other",))
    settle(coordinator, one, rounds=2)
    assert one.indexes == [0]
    assert coordinator.state.consumer[GROUP].regexes == {}
    assert coordinator.machine._context.patterns == {}


def test_the_assignor_that_most_ask_for_is_used() -> None:
    coordinator = coordinating(5)
    members = [Consumer(coordinator, f"m{n}", "topic", server_assignor="range") for n in range(2)]
    members.append(Consumer(coordinator, "m2", "topic"))
    for member in members:
        member.beat()
    settle(coordinator, *members)
    assert coordinator.do(DescribeConsumerGroup(GROUP)).assignor == "range"
    assert [member.indexes for member in members] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_every_assignor_may_be_the_default(name: str) -> None:
    chosen = BROKER["group.consumer.assignors"].parse(name)
    coordinator = coordinating(group_consumer_assignors=chosen)
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    assert one.indexes == [0, 1, 2, 3]
    assert coordinator.do(DescribeConsumerGroup(GROUP)).assignor == name


def test_groups_have_configs() -> None:
    coordinator = coordinating()
    coordinator.world.configs[GROUP] = {
        "consumer.heartbeat.interval.ms": "7000",
        "consumer.session.timeout.ms": "50000",
    }
    one = Consumer(coordinator, "one", "topic")
    assert one.beat().heartbeat_interval_ms == 7000
    coordinator.pass_time(49_999)
    one.beat()
    coordinator.pass_time(50_000)
    assert refusal(one) is ErrorCode.UNKNOWN_MEMBER_ID


# --- leaving -------------------------------------------------------------------------------------


def test_what_a_leaving_member_had_goes_to_the_others() -> None:
    coordinator = coordinating()
    one, two = Consumer(coordinator, "one", "topic"), Consumer(coordinator, "two", "topic")
    one.beat()
    settle(coordinator, one, two)
    left = two.leave()
    assert (left.member_id, left.member_epoch) == ("two", -1)
    one.beat()
    assert one.indexes == [0, 1, 2, 3]


def test_a_silent_member_is_out_and_its_partitions_move() -> None:
    coordinator = coordinating()
    one, two = Consumer(coordinator, "one", "topic"), Consumer(coordinator, "two", "topic")
    one.beat()
    settle(coordinator, one, two)
    coordinator.pass_time(SESSION_MS - 1)
    one.beat()
    coordinator.pass_time(1)
    assert refusal(two) is ErrorCode.UNKNOWN_MEMBER_ID
    one.beat()
    assert one.indexes == [0, 1, 2, 3]


def test_who_does_not_give_up_in_time_is_out() -> None:
    coordinator = coordinating()
    one, two = Consumer(coordinator, "one", "topic"), Consumer(coordinator, "two", "topic")
    one.beat()
    one.is_slow = True
    coordinator.pass_time(1000)
    two.beat()
    one.beat()
    for _ in range(5):
        coordinator.pass_time(11_999)
        one.beat()
        two.beat()
    coordinator.pass_time(5)
    assert refusal(one) is ErrorCode.UNKNOWN_MEMBER_ID
    two.beat()
    two.beat()
    assert two.indexes == [0, 1, 2, 3]


def test_an_empty_group_can_be_deleted_and_is_gone() -> None:
    coordinator = coordinating()
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    with pytest.raises(KafkaError) as refused:
        coordinator.do(DeleteGroup(GROUP))
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    one.leave()
    assert state_of(coordinator) == "Empty"
    coordinator.do(DeleteGroup(GROUP))
    assert coordinator.do(ListGroups()) == []
    assert coordinator.state.consumer == {}


def test_leaving_a_group_that_is_not_there() -> None:
    with pytest.raises(KafkaError) as refused:
        Consumer(coordinating(), "one", "topic").leave()
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


# --- static members ------------------------------------------------------------------------------


def test_a_static_member_that_is_away_keeps_its_share() -> None:
    coordinator = coordinating()
    one = Consumer(coordinator, "one", "topic")
    two = Consumer(coordinator, "two", "topic", instance_id="static")
    one.beat()
    settle(coordinator, one, two)
    share, epoch = two.indexes, coordinator.state.consumer[GROUP].epoch
    assert two.leave(-2).member_epoch == -2
    settle(coordinator, one, rounds=2)
    back = Consumer(coordinator, "three", "topic", instance_id="static")
    back.beat()
    assert back.indexes == share
    assert coordinator.state.consumer[GROUP].epoch == epoch
    two.epoch = epoch or 0
    assert refusal(two) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_is_out() -> None:
    coordinator = coordinating()
    one = Consumer(coordinator, "one", "topic")
    two = Consumer(coordinator, "two", "topic", instance_id="static")
    one.beat()
    settle(coordinator, one, two)
    two.leave(-2)
    for _ in range(5):
        coordinator.pass_time(10_000)
        one.beat()
    one.beat()
    assert one.indexes == [0, 1, 2, 3]


def test_a_static_member_that_is_there_is_not_replaced() -> None:
    coordinator = coordinating()
    Consumer(coordinator, "one", "topic", instance_id="static").beat()
    other = Consumer(coordinator, "two", "topic", instance_id="static")
    assert refusal(other) is ErrorCode.UNRELEASED_INSTANCE_ID
    other.epoch = 1
    assert refusal(other) is ErrorCode.FENCED_INSTANCE_ID
    assert refusal(other, instance_id="unknown") is ErrorCode.UNKNOWN_MEMBER_ID


# --- another leader ------------------------------------------------------------------------------


def test_a_group_goes_on_under_another_leader() -> None:
    coordinator = coordinating()
    one, two = Consumer(coordinator, "one", "topic"), Consumer(coordinator, "two", "topic")
    one.beat()
    one.is_slow = True
    coordinator.pass_time(1000)
    two.beat()
    one.beat()
    coordinator.pass_time(40_000)
    coordinator.fail_over()
    coordinator.pass_time(SESSION_MS - 1)
    one.beat()
    one.let_go()
    one.beat()
    two.beat()
    assert sorted(one.indexes + two.indexes) == [0, 1, 2, 3]


def test_a_new_leader_starts_the_time_to_give_up_anew() -> None:
    coordinator = coordinating()
    one, two = Consumer(coordinator, "one", "topic"), Consumer(coordinator, "two", "topic")
    one.beat()
    one.is_slow = True
    coordinator.pass_time(1000)
    two.beat()
    one.beat()
    coordinator.pass_time(40_000)
    coordinator.fail_over()
    for _ in range(2):
        coordinator.pass_time(29_999)
        one.beat()
    coordinator.pass_time(3)
    assert refusal(one) is ErrorCode.UNKNOWN_MEMBER_ID


# --- offsets -------------------------------------------------------------------------------------


def commit_code(coordinator: Coordinator, **details: Any) -> ErrorCode:
    offsets = (OffsetToCommit("topic", details.pop("partition", 0), 7),)
    kind = details.pop("kind", CommitOffsets)
    more = {"producer_id": 1, "producer_epoch": 0} if kind is CommitOffsetsInTransaction else {}
    try:
        (result,) = coordinator.do(kind(group_id=GROUP, offsets=offsets, **more, **details))
    except KafkaError as error:
        return error.code
    assert isinstance(result.error, ErrorCode)
    return result.error


def test_members_commit_and_fetch_in_their_epoch() -> None:
    coordinator = coordinating()
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    mine = {"member_id": "one", "generation": one.epoch}
    assert commit_code(coordinator, **mine) is ErrorCode.NONE
    stale = {"member_id": "one", "generation": 9}
    assert commit_code(coordinator, **stale) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit_code(coordinator, member_id="two", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_code(coordinator) is ErrorCode.UNKNOWN_MEMBER_ID
    old = ErrorCode.UNSUPPORTED_VERSION
    assert commit_code(coordinator, **mine, knows_epochs=False) is old
    in_transaction = {"kind": CommitOffsetsInTransaction}
    assert commit_code(coordinator, **stale, **in_transaction) is ErrorCode.ILLEGAL_GENERATION
    assert commit_code(coordinator, **mine, **in_transaction) is ErrorCode.NONE
    (found,) = coordinator.do(
        FetchOffsets(GROUP, (("topic", 0),), member_id="one", member_epoch=one.epoch)
    )
    assert found.offset == 7
    with pytest.raises(KafkaError) as refused:
        coordinator.do(FetchOffsets(GROUP, member_id="one", member_epoch=9))
    assert refused.value.code is ErrorCode.STALE_MEMBER_EPOCH
    with pytest.raises(KafkaError) as refused:
        coordinator.do(FetchOffsets(GROUP, member_id="two", member_epoch=1))
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.do(FetchOffsets(GROUP))[0].offset == 7, "an admin names no member"


def test_a_commit_of_an_epoch_ago_counts_for_what_the_member_has_had_since() -> None:
    coordinator = coordinating()
    one, two = Consumer(coordinator, "one", "topic"), Consumer(coordinator, "two", "topic")
    one.beat()
    old = one.epoch
    settle(coordinator, one, two)
    kept, lost = one.indexes[0], two.indexes[0]
    late = {"member_id": "one", "generation": old}
    assert commit_code(coordinator, partition=kept, **late) is ErrorCode.NONE
    assert commit_code(coordinator, partition=lost, **late) is ErrorCode.STALE_MEMBER_EPOCH
    early = {"member_id": "two", "generation": old}
    assert commit_code(coordinator, partition=lost, **early) is ErrorCode.STALE_MEMBER_EPOCH


def test_an_empty_group_is_an_admins_to_reset() -> None:
    coordinator = coordinating()
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    one.leave()
    assert commit_code(coordinator) is ErrorCode.NONE
    (deleted,) = coordinator.do(DeleteOffsets(GROUP, (("topic", 0),)))
    assert deleted.error is ErrorCode.NONE


def test_offsets_of_topics_that_members_read_stay() -> None:
    coordinator = coordinating(offsets_retention_minutes=1)
    one = Consumer(coordinator, "one", "topic")
    one.beat()
    commit_code(coordinator, member_id="one", generation=one.epoch)
    (deleted,) = coordinator.do(DeleteOffsets(GROUP, (("topic", 0),)))
    assert deleted.error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    for _ in range(70):
        coordinator.pass_time(20_000)
        one.beat()
    assert coordinator.do(FetchOffsets(GROUP))[0].offset == 7
    one.leave()
    coordinator.pass_time(1_300_000)
    assert coordinator.do(ListGroups()) == []
