"""A group machine, its log, and the way a host drives it."""

import random
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from dmq.broker.group_records import GroupCodec
from dmq.config.broker import BrokerConfig
from dmq.config.group import GroupConfig
from dmq.config.settings import Settings
from dmq.errors import ErrorCode
from dmq.machines.groups.commands import (
    Client,
    DescribeClassicGroup,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    Protocol,
    Synced,
    SyncGroup,
)
from dmq.machines.groups.facts import Fact
from dmq.machines.groups.machine import GroupMachine
from dmq.machines.groups.outcome import GroupOutcome, Later
from dmq.machines.groups.state import GroupsState
from dmq.machines.groups.surroundings import Limits, TopicImage
from dmq.machines.machine import Command, Record
from dmq.types import Millis

GROUP = "group"
WALL_AHEAD_MS = 1_700_000_000_000
SETTINGS = Settings(BrokerConfig())
CLIENT = Client("client", "/127.0.0.1")

LogEntry = tuple[Record, int]
"""A record and the transactional producer that wrote it, or a marker: no key, commit or not."""


def marker(producer_id: int, commit: bool) -> LogEntry:
    return Record(b"", b"commit" if commit else b"abort"), producer_id


def subscription(*topics: str) -> bytes:
    """A consumer's subscription, version 0."""
    return b"\0\0" + _topics(topics) + b"\xff" * 4


def _topics(topics: Iterable[str]) -> bytes:
    names = [name.encode() for name in topics]
    body = b"".join(len(name).to_bytes(2, "big") + name for name in names)
    return len(names).to_bytes(4, "big") + body


