"""What members of groups ask and are answered, step by step: the same requests for any broker.

`play` runs on a `World`: our handlers in the test, a real Kafka when the transcript is made
(`python tests/unit/doors/kafka_api/group_scenario.py HOST:PORT`; `group.initial.rebalance.delay.ms`
must be 0 there). Member ids are replaced by M1, M2, … in the order in which they are seen.
"""

import contextlib
import socket
import struct
import sys
import threading
import time
from typing import Any, Protocol
from uuid import UUID

from dmq.types import NIL_UUID
from dmq.wire import registry
from dmq.wire.messages import k68_consumer_group_heartbeat as k68
from dmq.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from dmq.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dmq.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from dmq.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from dmq.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dmq.wire.messages.k12_heartbeat import HeartbeatRequest
from dmq.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from dmq.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from dmq.wire.messages.k15_describe_groups import DescribeGroupsRequest
from dmq.wire.messages.k16_list_groups import ListGroupsRequest
from dmq.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from dmq.wire.messages.k42_delete_groups import DeleteGroupsRequest
from dmq.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from dmq.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
PROTOCOLS = (("range", SUBSCRIPTION),)


class Connection(Protocol):
    """One client's connection: a question, and the answer when it is there."""

    def send(self, api_key: int, version: int, request: object) -> None: ...
    def receive(self) -> Any: ...
    def is_waiting(self) -> bool: ...


class World(Protocol):
    """A broker with a topic `t` of four partitions."""

    topic_id: UUID

    def connect(self) -> Connection: ...
    def wait(self, ms: int) -> None: ...


