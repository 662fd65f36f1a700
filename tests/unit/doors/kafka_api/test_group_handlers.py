"""The APIs of groups and offsets, every version over the real codecs, on a real group machine."""

from types import SimpleNamespace
from typing import Any

import pytest
from fakes.calls import FakeCall
from fakes.coordinators import GroupService
from unit.machines.groups.coordinator import subscription

from dmq.doors.kafka_api import (
    k08_offset_commit,
    k09_offset_fetch,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k42_delete_groups,
    k47_offset_delete,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
)
from dmq.errors import ErrorCode, KafkaError
from dmq.types import NIL_UUID
from dmq.wire import registry
from dmq.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dmq.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from dmq.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dmq.wire.messages.k12_heartbeat import HeartbeatRequest
from dmq.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from dmq.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from dmq.wire.messages.k15_describe_groups import DescribeGroupsRequest
from dmq.wire.messages.k16_list_groups import ListGroupsRequest
from dmq.wire.messages.k42_delete_groups import DeleteGroupsRequest
from dmq.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from dmq.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from dmq.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest

HANDLERS: dict[int, Any] = {
    8: k08_offset_commit,
    9: k09_offset_fetch,
    11: k11_join_group,
    12: k12_heartbeat,
    13: k13_leave_group,
    14: k14_sync_group,
    15: k15_describe_groups,
    16: k16_list_groups,
    42: k42_delete_groups,
    47: k47_offset_delete,
    68: k68_consumer_group_heartbeat,
    69: k69_consumer_group_describe,
}


def versions(api_key: int) -> Any:
    api = registry.api(api_key)
    return pytest.mark.parametrize("version", range(api.min_version, api.max_version + 1))


def ask(service: GroupService, api_key: int, version: int, request: object) -> FakeCall:
    """A call after the handler got the request as it arrives in this version."""
    api = registry.api(api_key)
    data = b"".join(api.encode_request(version, request))
    call: Any = FakeCall(api_key, version)
    call.client_id = "client"
    call.connection = SimpleNamespace(peer="10.1.2.3:5000")
    HANDLERS[api_key].handle(service, call, api.decode_request(version, data))
    return call  # type: ignore[no-any-return]


def answer(service: GroupService, api_key: int, version: int, request: object) -> Any:
    (reply,) = ask(service, api_key, version, request).replies
    return reply


def serving(**config: Any) -> GroupService:
    service = GroupService(**config)
    service.create("topic", 3)
    return service


def failing(code: ErrorCode) -> GroupService:
    service = serving()
    service.failure = KafkaError(code)
    return service


def join(service: GroupService, version: int = 9, **details: Any) -> Any:
    """The answer to a JoinGroup, and to the second one where an id is given first."""
    protocols = [JoinGroupRequestProtocol("range", subscription("topic"))]
    wanted: dict[str, Any] = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000}
    wanted |= {"protocol_type": "consumer", "protocols": protocols} | details
    call = ask(service, 11, version, JoinGroupRequest(group_id="group", **wanted))
    if call.replies and call.replies[0].error_code == ErrorCode.MEMBER_ID_REQUIRED:
        assert version >= 4
        return join(service, version, **(details | {"member_id": call.replies[0].member_id}))
    service.pass_time(6000)
    (reply,) = call.replies
    return reply


def sync(service: GroupService, member: Any, version: int = 5, **details: Any) -> Any:
    request = SyncGroupRequest(
        group_id="group",
        generation_id=member.generation_id,
        member_id=member.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member.member_id, b"all")],
        **details,
    )
    return answer(service, 14, version, request)


def stable(service: GroupService) -> Any:
    member = join(service)
    assert sync(service, member).error_code == ErrorCode.NONE
    return member


# --- members -------------------------------------------------------------------------------------


@versions(11)
def test_join_group(version: int) -> None:
    member = join(serving(), version)
    assert (member.error_code, member.generation_id) == (ErrorCode.NONE, 1)
    assert member.member_id == member.leader
    assert member.member_id.startswith("client-")
    assert (member.protocol_name, member.skip_assignment) == ("range", False)
    assert [one.metadata for one in member.members] == [subscription("topic")]
    assert member.protocol_type == ("consumer" if version >= 7 else None)


@versions(11)
def test_join_group_refused(version: int) -> None:
    refused = join(serving(), version, session_timeout_ms=1)
    assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert refused.protocol_name == (None if version >= 7 else "")
    loading = failing(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    refused = join(loading, version, member_id="me")
    assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert refused.member_id == "me"


def test_the_oldest_join_has_one_timeout_for_all() -> None:
    service = serving()
    join(service, 0)
    (member,) = service.host.machine.state.classic["group"].members
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 10_000)
    assert member.client_host == "/10.1.2.3"


