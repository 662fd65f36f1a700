"""A classic group as its leader knows it: members, generation, state, and who waits.

    Empty                no members; offsets may remain
      → Preparing        a member joined: others get `group.initial.rebalance.delay.ms` to come too
    PreparingRebalance   members must join again; their JoinGroups are parked
      → Completing       all joined, or the rebalance timeout is over: a new generation
      → Empty            nobody is left
    CompletingRebalance  the generation stands; SyncGroups are parked for the leader's assignment
      → Stable           the leader brought it
      → Preparing        a member came, left, changed, or did not sync in time
    Stable               members have their assignments
      → Preparing        a member came, left or changed; the leader joined again
    Dead                 what a group that does not exist is called

Soft: it is made from the last generation in the log when the leadership begins, and lost with it. A
generation is recorded when it begins, without assignments, and again with them: so a new leader
knows every generation that members were told of, and a rebalance goes on where it was. Rules of
joining and leaving are in `rebalancing.py` and its neighbours; here is only what is true of a group.
"""

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.commands import Joined, JoinedMember, Protocol, Synced
from dmq.machines.groups.consumer_protocol import PROTOCOL_TYPE, read_topics
from dmq.machines.groups.facts import ClassicGroupFact, ClassicGroupValue, ClassicMemberValue
from dmq.machines.groups.outcome import Later
from dmq.machines.groups.work import Work