class World:
    """Topics and configs as the machine reads them."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.version = 1

    def create(self, name: str, partitions: int = 1, racks: Any = ()) -> TopicImage:
        self.version += 1
        topic_id = UUID(int=self.version)
        image = self.topics[name] = TopicImage(name, topic_id, partitions, tuple(racks))
        return image

    def delete(self, name: str) -> TopicImage:
        self.version += 1
        return self.topics.pop(name)

    def grow(self, name: str, partitions: int) -> None:
        self.version += 1
        self.topics[name] = self.topics[name]._replace(partition_count=partitions)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def topic_names(self) -> Iterable[str]:
        return sorted(self.topics)

    def topics_version(self) -> int:
        return self.version

    def group_config(self, group_id: str) -> GroupConfig:
        return SETTINGS.group(self.configs.get(group_id, {}))


class Coordinator:
    """The machine of a leader, and the log that it leads."""

    def __init__(self, **config: Any) -> None:
        self.config = BrokerConfig(**config)
        self.world = World()
        self.dice = random.Random(7)
        self.now = 1000
        self.log: list[LogEntry] = []
        self.batches: list[int] = []
        """How many records each outcome had."""
        self.settled: dict[Later, Any] = {}
        self.parked: dict[Later, Command[Any]] = {}
        self.machine = self.new_machine()
        self.machine.lead(Millis(self.now))

    def new_machine(self) -> GroupMachine:
        machine = GroupMachine(GroupCodec(), Limits.of(self.config), self.world, self.new_id)
        machine.wall_ahead_ms = WALL_AHEAD_MS
        return machine

    def new_id(self) -> str:
        return str(UUID(int=self.dice.getrandbits(128)))

    # --- as a host ---------------------------------------------------------------------------

    def do(self, command: Command[Any]) -> Any:
        """Give a command; the answer, or the `Later` that stands for it."""
        outcome = self.machine.handle(command, Millis(self.now))
        if isinstance(outcome.response, Later):
            self.parked[outcome.response] = command
        self._perform(outcome)
        if isinstance(outcome.response, Later):
            return self.settled.get(outcome.response, outcome.response)
        return outcome.response

    def _perform(self, outcome: GroupOutcome[Any]) -> None:
        producer = outcome.producer.producer_id if outcome.producer else -1
        self.batches.append(len(outcome.records))
        for record in outcome.records:
            self.log.append((record, producer))
            self.machine.apply(record, producer)
        self._settle(outcome.settled)

    def _settle(self, settled: Iterable[Any]) -> None:
        for later, response in settled:
            assert later not in self.settled, "an answer is given once"
            assert later in self.parked
            del self.parked[later]
            self.settled[later] = response

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.log.append(marker(producer_id, commit))
        self.machine.complete_transaction(producer_id, commit=commit)

    def pass_time(self, ms: int) -> None:
        """Let time pass, with every timer at its own moment."""
        end = self.now + ms
        while (at := self.machine.next_deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            outcome = self.machine.tick(Millis(self.now))
            assert outcome is not None
            self._perform(outcome)
        self.now = end
        assert self.machine.tick(Millis(self.now)) is None

    def fail_over(self) -> None:
        """Another replica leads: it knows the log and nothing else."""
        self._settle(self.machine.resign())
        assert not self.parked, "whoever waited was told"
        self.machine = load(self.new_machine(), self.log)
        self.machine.lead(Millis(self.now))

    @property
    def state(self) -> GroupsState:
        return self.machine.state

    def facts(self) -> list[Fact]:
        """What the log says, in order."""
        codec = GroupCodec()
        found = [codec.decode(record) for record, _ in self.log if record.key]
        return [fact for fact in found if fact is not None]

    # --- as members --------------------------------------------------------------------------

    def join(self, member_id: str = "", **details: Any) -> Any:
        """JoinGroup; with an id if one is required and `again` is not False."""
        again = details.pop("again", True)
        wanted: dict[str, Any] = {
            "group_id": GROUP,
            "instance_id": None,
            "client": CLIENT,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": (Protocol("range", subscription("topic")),),
        }
        joined = self.do(JoinGroup(member_id=member_id, **(wanted | details)))
        if again and isinstance(joined, Joined) and joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(joined.member_id, **details)
        return joined

    def joined(self, later: Any) -> Joined:
        """The answer to a JoinGroup, which must be there."""
        answer = self.settled[later] if isinstance(later, Later) else later
        assert isinstance(answer, Joined)
        return answer

    def sync(self, member: Joined, assignments: dict[str, bytes] | None = None, **more: Any) -> Any:
        pairs = tuple((assignments or {}).items())
        group_id = more.pop("group_id", GROUP)
        return self.do(
            SyncGroup(group_id, member.generation, member.member_id, assignments=pairs, **more)
        )

    def synced(self, later: Any) -> Synced:
        answer = self.settled[later] if isinstance(later, Later) else later
        assert isinstance(answer, Synced)
        return answer

    def heartbeat(self, member: Joined, **more: Any) -> ErrorCode:
        code = self.do(Heartbeat(GROUP, member.generation, member.member_id, **more))
        assert isinstance(code, ErrorCode)
        return code

    def leave(self, *members: Joined) -> Any:
        leaving = tuple(LeavingMember(member.member_id) for member in members)
        return self.do(LeaveGroup(GROUP, leaving))

    def stable(self, count: int, **details: Any) -> list[Joined]:
        """A stable group of so many members; each is assigned its own number as bytes."""
        laters = [self.join(**details) for _ in range(count)]
        self.pass_time(self.config.group_initial_rebalance_delay_ms * 2)
        members = [self.joined(later) for later in laters]
        self.assign(members)
        return members

    def assign(self, members: list[Joined]) -> list[Synced]:
        """All members sync, the leader last."""
        leader = next(member for member in members if member.member_id == member.leader)
        shares = {member.member_id: b"%d" % n for n, member in enumerate(members)}
        laters = [self.sync(member) for member in members if member is not leader]
        answers = [self.synced(self.sync(leader, shares))]
        return answers + [self.synced(later) for later in laters]

    def group_state(self, group_id: str = GROUP) -> str:
        return str(self.do(DescribeClassicGroup(group_id)).state)


def load(machine: GroupMachine, log: Iterable[LogEntry]) -> GroupMachine:
    """A machine that has read a log."""
    for record, producer_id in log:
        if record.key:
            machine.apply(record, producer_id)
        else:
            machine.complete_transaction(producer_id, commit=record.value == b"commit")
    return machine
