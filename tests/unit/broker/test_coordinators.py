"""The host of a group machine: what is appended when, and when answers leave."""

import pytest
from fakes.coordinators import GroupService
from unit.machines.groups.coordinator import CLIENT, load, subscription

from dmq.broker.answer import Answer
from dmq.broker.coordinators import partition_of
from dmq.errors import DmqError, ErrorCode, KafkaError, StorageError
from dmq.machines.groups.commands import (
    Heartbeat,
    Joined,
    JoinGroup,
    ListGroups,
    Protocol,
    Synced,
    SyncGroup,
)
from dmq.machines.groups.offset_commands import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    FetchOffsets,
    OffsetToCommit,
)

COMMIT = CommitOffsets("group", (OffsetToCommit("topic", 0, 7),))
DELAY_MS = 3000


def join(service: GroupService, member_id: str = "") -> Answer[Joined]:
    protocols = (Protocol("range", subscription("topic")),)
    command = JoinGroup("group", member_id, None, CLIENT, 10_000, 60_000, "consumer", protocols)
    return service.submit("group", command)


def joined(service: GroupService) -> Joined:
    answer = join(service, join(service).get().member_id)
    service.pass_time(DELAY_MS)
    return answer.get()


def code_of(answer: Answer[object]) -> ErrorCode:
    with pytest.raises(DmqError) as error:
        answer.get()
    return error.value.code


def test_an_answer_waits_until_its_records_are_committed() -> None:
    service = GroupService()
    service.log.is_held = True
    answer = service.submit("group", COMMIT)
    assert len(service.log.entries) == 1
    assert not answer.is_done
    service.log.commit()
    assert answer.get()[0].error is ErrorCode.NONE


def test_a_read_waits_for_what_it_saw() -> None:
    service = GroupService()
    service.log.is_held = True
    service.submit("group", COMMIT)
    read = service.submit("group", FetchOffsets("group"))
    refusal = service.submit("group", Heartbeat("other", 1, "nobody"))
    assert not read.is_done
    assert not refusal.is_done
    service.log.commit()
    assert read.get()[0].offset == 7
    assert code_of(refusal) is ErrorCode.UNKNOWN_MEMBER_ID


def test_what_is_never_committed_is_an_error() -> None:
    service = GroupService()
    service.log.is_held = True
    answer = service.submit("group", COMMIT)
    service.log.commit(ErrorCode.NOT_COORDINATOR)
    assert code_of(answer) is ErrorCode.NOT_COORDINATOR


def test_a_parked_answer_waits_for_the_group_and_then_for_the_log() -> None:
    service = GroupService()
    answer = join(service, join(service).get().member_id)
    service.log.is_held = True
    service.pass_time(DELAY_MS)
    assert not answer.is_done
    service.log.commit()
    assert answer.get().generation == 1


def test_whoever_waits_is_told_when_the_leadership_ends() -> None:
    service = GroupService()
    answer = join(service, join(service).get().member_id)
    service.host.resign()
    assert answer.get().error is ErrorCode.NOT_COORDINATOR


def test_an_answer_that_waits_for_the_log_is_told_by_the_log() -> None:
    service = GroupService()
    answer = join(service, join(service).get().member_id)
    service.log.is_held = True
    service.pass_time(DELAY_MS)
    service.host.resign()
    assert not answer.is_done
    service.log.commit(ErrorCode.NOT_COORDINATOR)
    assert code_of(answer) is ErrorCode.NOT_COORDINATOR


def test_who_lost_the_leadership_and_does_not_know_it_yet_refuses() -> None:
    service = GroupService()
    service.log.refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert code_of(service.submit("group", COMMIT)) is ErrorCode.NOT_COORDINATOR
    assert code_of(join(service)) is ErrorCode.NOT_COORDINATOR


def test_records_of_a_transaction_are_its_producers() -> None:
    service = GroupService()
    offsets = (OffsetToCommit("topic", 0, 9),)
    service.submit("group", CommitOffsetsInTransaction("group", 5, 0, offsets)).get()
    assert [producer for _, producer in service.log.entries] == [5]
    service.end_transaction(5, commit=True)
    assert service.submit("group", FetchOffsets("group")).get()[0].offset == 9


def test_a_disk_that_refuses_takes_nothing_and_the_group_goes_on_as_the_log_says() -> None:
    service = GroupService()
    member = joined(service)
    sync = SyncGroup("group", 1, member.member_id, assignments=((member.member_id, b"all"),))
    service.submit("group", sync).get()
    waiting = join(service, member.member_id)
    assert waiting.get().generation == 2
    service.log.refusal = StorageError("the disk is full")
    entries = list(service.log.entries)
    refused = service.submit("group", SyncGroup("group", 2, member.member_id))
    with pytest.raises(StorageError):
        refused.get()
    assert service.log.entries == entries
    service.log.refusal = None
    again = service.submit(
        "group", SyncGroup("group", 2, member.member_id, assignments=((member.member_id, b"x"),))
    )
    assert again.get() == Synced(ErrorCode.NONE, "consumer", "range", b"x")
    replica = load(service.new_machine(), service.log.entries)
    assert replica.state.classic == service.host.machine.state.classic


def test_a_refused_timer_fails_those_who_waited_for_it() -> None:
    service = GroupService()
    answer = join(service, join(service).get().member_id)
    service.log.refusal = StorageError("the disk is full")
    service.pass_time(DELAY_MS)
    with pytest.raises(StorageError):
        answer.get()
    service.log.refusal = None
    assert [group.state for group in service.submit("", ListGroups()).get()] == ["Empty"]


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [("", 0), ("a", 47), ("my-group", 12), ("console-consumer-12345", 6), ("grüppe-🙂", 48)],
)
def test_groups_are_where_kafka_looks_for_them(group_id: str, partition: int) -> None:
    assert partition_of(group_id, 50) == partition


def test_the_number_without_an_absolute_value_is_none() -> None:
    assert partition_of("polygenelubricants", 50) == 0