@pytest.mark.parametrize("version", [8, 9])
def test_a_static_leader_that_comes_back(version: int) -> None:
    service = serving()
    first = join(service, version, group_instance_id="static")
    sync(service, first, group_instance_id="static")
    again = join(service, version, group_instance_id="static")
    assert again.generation_id == first.generation_id
    assert again.skip_assignment == (version >= 9)
    assert again.leader == (again.member_id if version >= 9 else first.member_id)


@versions(14)
def test_sync_group(version: int) -> None:
    service = serving()
    member = join(service)
    synced = sync(service, member, version)
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"all")
    has_protocol = version >= 5
    assert synced.protocol_name == ("range" if has_protocol else None)
    member.generation_id = 7
    assert sync(service, member, version).error_code == ErrorCode.ILLEGAL_GENERATION
    refused = sync(failing(ErrorCode.NOT_COORDINATOR), member, version)
    assert refused.error_code == ErrorCode.NOT_COORDINATOR


def test_a_sync_must_say_its_protocol() -> None:
    request = SyncGroupRequest(group_id="group", generation_id=1, member_id="me")
    refused = answer(serving(), 14, 5, request)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = answer(serving(), 14, 4, request)
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@versions(12)
def test_heartbeat(version: int) -> None:
    service = serving()
    member = stable(service)
    request = HeartbeatRequest("group", 1, member.member_id)
    assert answer(service, 12, version, request).error_code == ErrorCode.NONE
    request = HeartbeatRequest("group", 2, member.member_id)
    assert answer(service, 12, version, request).error_code == ErrorCode.ILLEGAL_GENERATION
    loading = failing(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert answer(loading, 12, version, request).error_code == ErrorCode.NONE
    moved = failing(ErrorCode.NOT_COORDINATOR)
    assert answer(moved, 12, version, request).error_code == ErrorCode.NOT_COORDINATOR


@versions(13)
def test_leave_group(version: int) -> None:
    service = serving()
    member = stable(service)
    identities = [MemberIdentity(member.member_id), MemberIdentity("stranger")]
    request = LeaveGroupRequest("group", member.member_id, identities)
    left = answer(service, 13, version, request)
    assert left.error_code == ErrorCode.NONE
    if version >= 3:
        codes = [one.error_code for one in left.members]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    again = answer(service, 13, version, request)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert unknown in (again.error_code, *(one.error_code for one in again.members))
    refused = answer(failing(ErrorCode.NOT_COORDINATOR), 13, version, request)
    assert refused.error_code == ErrorCode.NOT_COORDINATOR


# --- admins --------------------------------------------------------------------------------------


@versions(15)
def test_describe_groups(version: int) -> None:
    service = serving()
    member = stable(service)
    request = DescribeGroupsRequest(["group", "nobody"], True)
    described, nobody = answer(service, 15, version, request).groups
    assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Stable")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    (shown,) = described.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (
        member.member_id,
        "client",
        "/10.1.2.3",
    )
    assert (shown.member_metadata, shown.member_assignment) == (subscription("topic"), b"all")
    assert (described.authorized_operations > 0) == (version >= 3)
    assert nobody.group_state == "Dead"
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert nobody.error_code == expected
    (moved,) = answer(
        failing(ErrorCode.NOT_COORDINATOR), 15, version, DescribeGroupsRequest(["group"])
    ).groups
    assert moved.error_code == ErrorCode.NOT_COORDINATOR


