"""Members of groups over bare connections, thousands in one process: what bench.groups measures with.

They do what a client library does and nothing else: join, sync, heartbeat, take their share, leave. So
the figures are the coordinator's, not a library's. Both protocols; encoded by `dmq.wire`.
"""

import asyncio
import struct
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID, uuid4

from dmq.wire import registry
from dmq.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from dmq.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dmq.wire.messages.k12_heartbeat import HeartbeatRequest
from dmq.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from dmq.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from dmq.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

VERSIONS = {3: 9, 8: 8, 9: 8, 10: 4, 11: 9, 12: 4, 13: 5, 14: 5, 68: 1}
MEMBER_ID_REQUIRED = 79
REBALANCE_IN_PROGRESS = 27
Address = tuple[str, int]


class Wire:
    """One connection; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._lock = asyncio.Lock()

    @classmethod
    async def open(cls, address: Address) -> "Wire":
        return cls(*await asyncio.open_connection(*address))

    async def ask(self, key: int, request: Any) -> Any:
        """Raises OSError or IncompleteReadError when the broker is gone."""
        version, api = VERSIONS[key], registry.api(key)
        header = registry.encode_request_header(key, version, 1, "bench")
        body = b"".join(cast(list[bytes], api.encode_request(version, request)))
        async with self._lock:
            self._writer.write(struct.pack(">i", len(header) + len(body)) + header + body)
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            answer = await self._reader.readexactly(size)
        _, start = registry.decode_response_header(key, version, answer)
        return api.decode_response(version, answer, start)

    def close(self) -> None:
        self._writer.close()


async def coordinators(wire: Wire, groups: list[str]) -> dict[str, Address]:
    """Where the groups are coordinated; those without a coordinator now are left out."""
    answer = await wire.ask(10, FindCoordinatorRequest(key="", key_type=0, coordinator_keys=groups))
    return {
        each.key: (each.host, each.port) for each in answer.coordinators if each.error_code == 0
    }


@dataclass
class Member:
    """What all members have; `share` is what it owns now."""

    group: str
    topic: str
    partitions: int
    wire: Wire
    session_ms: int = 45_000
    heartbeat_s: float = 3.0
    name: str = ""
    epoch: int = 0
    share: frozenset[int] = frozenset()
    is_settled: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, share: frozenset[int]) -> None:
        self.share, self.is_settled = share, True
        self.changed.set()

    async def run(self) -> None:
        """Until it is cancelled, which is how it dies without a word."""
        raise NotImplementedError

    async def leave(self) -> None:
        raise NotImplementedError


class ClassicMember(Member):
    """Join and sync in rounds; whoever leads assigns."""

    async def run(self) -> None:
        while True:
            await self._join()
            await self._stay()

    async def _join(self) -> None:
        while True:
            joined = await self.wire.ask(11, self._joining())
            self.name = joined.member_id or self.name
            if joined.error_code == MEMBER_ID_REQUIRED:
                continue
            assert joined.error_code in (0, REBALANCE_IN_PROGRESS), joined.error_code
            if joined.error_code:
                continue
            self.epoch = joined.generation_id
            is_leader = joined.leader == self.name
            members = sorted(each.member_id for each in joined.members)
            synced = await self.wire.ask(14, self._syncing(members if is_leader else []))
            if synced.error_code == 0:
                self.take(_decoded(synced.assignment))
                return
            assert synced.error_code == REBALANCE_IN_PROGRESS, synced.error_code

    async def _stay(self) -> None:
        request = HeartbeatRequest(self.group, self.epoch, self.name)
        while True:
            await asyncio.sleep(self.heartbeat_s)
            answer = await self.wire.ask(12, request)
            if answer.error_code == REBALANCE_IN_PROGRESS:
                self.is_settled = False
                return
            assert answer.error_code == 0, answer.error_code

    async def leave(self) -> None:
        request = LeaveGroupRequest(self.group, "", [MemberIdentity(self.name)])
        assert (await self.wire.ask(13, request)).error_code == 0

    def _joining(self) -> JoinGroupRequest:
        subscription = struct.pack(">hi", 0, 1) + _text(self.topic) + struct.pack(">i", -1)
        return JoinGroupRequest(
            self.group,
            self.session_ms,
            60_000,
            self.name,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", subscription)],
        )

    def _syncing(self, members: list[str]) -> SyncGroupRequest:
        shares = [
            SyncGroupRequestAssignment(
                name, self._encoded(list(range(at, self.partitions, len(members))))
            )
            for at, name in enumerate(members)
        ]
        return SyncGroupRequest(
            self.group,
            self.epoch,
            self.name,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )

    def _encoded(self, share: list[int]) -> bytes:
        numbers = struct.pack(f">i{len(share)}i", len(share), *share)
        return struct.pack(">hi", 0, 1) + _text(self.topic) + numbers + struct.pack(">i", -1)


class ConsumerMember(Member):
    """Heartbeats only: the broker assigns (KIP-848)."""

    async def run(self) -> None:
        self.name = str(uuid4())
        owned: dict[UUID, list[int]] = {}
        is_news = True
        while True:
            answer = await self.wire.ask(68, self._beat(owned if is_news else None))
            assert answer.error_code == 0, (answer.error_code, answer.error_message)
            is_joined, self.epoch = self.epoch > 0, answer.member_epoch
            is_news = not is_joined
            if answer.assignment is not None:
                owned = {
                    each.topic_id: list(each.partitions)
                    for each in answer.assignment.topic_partitions
                }
                self.take(frozenset(p for share in owned.values() for p in share))
                is_news = True
            if is_news and is_joined:
                continue  # Clients tell at once what they own now.
            await asyncio.sleep(min(self.heartbeat_s, answer.heartbeat_interval_ms / 1000))

    async def leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(self.group, self.name, -1)
        assert (await self.wire.ask(68, request)).error_code == 0

    def _beat(self, owned: dict[UUID, list[int]] | None) -> ConsumerGroupHeartbeatRequest:
        is_first = self.epoch == 0
        return ConsumerGroupHeartbeatRequest(
            self.group,
            self.name,
            self.epoch,
            rebalance_timeout_ms=60_000 if is_first else -1,
            subscribed_topic_names=[self.topic] if is_first else None,
            topic_partitions=None
            if owned is None
            else [TopicPartitions(topic, share) for topic, share in owned.items()],
        )


KINDS: dict[str, type[Member]] = {"classic": ClassicMember, "consumer": ConsumerMember}


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _decoded(assignment: bytes) -> frozenset[int]:
    """The partitions out of an assignment of one topic."""
    if not assignment:
        return frozenset()
    (length,) = struct.unpack_from(">h", assignment, 6)
    at = 8 + length
    (count,) = struct.unpack_from(">i", assignment, at)
    return frozenset(struct.unpack_from(f">{count}i", assignment, at + 4))