class Player:
    """The questions, in short, and the answers as lines of text."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self.main = world.connect()
        self.first_member = ""

    def name(self, member_id: str | None) -> str | None:
        if not member_id:
            return member_id
        return self.names.setdefault(member_id, f"M{len(self.names) + 1}")

    def show(self, step: str, *answers: object) -> None:
        """A step and what came of it."""
        self.lines.append(f"{step}: " + " | ".join(map(str, answers)))

    def ask(self, key: int, version: int, request: object) -> Any:
        self.main.send(key, version, request)
        return self.main.receive()

    # --- classic ---------------------------------------------------------------------------------

    def join_request(self, group: str, member: str = "", **details: Any) -> JoinGroupRequest:
        protocols = [JoinGroupRequestProtocol(*one) for one in details.pop("protocols", PROTOCOLS)]
        wanted = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 15_000}
        wanted |= {"protocol_type": "consumer"} | details
        return JoinGroupRequest(group, member_id=member, protocols=protocols, **wanted)

    def joined(self, answer: Any) -> tuple[Any, ...]:
        members = [(self.name(one.member_id), one.group_instance_id) for one in answer.members]
        members.sort(key=str)  # In Kafka their order has no meaning.
        return (
            answer.error_code,
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            self.name(answer.leader),
            answer.skip_assignment,
            self.name(answer.member_id),
            members,
        )

    def join(self, group: str, member: str = "", **details: Any) -> tuple[Any, ...]:
        return self.joined(self.ask(11, 9, self.join_request(group, member, **details)))

    def sync_request(
        self, group: str, generation: int, member: str, shares: Any = None, **details: Any
    ) -> SyncGroupRequest:
        wanted = {"protocol_type": "consumer", "protocol_name": "range"} | details
        dealt = [SyncGroupRequestAssignment(*one) for one in (shares or {}).items()]
        return SyncGroupRequest(group, generation, member, assignments=dealt, **wanted)

    @staticmethod
    def synced(answer: Any) -> tuple[Any, ...]:
        return (
            answer.error_code,
            answer.protocol_type,
            answer.protocol_name,
            bytes(answer.assignment),
        )

    def sync(self, *args: Any, **details: Any) -> tuple[Any, ...]:
        return self.synced(self.ask(14, 5, self.sync_request(*args, **details)))

    def beat(self, group: str, generation: int, member: str, instance: str | None = None) -> int:
        request = HeartbeatRequest(group, generation, member, instance)
        return int(self.ask(12, 4, request).error_code)

    def leave(self, group: str, *members: tuple[Any, ...]) -> list[Any]:
        request = LeaveGroupRequest(group, "", [MemberIdentity(*one) for one in members])
        answer = self.ask(13, 5, request)
        return [
            (self.name(one.member_id), one.group_instance_id, one.error_code)
            for one in answer.members
        ]

    def describe(self, group: str, version: int = 5) -> tuple[Any, ...]:
        (found,) = self.ask(15, version, DescribeGroupsRequest([group])).groups
        members = [
            (
                self.name(one.member_id),
                one.group_instance_id,
                one.client_id,
                len(one.member_metadata),
                bytes(one.member_assignment),
            )
            for one in found.members
        ]
        kind = (found.protocol_type, found.protocol_data)
        return (found.error_code, found.group_state, *kind, members)

    def list_groups(self, *filters: list[str]) -> list[tuple[Any, ...]]:
        found = self.ask(16, 5, ListGroupsRequest(*filters)).groups
        return sorted((g.group_id, g.protocol_type, g.group_state, g.group_type) for g in found)

    def delete(self, *groups: str) -> list[int]:
        answer = self.ask(42, 2, DeleteGroupsRequest(list(groups)))
        return [one.error_code for one in answer.results]

    # --- offsets ---------------------------------------------------------------------------------

    def commit(self, group: str, generation: int = -1, member: str = "", **details: Any) -> int:
        version, topic = details.pop("version", 8), details.pop("topic", "t")
        partition = OffsetCommitRequestPartition(
            details.pop("partition", 0), 5, 3, details.pop("metadata", "")
        )
        topic_id = self.world.topic_id if version >= 10 else NIL_UUID
        request = OffsetCommitRequest(
            group,
            generation,
            member,
            topics=[OffsetCommitRequestTopic(topic, topic_id, [partition])],
            **details,
        )
        return int(self.ask(8, version, request).topics[0].partitions[0].error_code)

    def fetch(self, group: str, version: int = 8, **details: Any) -> tuple[int, list[Any]]:
        topic_id = self.world.topic_id if version >= 10 else NIL_UUID
        partitions = details.pop("partitions", [0])
        wanted = [OffsetFetchRequestTopics("t", topic_id, partitions)] if partitions else None
        asked = OffsetFetchRequestGroup(group, topics=wanted, **details)
        (found,) = self.ask(9, version, OffsetFetchRequest(groups=[asked])).groups
        return found.error_code, [
            (
                one.partition_index,
                one.committed_offset,
                one.committed_leader_epoch,
                one.metadata,
                one.error_code,
            )
            for topic in found.topics
            for one in topic.partitions
        ]

    def forget(self, group: str, topic: str = "t", partition: int = 0) -> tuple[int, list[int]]:
        partitions = [OffsetDeleteRequestPartition(partition)]
        request = OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(topic, partitions)])
        answer = self.ask(47, 0, request)
        codes = [one.error_code for found in answer.topics for one in found.partitions]
        return answer.error_code, codes

    # --- the consumer protocol -------------------------------------------------------------------

    def own(self, *indexes: int) -> dict[str, Any]:
        held = [k68.TopicPartitions(self.world.topic_id, list(indexes))] if indexes else []
        return {"topic_partitions": held}

    def modern(self, group: str, member: str, epoch: int, **details: Any) -> tuple[Any, ...]:
        request = k68.ConsumerGroupHeartbeatRequest(group, member, epoch, **details)
        answer = self.ask(68, 1, request)
        share = None
        if answer.assignment is not None:
            share = [sorted(one.partitions) for one in answer.assignment.topic_partitions]
        return (answer.error_code, answer.error_message, answer.member_epoch, share)

    def first(self, group: str, member: str, **details: Any) -> tuple[Any, ...]:
        wanted = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"]} | self.own()
        return self.modern(group, member, 0, **(wanted | details))

    def describe_modern(self, group: str) -> tuple[Any, ...]:
        (found,) = self.ask(69, 1, ConsumerGroupDescribeRequest([group], False)).groups
        members = sorted(
            (
                one.member_id,
                one.instance_id,
                one.member_epoch,
                one.subscribed_topic_names,
                one.subscribed_topic_regex,
                [sorted(share.partitions) for share in one.assignment.topic_partitions],
                [sorted(share.partitions) for share in one.target_assignment.topic_partitions],
                one.member_type,
            )
            for one in found.members
        )
        epochs = (found.group_epoch, found.assignment_epoch)
        return (found.error_code, found.group_state, *epochs, found.assignor_name, members)


def play(world: World) -> list[str]:
    """All steps; their lines."""
    player = Player(world)
    _strangers(player)
    _one_member(player)
    _offsets(player)
    _more_members(player)
    _end_of_a_group(player)
    _modern_requests(player)
    _modern_members(player)
    _modern_static(player)
    _expired(player)
    return player.lines


def _strangers(on: Player) -> None:
    on.show("join, short session", on.join("new", session_timeout_ms=1))
    on.show("join, no protocols", on.join("new", protocols=()))
    on.show("join, no type", on.join("new", protocol_type=""))
    on.show("join, unknown member", on.join("new", "nobody"))
    on.show("join, no group", on.join(""))
    on.show("describe, unknown group", on.describe("nope"), on.describe("nope", 6))
    on.show("heartbeat, unknown", on.beat("nope", 1, "x"), on.beat("", 1, "x"))
    on.show("sync, unknown", on.sync("nope", 1, "x"), on.sync("", 1, "x"))
    on.show("sync, no protocol", on.sync("nope", 1, "x", protocol_type=None))
    on.show("leave, unknown", on.leave("nope", ("x",)))
    on.show("delete, unknown", on.delete("nope", ""))
    on.show("forget, unknown", on.forget("nope"))


def _one_member(on: Player) -> None:
    required = on.ask(11, 9, on.join_request("a"))
    on.show("join, new", on.joined(required))
    one = on.first_member = required.member_id
    on.show("describe, id given", on.describe("a"))
    on.show("join, with id", on.join("a", one))
    on.show("describe, completing", on.describe("a"))
    on.show("commit, completing", on.commit("a", 1, one), on.commit("a", 0, one), on.commit("a"))
    on.show("heartbeat, completing", on.beat("a", 1, one), on.beat("a", 2, one))
    on.show("join again, completing", on.join("a", one))
    on.show("sync, other generation", on.sync("a", 7, one))
    on.show("sync, other protocol", on.sync("a", 1, one, protocol_name="zz"))
    on.show("sync, other type", on.sync("a", 1, one, protocol_type="zz"))
    on.show("sync", on.sync("a", 1, one, {one: b"A"}))
    on.show("sync again", on.sync("a", 1, one, {one: b"B"}))
    on.show("describe, stable", on.describe("a"), on.describe("a", 6))
    on.show("join, other type", on.join("a", protocol_type="connect"))
    on.show("join, nothing in common", on.join("a", protocols=(("zz", b""),)))


def _offsets(on: Player) -> None:
    one = on.first_member
    on.show("commit, member", on.commit("a", 1, one), on.commit("a", 1, one, version=10))
    on.show("commit, nobody", on.commit("a"), on.commit("a", 1, "x"))
    on.show("commit, instance", on.commit("a", 1, one, group_instance_id="zz"))
    on.show("commit, long note", on.commit("a", 1, one, metadata="x" * 4097))
    on.show("commit, no partition", on.commit("a", 1, one, partition=9))
    on.show("commit, no topic", on.commit("a", 1, one, topic="zz"))
    on.show("fetch", on.fetch("a"), on.fetch("a", 10), on.fetch("a", 9, partitions=[0, 3]))
    on.show("fetch, all", on.fetch("a", partitions=None), on.fetch("nope", partitions=None))
    on.show("fetch, unknown group", on.fetch("nope"))
    on.show("fetch, some member", on.fetch("a", 9, member_id="xx", member_epoch=5))
    on.show("delete, members", on.delete("a"))
    on.show("forget", on.forget("a"), on.forget("a", "zz"), on.forget("a", "t", 77))
    on.show("simple", on.commit("s"), on.commit("s", 3, "x"), on.commit("s", 3, "x", version=9))
    on.show("commit, no group", on.commit("n", 3, "x"), on.commit("n", 3, "x", version=9))
    on.show("describe, simple", on.describe("s"), on.fetch("s"))


def _more_members(on: Player) -> None:
    one = on.first_member
    second, third = on.world.connect(), on.world.connect()
    second.send(11, 9, on.join_request("a"))
    two = second.receive().member_id
    second.send(11, 9, on.join_request("a", two))
    on.show("second joins", second.is_waiting(), on.name(two))
    on.show("preparing", on.beat("a", 1, one), on.commit("a", 1, one), on.sync("a", 1, one))
    on.show("describe, preparing", on.describe("a"))
    on.show("first joins again", on.join("a", one))
    on.show("second joined", on.joined(second.receive()))
    second.send(14, 5, on.sync_request("a", 2, two))
    on.show("follower syncs", second.is_waiting())
    third.send(11, 9, on.join_request("a", group_instance_id="st"))
    on.show("static joins", third.is_waiting(), on.synced(second.receive()))
    on.main.send(11, 9, on.join_request("a", one))
    second.send(11, 9, on.join_request("a", two))
    static, first = third.receive(), on.main.receive()
    three = static.member_id
    on.show("third generation", *map(on.joined, (first, second.receive(), static)))
    on.show("static beats", on.beat("a", 3, three, "zz"), on.beat("a", 3, "zz", "st"))
    second.send(14, 5, on.sync_request("a", 3, two))
    third.send(14, 5, on.sync_request("a", 3, three, group_instance_id="st"))
    on.show("leader syncs", on.sync("a", 3, one, {one: b"1", two: b"2", three: b"3"}))
    on.show("others", on.synced(second.receive()), on.synced(third.receive()))
    third.send(11, 9, on.join_request("a", group_instance_id="st"))
    back = third.receive()
    on.show("static comes back", on.joined(back))
    on.show("its old self beats", on.beat("a", 3, three, "st"))
    on.show("its old self syncs", on.sync("a", 3, three, group_instance_id="st"))
    on.show("its old self commits", on.commit("a", 3, three, group_instance_id="st"))
    on.show("its old self joins", on.join("a", three, group_instance_id="st"))
    on.show("its new self syncs", on.sync("a", 3, back.member_id, group_instance_id="st"))
    on.show("follower joins unchanged", on.join("a", two), on.describe("a")[1])
    leaving = ((two,), ("", None), ("", "zz"), ("zz", "st"), ("", "st"), (one,))
    on.show("leave", on.leave("a", *leaving))


def _end_of_a_group(on: Player) -> None:
    one = on.first_member
    on.show("describe, empty", on.describe("a"), on.beat("a", 3, one))
    on.show("commit, empty", on.commit("a", 3, one), on.commit("a"), on.commit("a", -1, "x"))
    on.show("list", [found for found in on.list_groups() if found[0] in ("a", "s")])
    on.show("list, filtered", on.list_groups(["zz"]), on.list_groups([], ["zz"]))
    on.show("delete", on.delete("a"), on.fetch("a"), on.describe("a", 6)[:2])
    short = {"session_timeout_ms": 6000}
    member = on.ask(11, 9, on.join_request("b", **short)).member_id
    on.join("b", member, **short)
    on.sync("b", 1, member, {member: b"x"})
    on.world.wait(7500)
    on.show("session ended", on.beat("b", 1, member), on.describe("b"))


def _modern_requests(on: Player) -> None:
    on.show("modern, no group", on.first("", "m"))
    on.show("modern, no member", on.first("k", ""))
    on.show("modern, unknown group", on.modern("k", "m", 1), on.modern("k", "m", -1))
    on.show("modern, away without instance", on.modern("k", "m", -2))
    on.show("modern, epoch", on.modern("k", "m", -3))
    on.show("modern, no timeout", on.first("k", "m", rebalance_timeout_ms=-1))
    on.show("modern, no partitions", on.first("k", "m", topic_partitions=None))
    on.show("modern, no topics", on.first("k", "m", subscribed_topic_names=None))
    on.show("modern, no such assignor", on.first("k", "m", server_assignor="zz")[0])
    on.show("modern, empty instance", on.first("k", "m", instance_id=""))
    on.show("modern, empty rack", on.first("k", "m", rack_id=""))
    bad = {"subscribed_topic_names": None, "subscribed_topic_regex": "("}
    on.show("modern, bad pattern", on.first("k", "m", **bad)[0])
    on.show("modern, wants nothing", on.first("e", "m", subscribed_topic_names=[]))


def _modern_members(on: Player) -> None:
    everything = on.own(0, 1, 2, 3)
    again = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"]} | everything
    on.show("joins", on.first("k", "A"))
    on.show("beats", on.modern("k", "A", 2, **everything), on.modern("k", "A", 2))
    on.show("beats in full", on.modern("k", "A", 2, **again))
    on.show("other epochs", on.modern("k", "A", 1), on.modern("k", "A", 3))
    on.show("unknown", on.modern("k", "Z", 1))
    on.show("begins again", on.first("k", "A"))
    nine = {"version": 9}
    on.show("commits", on.commit("k", 2, "A", **nine), on.commit("k", 2, "A"))
    on.show("stale", on.commit("k", 1, "A", **nine), on.commit("k", 3, "A", **nine))
    on.show("nobody's", on.commit("k", 2, "Z", **nine), on.commit("k", **nine))
    on.show("fetches", on.fetch("k", 9, member_id="A", member_epoch=2))
    on.show("fetches, stale", on.fetch("k", 9, member_id="A", member_epoch=1))
    on.show("fetches, unknown", on.fetch("k", 9, member_id="Z", member_epoch=1), on.fetch("k", 9))
    on.show("described as classic", on.describe("k"), on.describe("k", 6)[:2])
    on.show("described", on.describe_modern("k"), on.describe_modern("s")[0])
    on.world.wait(1500)
    on.show("second joins", on.first("k", "B"))
    on.show("first is told", on.modern("k", "A", 2, **everything))
    on.show("first is slow", on.modern("k", "A", 2, **everything), on.describe_modern("k"))
    on.show("second waits", on.modern("k", "B", 3, **on.own()))
    on.show("first gave up", on.modern("k", "A", 2, **on.own(0, 1)))
    on.show("second gets", on.modern("k", "B", 3, **on.own()), on.describe_modern("k")[:4])
    on.show("late commits", *(on.commit("k", 2, "A", partition=n, **nine) for n in (0, 3)))
    on.show("one behind", on.modern("k", "A", 2, **on.own(0, 1)), on.modern("k", "A", 2)[0])
    on.show("behind with more", on.modern("k", "A", 2, **everything)[0])
    on.show("leaves", on.modern("k", "B", -1), on.modern("k", "B", -1))
    on.world.wait(1500)
    on.show("the rest", on.modern("k", "A", 3, **on.own(0, 1)))
    on.show("delete, members", on.delete("k"), on.forget("k"))
    on.show("delete", on.modern("k", "A", -1)[0], on.delete("k"))


def _modern_static(on: Player) -> None:
    static = {"instance_id": "i"}
    on.show("static joins", on.first("q", "S1", **static))
    on.show("another", on.first("q", "S2", **static), on.modern("q", "S2", 1, **static))
    on.show("no such instance", on.modern("q", "S1", 2, instance_id="zz"))
    on.show("goes away", on.modern("q", "S1", -2, **static), on.describe_modern("q")[:4])
    on.show("comes back", on.first("q", "S2", **static), on.modern("q", "S1", 2, **static))
    on.show("classic joins", on.join("q")[0], on.join("q", protocol_type="connect")[0])


def _expired(on: Player) -> None:
    """Members whose session ended come back under the id that they had: in an empty group, in one that
    is being rebalanced because of it, in a stable one; and one that never used the id it was given."""
    short = {"session_timeout_ms": 6000}
    unused = on.ask(11, 9, on.join_request("y", **short)).member_id
    stays = on.ask(11, 9, on.join_request("x")).member_id
    second = on.world.connect()
    on.join("x", stays, session_timeout_ms=30_000)
    second.send(11, 9, on.join_request("x", **short))
    gone = second.receive().member_id
    second.send(11, 9, on.join_request("x", gone, **short))
    on.show("second joins", second.is_waiting())
    both = on.join("x", stays, session_timeout_ms=30_000), on.joined(second.receive())
    on.show("both", *both)
    on.show("sync", on.sync("x", 2, stays, {stays: b"1", gone: b"2"}), on.sync("x", 2, gone))
    on.world.wait(7500)
    on.show("one is gone", on.beat("x", 2, stays), on.describe("x")[:2])
    on.show("it joins, preparing", on.join("x", gone, **short))
    on.show("it never came", on.join("y", unused, **short))
    on.show("the other goes on", on.join("x", stays, session_timeout_ms=30_000))
    on.show("it joins, completing", on.join("x", gone, **short))
    on.show("sync", on.sync("x", 3, stays, {stays: b"12"}))
    on.show("it joins, stable", on.join("x", gone, **short))
    on.show("it joins, differently", on.join("x", gone, protocols=(("zz", b""),)))
    on.show("it goes on", on.beat("x", 2, gone), on.sync("x", 2, gone), on.commit("x", 2, gone))
    on.show("it leaves", on.leave("x", (gone,)))
    on.show("all leave", on.leave("x", (stays,)), on.describe("x")[:2])
    on.show("it joins, empty", on.join("x", gone, **short), on.describe("x")[:2])
    on.show("differently, empty", on.join("x", gone, protocols=(("zz", b""),), **short))
    on.show("delete", on.delete("x"), on.join("x", gone, **short))


# --- a real broker -------------------------------------------------------------------------------


class SocketConnection:
    """A connection to a broker."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=30)
        self._asked = (0, 0)

    def send(self, api_key: int, version: int, request: object) -> None:
        header = registry.encode_request_header(api_key, version, 1, "client")
        body = header + b"".join(registry.api(api_key).encode_request(version, request))
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        self._asked = (api_key, version)

    def receive(self) -> Any:
        (size,) = struct.unpack(">i", self._read(4))
        data, (api_key, version) = self._read(size), self._asked
        _, at = registry.decode_response_header(api_key, version, data)
        return registry.api(api_key).decode_response(version, data, at)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker hung up")
            data += piece
        return data

    def is_waiting(self) -> bool:
        self._socket.settimeout(1)
        with contextlib.suppress(TimeoutError):
            self._socket.recv(1, socket.MSG_PEEK)
            return False
        self._socket.settimeout(30)
        return True


class Broker:
    """A broker at an address, once its coordinators answer."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        connection = self.connect()
        topics = [CreatableTopic("t", 4, 1)]
        connection.send(19, 7, CreateTopicsRequest(topics, 9000))
        connection.receive()
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["a"])
        groups = DescribeGroupsRequest(
            ["a", "b", "e", "k", "n", "new", "nope", "q", "s", "x", "y", ""]
        )
        for key, version, request in ((10, 4, asked), (15, 5, groups)):
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                connection.send(key, version, request)
                answer = connection.receive()
                found = answer.coordinators if key == 10 else answer.groups
                if not any(one.error_code in (14, 15, 16) for one in found):
                    break
        connection.send(3, 12, MetadataRequest([MetadataRequestTopic(name="t")]))
        self.topic_id = connection.receive().topics[0].topic_id

    def connect(self) -> SocketConnection:
        return SocketConnection(*self._address)

    def wait(self, ms: int) -> None:
        threading.Event().wait(ms / 1000)


if __name__ == "__main__":
    print("\n".join(play(Broker(sys.argv[1]))))
