"""Members of groups: classic ones and those of the consumer protocol, and whoever looks at their offsets.

They join, are alive, commit, leave, or die without a word; whoever is over is replaced by the world.
"""

from struct import pack
from typing import TYPE_CHECKING
from uuid import UUID

from sim.coordination.scripts import Ask, Reply, Script, Steps

from dmq.errors import ErrorCode
from dmq.machines.groups.commands import (
    Client,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    Protocol,
    SyncGroup,
)
from dmq.machines.groups.consumer_commands import LEAVE_EPOCH, ConsumerHeartbeat
from dmq.machines.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_topics,
    write_assignment,
)
from dmq.machines.groups.facts import Partitions
from dmq.machines.groups.offset_commands import CommitOffsets, FetchOffsets, OffsetToCommit
from dmq.machines.machine import Command

if TYPE_CHECKING:
    from sim.coordination.world import CoordinatorWorld
    from sim.metadata import Topic

CLIENT = Client("simulated", "/host")
SESSION_MS = 1500
REBALANCE_MS = 1000
BEAT_MS = 250
LEAVES = 0.02
"""How often a member leaves in order, per heartbeat."""


class Member(Script):
    """What members of both protocols share."""

    def __init__(self, world: "CoordinatorWorld", name: str, group: str) -> None:
        self.group = group
        self.member_id = ""
        self.epoch = -1
        """Its generation, in a classic group."""
        self.owned: list[str] = []
        """Topics: each has one partition."""
        super().__init__(world, name)

    def _submit(self, command: Command[object], **options: object) -> Ask:
        group = self.group
        return Ask(
            self.world.offsets_topic,
            lambda backend: backend.groups.submit(group, command),
            **options,  # type: ignore[arg-type]
        )

    def _topics(self) -> tuple[str, ...]:
        return tuple(sorted(topic.name for topic in self.world.metadata.data))

    def _commit(self) -> Steps:
        """Commit something that nobody committed before, for one of its partitions."""
        topics = [t for t in self.world.metadata.data if t.name in self.owned]
        if topics:
            topic = self.rng.choice(topics)
            yield self._commit_ask(topic, self.world.next_number())

    def _commit_ask(self, topic: "Topic", value: int) -> Ask:
        offset = OffsetToCommit(topic.name, 0, value, -1, "", topic.topic_id)
        command = CommitOffsets(self.group, (offset,), self.member_id, self.epoch)

        def judge(reply: Reply) -> None:
            if reply.is_good and reply.value[0].error is ErrorCode.NONE:
                self.world.promises.tell("offset_told", (self.group, topic.name), value)
                self.world.reached["offset committed"] += 1

        return self._submit(command, judge=judge, repeats_as="OffsetCommit")