class ClassicState(enum.Enum):
    """Kafka's words for them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING = ClassicState.EMPTY, ClassicState.PREPARING
COMPLETING, STABLE = ClassicState.COMPLETING, ClassicState.STABLE


@dataclasses.dataclass(slots=True)
class Member:
    """A member, and what it waits for."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    """In no generation yet: even a parked join does not keep it for ever."""
    join: Later | None = None
    sync: Later | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """What it says in a protocol; nothing if it does not speak it."""
        return next((spoken.metadata for spoken in self.protocols if spoken.name == protocol), b"")

    @property
    def is_waiting(self) -> bool:
        """Whether a parked request proves that it is alive."""
        return not self.is_new and (self.join is not None or self.sync is not None)


class ClassicGroup:
    """See the module."""

    __slots__ = (
        "_speakers",
        "generation",
        "group_id",
        "has_newcomers",
        "initial_left_ms",
        "is_initial",
        "joined_count",
        "leader",
        "members",
        "pending_joins",
        "pending_syncs",
        "protocol",
        "protocol_type",
        "state",
        "state_since_ms",
        "static",
        "subscribed",
    )

    def __init__(self, group_id: str, value: ClassicGroupValue | None = None) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.state_since_ms = -1
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Member ids by instance id."""
        self.pending_joins: dict[str, None] = {}
        """Ids that were given out and are not members yet."""
        self.pending_syncs: dict[str, None] = {}
        """Members of the generation that have not synced."""
        self.joined_count = 0
        """Members with a parked join."""
        self.is_initial = False
        """In PreparingRebalance: whether the group was empty before, and waits for more."""
        self.has_newcomers = False
        self.initial_left_ms = 0
        """How much longer that wait may become."""
        self.subscribed: frozenset[str] | None = None
        """Topics that consumers of the generation read; None where we can't know."""
        self._speakers: Counter[str] = Counter()
        """How many members speak each protocol."""
        if value is not None:
            self._load(value)

    def _load(self, value: ClassicGroupValue) -> None:
        self.generation = value.generation
        self.protocol_type = value.protocol_type
        self.protocol = value.protocol
        self.leader = value.leader
        self.state_since_ms = value.state_since_ms
        for stored in value.members:
            self.add(
                Member(
                    stored.member_id,
                    stored.instance_id,
                    stored.client_id,
                    stored.client_host,
                    stored.rebalance_timeout_ms,
                    stored.session_timeout_ms,
                    (Protocol(value.protocol or "", stored.subscription),),
                    stored.assignment,
                ),
                value.protocol_type or "",
            )
        if self.members:
            has_assignments = any(member.assignment for member in self.members.values())
            self.state = STABLE if has_assignments else COMPLETING
        self.subscribed = self._subscribed()

    # --- what is true ------------------------------------------------------------------------

    @property
    def is_consumer(self) -> bool:
        """Whether its members call themselves consumers."""
        return self.protocol_type == PROTOCOL_TYPE

    @property
    def has_all_joined(self) -> bool:
        return len(self.members) == self.joined_count and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether its members read a topic, or may."""
        return self.is_consumer if self.subscribed is None else topic in self.subscribed

    def supports(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        """Whether a member with these protocols could be in a generation with the others."""
        if self.state is EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        size = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._speakers[protocol.name] == size for protocol in protocols
        )

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """A member that proved who it is. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is not None and known != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def select_protocol(self) -> str:
        """The protocol that all speak and most prefer; the earliest member decides a tie."""
        size = len(self.members)
        assert size, "an empty group speaks no protocol"
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(p.name for p in member.protocols if self._speakers[p.name] == size)] += 1
        return votes.most_common(1)[0][0]

    # --- changes -----------------------------------------------------------------------------

    def move_to(self, state: ClassicState, wall_ms: int) -> None:
        self.state = state
        self.state_since_ms = wall_ms

    def add(self, member: Member, protocol_type: str) -> None:
        """A new member; the first decides what kind of group it is."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        if member.instance_id is not None:
            assert member.instance_id not in self.static
            self.static[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self._speakers.update(dict.fromkeys((p.name for p in member.protocols), 1))
        self.joined_count += member.join is not None
        self.pending_joins.pop(member.member_id, None)

    def update(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        """A member says something else in the protocols."""
        self._unspeak(member)
        member.protocols = protocols
        self._speakers.update(dict.fromkeys((p.name for p in protocols), 1))

    def remove(self, member_id: str, work: Work) -> None:
        """A member is out; if it waits it is told so. If it led, the next one does."""
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)
        member = self.members.get(member_id)
        if member is None:
            return
        self.settle_join(member, Joined(ErrorCode.UNKNOWN_MEMBER_ID, ""), work)
        self.settle_sync(member, Synced(ErrorCode.UNKNOWN_MEMBER_ID), work)
        del self.members[member_id]
        self._unspeak(member)
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace_static(self, old_id: str, member: Member, work: Work) -> None:
        """A static member came back under another id: it takes the old one's place."""
        assert member.instance_id is not None
        old = self.members[old_id]
        self.settle_join(old, Joined(ErrorCode.FENCED_INSTANCE_ID, old_id), work)
        self.settle_sync(old, Synced(ErrorCode.FENCED_INSTANCE_ID), work)
        self._unspeak(old)
        del self.members[old_id]
        self.pending_syncs.pop(old_id, None)
        self.members[member.member_id] = member
        self._speakers.update(dict.fromkeys((p.name for p in member.protocols), 1))
        self.joined_count += member.join is not None
        self.static[member.instance_id] = member.member_id
        if self.leader == old_id:
            self.leader = member.member_id

    def _unspeak(self, member: Member) -> None:
        for name in dict.fromkeys(protocol.name for protocol in member.protocols):
            self._speakers[name] -= 1
            if not self._speakers[name]:
                del self._speakers[name]

    def elect_joined_leader(self) -> bool:
        """Have a leader that joined; whether there is one."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join is None:
            joined = next((m for m in self.members.values() if m.join is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return leader is not None

    def begin_generation(self, wall_ms: int) -> None:
        """Those who are members now make the next generation."""
        self.generation += 1
        self.is_initial = False
        self.pending_syncs = dict.fromkeys(self.members)
        if self.members:
            self.protocol = self.select_protocol()
            self.move_to(COMPLETING, wall_ms)
        else:
            self.protocol = None
            self.move_to(EMPTY, wall_ms)
        self.subscribed = self._subscribed()
        for member in self.members.values():
            member.assignment = b""

    def settle_as(self, generation: int, wall_ms: int) -> None:
        """Be stable in a generation that was made elsewhere."""
        self.generation = generation
        self.protocol = self.select_protocol()
        self.move_to(STABLE, wall_ms)
        self.subscribed = self._subscribed()

    def _subscribed(self) -> frozenset[str] | None:
        if not self.is_consumer:
            return None
        if self.members and self.protocol is None:
            return None
        try:
            return frozenset(
                topic
                for member in self.members.values()
                for topic in read_topics(member.metadata(self.protocol))
            )
        except ValueError:
            return None

    # --- those who wait ----------------------------------------------------------------------

    def park_join(self, member: Member, later: Later, work: Work) -> None:
        """A member waits for the next generation; an older request of it is told to ask again."""
        self.settle_join(member, Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id), work)
        member.join = later
        self.joined_count += 1

    def settle_join(self, member: Member, response: Joined, work: Work) -> None:
        if member.join is not None:
            work.settle(member.join, response)
            member.join = None
            if member.member_id in self.members:
                self.joined_count -= 1

    def settle_sync(self, member: Member, response: Synced, work: Work) -> bool:
        """Answer a parked sync; whether there was one."""
        if member.sync is None:
            return False
        work.settle(member.sync, response)
        member.sync = None
        return True

    # --- as others see it --------------------------------------------------------------------

    def joined(self, member_id: str, *, skip_assignment: bool = False) -> Joined:
        """A member's place in the present generation."""
        members: tuple[JoinedMember, ...] = ()
        if member_id == self.leader:
            members = tuple(
                JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol))
                for m in self.members.values()
            )
        return Joined(
            ErrorCode.NONE,
            member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            skip_assignment,
            members,
        )

    def synced(self, member: Member) -> Synced:
        """A member's assignment."""
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def fact(self) -> ClassicGroupFact:
        """The generation as it is recorded."""
        members = tuple(
            ClassicMemberValue(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                m.metadata(self.protocol),
                m.assignment,
            )
            for m in self.members.values()
        )
        value = ClassicGroupValue(
            self.protocol_type,
            self.generation,
            self.protocol,
            self.leader,
            self.state_since_ms,
            members,
        )
        return ClassicGroupFact(self.group_id, value)