@versions(16)
def test_list_groups(version: int) -> None:
    service = serving()
    stable(service)
    listed = answer(service, 16, version, ListGroupsRequest())
    (group,) = listed.groups
    assert (group.group_id, group.protocol_type) == ("group", "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")
    if version >= 4:
        assert not answer(service, 16, version, ListGroupsRequest(["Empty"])).groups
    if version >= 5:
        assert not answer(service, 16, version, ListGroupsRequest([], ["consumer"])).groups
    loading = failing(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    refused = answer(loading, 16, version, ListGroupsRequest())
    assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@versions(42)
def test_delete_groups(version: int) -> None:
    service = serving()
    stable(service)
    commit(service, 8, group_id="simple")
    request = DeleteGroupsRequest(["group", "simple", "nobody"])
    results = answer(service, 42, version, request).results
    assert {one.group_id: one.error_code for one in results} == {
        "group": ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }


# --- offsets -------------------------------------------------------------------------------------


def commit(service: GroupService, version: int, *, group_id: str = "group", **more: Any) -> Any:
    known = service.cluster.topics["topic"]
    partitions = [OffsetCommitRequestPartition(index, 40 + index, 3, "note") for index in (0, 1, 9)]
    unknown = [OffsetCommitRequestPartition(0, 1, -1, None)]
    topics = [
        OffsetCommitRequestTopic(known.name, known.topic_id, partitions),
        OffsetCommitRequestTopic("unknown", NIL_UUID, unknown),
    ]
    return answer(service, 8, version, OffsetCommitRequest(group_id, topics=topics, **more))


@versions(8)
def test_offset_commit(version: int) -> None:
    service = serving()
    topic, unknown = commit(service, version).topics
    known = service.cluster.topics["topic"]
    named = (topic.name, topic.topic_id)
    assert named == (("", known.topic_id) if version >= 10 else ("topic", NIL_UUID))
    no_partition = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [one.error_code for one in topic.partitions] == [0, 0, no_partition]
    no_topic = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else no_partition
    assert [one.error_code for one in unknown.partitions] == [no_topic]
    (first, _) = service.host.machine.state.offsets.of_group("group")
    assert (first[1].offset, first[1].topic_id, first[1].metadata) == (40, known.topic_id, "note")
    assert first[1].leader_epoch == (3 if version >= 6 else -1)


@versions(8)
def test_offset_commit_refused(version: int) -> None:
    stranger = {"member_id": "me", "generation_id_or_member_epoch": 4}
    topic, _ = commit(serving(), version, **stranger).topics
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert [one.error_code for one in topic.partitions[:2]] == [code, code]
    topic, _ = commit(failing(ErrorCode.NOT_COORDINATOR), version).topics
    assert topic.partitions[0].error_code == ErrorCode.NOT_COORDINATOR


def test_a_commit_of_nothing_still_proves_who_asks() -> None:
    service = serving()
    request = OffsetCommitRequest("group", topics=[])
    assert answer(service, 8, 9, request).topics == []


def test_only_older_clients_say_how_long_an_offset_lasts() -> None:
    service = serving()
    commit(service, 4, retention_time_ms=5000)
    commit(service, 5, group_id="other", retention_time_ms=5000)
    offsets = service.host.machine.state.offsets
    assert [value.expire_ms is None for _, value in offsets.of_group("group")] == [False] * 2
    assert [value.expire_ms is None for _, value in offsets.of_group("other")] == [True] * 2


def fetch(service: GroupService, version: int, *, everything: bool = False) -> Any:
    """The topics of one group's answer, as version 8 tells them."""
    known = service.cluster.topics["topic"]
    if version < 8:
        topics = None if everything else [OffsetFetchRequestTopic("topic", [0, 2])]
        return answer(service, 9, version, OffsetFetchRequest("group", topics))
    wanted = None if everything else [OffsetFetchRequestTopics("topic", known.topic_id, [0, 2])]
    group = OffsetFetchRequestGroup("group", topics=wanted)
    (found,) = answer(service, 9, version, OffsetFetchRequest(groups=[group])).groups
    return found


@versions(9)
def test_offset_fetch(version: int) -> None:
    service = serving()
    commit(service, 9)
    found = fetch(service, version)
    assert found.error_code == ErrorCode.NONE
    (topic,) = found.topics
    assert [(one.committed_offset, one.metadata, one.error_code) for one in topic.partitions] == [
        (40, "note", ErrorCode.NONE),
        (-1, "", ErrorCode.NONE),
    ]
    assert topic.partitions[0].committed_leader_epoch == (3 if version >= 5 else -1)
    if version >= 10:
        assert topic.topic_id == service.cluster.topics["topic"].topic_id


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_fetch_of_all(version: int) -> None:
    service = serving()
    assert fetch(service, version, everything=True).topics == []
    commit(service, 9)
    (topic,) = fetch(service, version, everything=True).topics
    assert [one.committed_offset for one in topic.partitions] == [40, 41]


@versions(9)
def test_offset_fetch_refused(version: int) -> None:
    found = fetch(failing(ErrorCode.NOT_COORDINATOR), version)
    if version >= 2:
        assert found.error_code == ErrorCode.NOT_COORDINATOR
    else:
        codes = {one.error_code for one in found.topics[0].partitions}
        assert codes == {ErrorCode.NOT_COORDINATOR}


def test_offset_fetch_of_several_groups_and_of_an_unknown_topic_id() -> None:
    service = serving()
    commit(service, 9)
    unknown = [OffsetFetchRequestTopics("", service.topics.uuid(), [4])]
    groups = [OffsetFetchRequestGroup("group", topics=unknown), OffsetFetchRequestGroup("other")]
    groups[1].topics = None
    one, two = answer(service, 9, 10, OffsetFetchRequest(groups=groups)).groups
    (topic,) = one.topics
    assert topic.topic_id == unknown[0].topic_id
    (partition,) = topic.partitions
    assert (partition.partition_index, partition.error_code) == (4, ErrorCode.UNKNOWN_TOPIC_ID)
    assert (two.group_id, two.error_code, two.topics) == ("other", ErrorCode.NONE, [])


def test_offset_delete() -> None:
    service = serving()
    service.create("other", 1)
    commit(service, 9)
    stable(service)
    partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(77)]
    topics = [OffsetDeleteRequestTopic(name, partitions) for name in ("topic", "other", "no")]
    answered = answer(service, 47, 0, OffsetDeleteRequest("group", topics))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {
        topic.name: [one.error_code for one in topic.partitions] for topic in answered.topics
    } == {
        "topic": [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, unknown],
        "other": [ErrorCode.NONE, unknown],
        "no": [unknown, unknown],
    }
    nobody = answer(service, 47, 0, OffsetDeleteRequest("nobody", topics))
    assert (nobody.error_code, nobody.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    nameless = answer(service, 47, 0, OffsetDeleteRequest("", topics))
    assert (nameless.error_code, nameless.topics) == (ErrorCode.INVALID_GROUP_ID, [])


# --- the consumer protocol -----------------------------------------------------------------------


def beat(service: GroupService, version: int, **details: Any) -> Any:
    wanted: dict[str, Any] = {"group_id": "group", "member_id": "me", "member_epoch": 0}
    wanted |= {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
    wanted |= {"subscribed_topic_names": ["topic"]} | details
    return answer(service, 68, version, ConsumerGroupHeartbeatRequest(**wanted))


@versions(68)
def test_consumer_group_heartbeat(version: int) -> None:
    service = serving()
    topic_id = service.cluster.topics["topic"].topic_id
    joined = beat(service, version, member_id="" if version == 0 else "me")
    assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 2)
    assert joined.heartbeat_interval_ms == 5000
    everything = [TopicPartitions(topic_id, [0, 1, 2])]
    assert joined.assignment.topic_partitions == everything
    mine = {"member_id": joined.member_id, "member_epoch": 2, "topic_partitions": everything}
    again = beat(service, version, **mine, rebalance_timeout_ms=-1)
    assert (again.error_code, again.assignment) == (ErrorCode.NONE, None)
    fenced = beat(service, version, **(mine | {"member_epoch": 9}))
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch (9)" in fenced.error_message
    left = beat(service, version, member_id=joined.member_id, member_epoch=-1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)


def test_patterns_and_own_ids_came_with_version_1() -> None:
    service = serving()
    refused = beat(service, 1, member_id="")
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": "top.*"}
    assert beat(service, 1, **pattern).assignment.topic_partitions != []
    bad = {"subscribed_topic_names": None, "subscribed_topic_regex": "("}
    assert beat(service, 1, **bad).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_broker_may_not_serve_the_consumer_protocol() -> None:
    service = serving(group_coordinator_rebalance_protocols=("classic",))
    assert beat(service, 1).error_code == ErrorCode.UNSUPPORTED_VERSION


@versions(69)
def test_consumer_group_describe(version: int) -> None:
    service = serving()
    beat(service, 1, rack_id="rack")
    request = ConsumerGroupDescribeRequest(["group", "nobody", ""], True)
    described, nobody, nameless = answer(service, 69, version, request).groups
    assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Stable")
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    assert (described.assignor_name, described.authorized_operations > 0) == ("uniform", True)
    (member,) = described.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("me", "rack", 2)
    assert (member.client_host, member.subscribed_topic_names) == ("/10.1.2.3", ["topic"])
    (share,) = member.assignment.topic_partitions
    assert (share.topic_name, share.partitions) == ("topic", [0, 1, 2])
    assert member.target_assignment == member.assignment
    assert member.member_type == (1 if version >= 1 else -1)
    assert (nobody.error_code, nobody.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, "nobody")
    assert (nameless.error_code, nameless.group_id) == (ErrorCode.INVALID_GROUP_ID, "")


def test_each_kind_of_group_is_described_by_its_own_api() -> None:
    service = serving()
    stable(service)
    (classic,) = answer(service, 69, 1, ConsumerGroupDescribeRequest(["group"])).groups
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    service = serving()
    beat(service, 1)
    (consumer,) = answer(service, 15, 6, DescribeGroupsRequest(["group"])).groups
    assert consumer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (dead,) = answer(service, 15, 5, DescribeGroupsRequest(["group"])).groups
    assert (dead.error_code, dead.group_state) == (ErrorCode.NONE, "Dead")


def test_offsets_of_the_consumer_protocol_need_version_9() -> None:
    service = serving()
    beat(service, 1)
    mine = {"member_id": "me", "generation_id_or_member_epoch": 2}
    topic, _ = commit(service, 9, **mine).topics
    assert topic.partitions[0].error_code == ErrorCode.NONE
    topic, _ = commit(service, 8, **mine).topics
    assert topic.partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    topic, _ = commit(service, 10, **(mine | {"generation_id_or_member_epoch": 7})).topics
    assert topic.partitions[0].error_code == ErrorCode.STALE_MEMBER_EPOCH