class ClassicMember(Member):
    """Joins, syncs, and is alive until it must join again."""

    def steps(self) -> Steps:
        while not self.is_stopped:
            joined = yield from self._join()
            if joined is None:
                yield self.rng.randint(10, 100)
                continue
            if (yield from self._sync(joined)):
                is_over = yield from self._stay()
                if is_over:
                    return

    def _join(self) -> Steps:
        topics = [name.encode() for name in self._topics()]
        metadata = pack(">hi", 0, len(topics))
        for name in topics:
            metadata += pack(">h", len(name)) + name
        metadata += pack(">i", -1)
        command = JoinGroup(
            self.group,
            self.member_id,
            None,
            CLIENT,
            SESSION_MS,
            REBALANCE_MS,
            PROTOCOL_TYPE,
            (Protocol("range", metadata),),
        )
        reply = yield self._submit(command, patience_ms=4 * REBALANCE_MS)
        if not reply.is_good:
            return None
        joined: Joined = reply.value
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        elif joined.error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif joined.error is ErrorCode.NONE:
            self.member_id, self.epoch = joined.member_id, joined.generation
            return joined
        return None

    def _sync(self, joined: Joined) -> Steps:
        assignments: tuple[tuple[str, bytes], ...] = ()
        if joined.leader == self.member_id and not joined.skip_assignment:
            assignments = _assign(joined)
        generation, member = self.epoch, self.member_id
        command = SyncGroup(
            self.group, generation, member, None, PROTOCOL_TYPE, joined.protocol, assignments
        )

        def judge(reply: Reply) -> None:
            if reply.is_good and reply.value.error is ErrorCode.NONE:
                assignment = reply.value.assignment
                self.world.promises.tell("synced", self.group, generation, member, assignment)

        reply = yield self._submit(command, judge=judge, patience_ms=4 * REBALANCE_MS)
        if not reply.is_good or reply.value.error is not ErrorCode.NONE:
            return False
        self.owned = [topic for topic, _ in read_assignment(reply.value.assignment)]
        self.world.reached["classic generation"] += 1
        return True

    def _stay(self) -> Steps:
        """True: it left for good."""
        while not self.is_stopped:
            yield self.rng.randint(BEAT_MS // 2, BEAT_MS)
            if self.rng.random() < 0.4:
                yield from self._commit()
            if self.rng.random() < LEAVES:
                leaving = LeavingMember(self.member_id)
                yield self._submit(LeaveGroup(self.group, (leaving,)))
                self.world.reached["member left"] += 1
                return True
            reply = yield self._submit(Heartbeat(self.group, self.epoch, self.member_id))
            if reply.code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                return False
            if reply.code is ErrorCode.ILLEGAL_GENERATION:
                return False
            if reply.is_good and reply.value is not ErrorCode.NONE:
                return False
        return False


def _assign(joined: Joined) -> tuple[tuple[str, bytes], ...]:
    """By turns."""
    members = [member.member_id for member in joined.members]
    topics = sorted({topic for each in joined.members for topic in read_topics(each.metadata)})
    shares: dict[str, dict[str, list[int]]] = {member: {} for member in members}
    for index, topic in enumerate(topics):
        shares[members[index % len(members)]][topic] = [0]
    return tuple((member, write_assignment(0, share)) for member, share in shares.items())


class ConsumerMember(Member):
    """Heartbeats until it has what it shall have, and then on."""

    def steps(self) -> Steps:
        self.member_id = str(UUID(int=self.rng.getrandbits(128)))
        self.epoch = 0
        topics: tuple[str, ...] | None = self._topics()
        while not self.is_stopped:
            is_first = self.epoch == 0
            if is_first or self.rng.random() < 0.05:
                topics = self._topics()
            reply = yield self._beat(topics, is_first=is_first)
            topics = None
            if reply.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                self.epoch, self.owned = 0, []
                self.world.reached["consumer fenced"] += 1
            elif reply.is_good:
                self._take(reply)
            yield self.rng.randint(BEAT_MS // 2, BEAT_MS)
            if self.epoch > 0 and self.rng.random() < 0.4:
                yield from self._commit()
            if self.epoch > 0 and self.rng.random() < LEAVES:
                yield self._leave()
                return

    def _take(self, reply: Reply) -> None:
        beat = reply.value
        self.epoch = beat.member_epoch
        if beat.assignment is not None:
            names = {topic.topic_id: topic.name for topic in self.world.metadata.topics.values()}
            self.owned = [names[topic] for topic, _ in beat.assignment]
            self.world.reached["consumer assignment"] += 1

    def _owned(self) -> Partitions:
        topics = self.world.metadata.topics
        return tuple(sorted((topics[name].topic_id, (0,)) for name in self.owned))

    def _beat(self, topics: tuple[str, ...] | None, *, is_first: bool) -> Ask:
        command = ConsumerHeartbeat(
            self.group,
            self.member_id,
            self.epoch,
            CLIENT,
            rebalance_timeout_ms=REBALANCE_MS if is_first else -1,
            topic_names=topics,
            owned=() if is_first else self._owned(),
        )

        def judge(reply: Reply) -> None:
            if reply.is_good and reply.value.assignment is not None:
                beat = reply.value
                self.world.promises.tell(
                    "beat", self.group, beat.member_id, beat.member_epoch, beat.assignment
                )

        return self._submit(command, judge=judge)

    def _leave(self) -> Ask:
        self.world.reached["member left"] += 1
        command = ConsumerHeartbeat(self.group, self.member_id, LEAVE_EPOCH, CLIENT)
        return self._submit(command)


class OffsetReader(Script):
    """Looks at the committed offsets of all groups."""

    def steps(self) -> Steps:
        while True:
            yield self.rng.randint(0, 2 * self.world.coordination.pause_ms)
            topics = self.world.metadata.data
            if topics:
                group = self.rng.choice(self.world.group_names)
                yield self._fetch(group, self.rng.choice(topics))

    def _fetch(self, group: str, topic: "Topic") -> Ask:
        key = group, topic.name
        floor = self.world.chronicle.acknowledged.get(key, -1)
        stable = self.rng.random() < 0.5
        command = FetchOffsets(group, ((topic.name, 0),), stable)

        def judge(reply: Reply) -> None:
            if not reply.is_good:
                return
            found = reply.value[0]
            if found.error is ErrorCode.NONE:
                self.world.promises.tell("offset_shown", key, found.offset, floor)
                self.world.reached["offset shown"] += found.offset >= 0

        return Ask(
            self.world.offsets_topic,
            lambda backend: backend.groups.submit(group, command),
            judge,
        )
