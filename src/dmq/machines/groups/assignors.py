"""Server-side assignors of the consumer protocol: who is to have which partitions.

    uniform   partitions are spread evenly, and members keep what they have as far as that allows
    sticky    the same: it is what clients that ask by the classic name mean
    range     each topic is cut into as many ranges as it has members, in the order of their ids, so
              that partitions of the same number go together

Pure functions of members and topics; deterministic, whatever order members come in. Called when a
group's target is made.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from dmq.machines.groups.facts import Partitions
from dmq.machines.groups.surroundings import TopicImage

Partition = tuple[UUID, int]


class MemberSpec(NamedTuple):
    """A member as an assignor sees it: the topics that it reads and that exist, what it had."""

    topic_ids: tuple[UUID, ...]
    had: Partitions = ()
    rack: str | None = None
    instance_id: str | None = None


Members = Mapping[str, MemberSpec]
Topics = Mapping[UUID, TopicImage]
Shares = dict[str, list[Partition]]


def assign(name: str, members: Members, topics: Topics) -> dict[str, Partitions]:
    """What each member is to have."""
    shares = ASSIGNORS[name](members, topics)
    return {member_id: pack(share) for member_id, share in shares.items()}


def pack(partitions: Iterable[Partition]) -> Partitions:
    """Partitions by topic, both sorted."""
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(index)
    return tuple((topic_id, tuple(indexes)) for topic_id, indexes in by_topic.items())


def unpack(partitions: Partitions) -> list[Partition]:
    return [(topic_id, index) for topic_id, indexes in partitions for index in indexes]


# --- range ---------------------------------------------------------------------------------------


def assign_ranges(members: Members, topics: Topics) -> Shares:
    """Each topic in ranges. A static member keeps its place in the order under any member id."""
    shares: Shares = {member_id: [] for member_id in members}
    in_order = sorted(members, key=lambda member_id: members[member_id].instance_id or member_id)
    readers: dict[UUID, list[str]] = {}
    for member_id in in_order:
        for topic_id in members[member_id].topic_ids:
            readers.setdefault(topic_id, []).append(member_id)
    for topic_id, reading in readers.items():
        share, extra = divmod(topics[topic_id].partition_count, len(reading))
        first = 0
        for place, member_id in enumerate(reading):
            last = first + share + (place < extra)
            shares[member_id] += [(topic_id, index) for index in range(first, last)]
            first = last
    return shares


# --- uniform -------------------------------------------------------------------------------------


def assign_uniformly(members: Members, topics: Topics) -> Shares:
    """Evenly, with as few moves as that allows."""
    readers = {frozenset(spec.topic_ids) for spec in members.values()}
    if len(readers) <= 1:
        return _assign_alike(members, topics)
    return _assign_unlike(members, topics)


def _kept(members: Members, topics: Topics) -> tuple[Shares, dict[Partition, None]]:
    """What members have and may keep; and the partitions that nobody has, of topics that are read."""
    wanted = dict.fromkeys(
        topic_id for member_id in sorted(members) for topic_id in members[member_id].topic_ids
    )
    free = {
        (topic_id, index): None
        for topic_id in sorted(wanted)
        for index in range(topics[topic_id].partition_count)
    }
    shares: Shares = {}
    for member_id in sorted(members):
        spec = members[member_id]
        reads = frozenset(spec.topic_ids)
        share = shares[member_id] = []
        for partition in unpack(spec.had):
            if partition[0] in reads and partition in free:
                del free[partition]
                share.append(partition)
    return shares, free


def _assign_alike(members: Members, topics: Topics) -> Shares:
    """All members read the same: everyone gets the same number, give or take one."""
    shares, free = _kept(members, topics)
    if not shares:
        return shares
    total = sum(map(len, shares.values())) + len(free)
    least, extras = divmod(total, len(shares))
    room: dict[str, int] = {}
    # Who has the most keeps one more, so that the least moves.
    for member_id in sorted(shares, key=lambda member_id: (-len(shares[member_id]), member_id)):
        share = shares[member_id]
        quota = least + (extras > 0)
        extras -= extras > 0
        while len(share) > quota:
            free[share.pop()] = None
        room[member_id] = quota - len(share)
    _deal(members, topics, shares, sorted(free), room)
    return shares


def _deal(
    members: Members,
    topics: Topics,
    shares: Shares,
    free: list[Partition],
    room: dict[str, int],
) -> None:
    """Deal partitions out to members with room: to one in a rack of theirs where there is one."""
    by_rack: dict[str, deque[str]] = {}
    anywhere: deque[str] = deque()
    for member_id in sorted(room):
        if room[member_id]:
            anywhere.append(member_id)
            rack = members[member_id].rack
            if rack is not None:
                by_rack.setdefault(rack, deque()).append(member_id)
    left: list[Partition] = []
    for partition in free:
        racks = _racks(topics, partition)
        near = (_next(by_rack[rack], room) for rack in sorted(racks) if rack in by_rack)
        member = next((found for found in near if found is not None), None)
        if member is None:
            left.append(partition)
        else:
            shares[member].append(partition)
    for partition in left:
        member = _next(anywhere, room)
        assert member is not None, "there is room for all"
        shares[member].append(partition)


def _racks(topics: Topics, partition: Partition) -> frozenset[str]:
    racks = topics[partition[0]].racks
    return racks[partition[1]] if partition[1] < len(racks) else frozenset()


def _next(waiting: deque[str], room: dict[str, int]) -> str | None:
    """The next member in turn that has room, which is then taken."""
    while waiting:
        member_id = waiting.popleft()
        if room[member_id]:
            room[member_id] -= 1
            waiting.append(member_id)
            return member_id
    return None


def _assign_unlike(members: Members, topics: Topics) -> Shares:
    """Members read different topics: partitions that few can have go first, then loads are evened."""
    shares, free = _kept(members, topics)
    readers: dict[UUID, list[str]] = {}
    for member_id in sorted(members):
        for topic_id in members[member_id].topic_ids:
            readers.setdefault(topic_id, []).append(member_id)

    def load(member_id: str) -> int:
        return len(shares[member_id])

    for partition in sorted(free, key=lambda one: (len(readers[one[0]]), one)):
        shares[min(readers[partition[0]], key=load)].append(partition)
    # Each move makes the sum of squares smaller, so this ends.
    is_moving = True
    while is_moving:
        is_moving = False
        for member_id in sorted(shares, key=load, reverse=True):
            for partition in list(shares[member_id]):
                other = min(readers[partition[0]], key=load)
                if load(member_id) - load(other) > 1:
                    shares[member_id].remove(partition)
                    shares[other].append(partition)
                    is_moving = True
    return shares


ASSIGNORS: dict[str, Callable[[Members, Topics], Shares]] = {
    "uniform": assign_uniformly,
    "sticky": assign_uniformly,
    "range": assign_ranges,
}
