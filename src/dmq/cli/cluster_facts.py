"""What a cluster looks like, gathered for people and for plans: brokers, partitions, quorum, moves.

Owns the values that `dmq cluster status` shows, and their JSON. Asks with as few requests as there
can be: Metadata, DescribeCluster, DescribeQuorum, ListPartitionReassignments, and each live broker
for its disks. Metadata and moves are asked for until they fit, for plans are made of both. Never prints.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dmq.cli.cluster_wire import ClusterWire, Move, Where

_LOOKS_MAX = 5
"""So often are metadata and moves asked for when they don't fit; partitions begin and end to move."""


@dataclass(frozen=True, slots=True)
class Disk:
    """What lies on a broker's disks; None where it does not say."""

    log_bytes: int
    total_bytes: int | None
    free_bytes: int | None
    sizes: dict[Where, int]
    """By partition."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker, up or not. One that nobody has registered has no address."""

    node: int
    host: str | None
    port: int | None
    rack: str | None
    is_up: bool
    leaders: int
    replicas: int
    disk: Disk | None = None

    @property
    def address(self) -> str:
        """host:port, or nothing."""
        return "" if self.host is None else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, by the metadata."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]

    @property
    def where(self) -> Where:
        return (self.topic, self.partition)

    @property
    def name(self) -> str:
        """As people and commands write it."""
        return f"{self.topic}:{self.partition}"

    @property
    def has_leader(self) -> bool:
        return self.leader >= 0

    def is_under_replicated(self, moving: frozenset[int] = frozenset()) -> bool:
        """Fewer in sync than there should be. What is down is not, whatever was said of it last."""
        return any(
            (node not in self.isr or node in self.offline) and node not in moving
            for node in self.replicas
        )

    @property
    def is_led_as_preferred(self) -> bool:
        return not self.has_leader or self.leader == self.replicas[0]

    def as_json(self) -> dict[str, Any]:
        """The stable schema."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "leader": self.leader if self.has_leader else None,
            "leader_epoch": self.leader_epoch,
            "replicas": self.replicas,
            "in_sync_replicas": self.isr,
            "offline_replicas": self.offline,
        }


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """A broker's copy of the metadata log; `lag` in records behind the leader's end."""

    node: int
    is_voter: bool
    log_end_offset: int
    lag: int


@dataclass(frozen=True, slots=True)
class Quorum:
    """Who keeps the metadata. Without a leader (-1) nobody tells of the members."""

    leader: int
    leader_epoch: int
    high_watermark: int
    members: list[QuorumMember]

    @property
    def has_leader(self) -> bool:
        return self.leader >= 0

    @property
    def voters(self) -> list[int]:
        return sorted(member.node for member in self.members if member.is_voter)


class Copies(NamedTuple):
    """What the new replicas of a move have, and what they shall have, in bytes."""

    copied_bytes: int | None
    total_bytes: int | None


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster at one moment."""

    cluster_id: str | None
    brokers: dict[int, Broker]
    partitions: list[Partition]
    topic_count: int
    quorum: Quorum | None
    moves: list[Move] = field(default_factory=list)
    unsure: frozenset[Where] = frozenset()
    """Partitions of which metadata and moves told different things: no plan should touch them."""

    @property
    def placed(self) -> dict[Where, tuple[int, ...]]:
        """Where each partition is, or is going to if it moves; without those that are unsure."""
        going = {move.where: move.target for move in self.moves}
        return {
            each.where: going.get(each.where, tuple(each.replicas))
            for each in self.partitions
            if each.where not in self.unsure
        }

    @property
    def thin(self) -> dict[Where, int]:
        """Partitions with fewer replicas than most of their topic have, and how many they lack."""
        placed = self.placed
        sizes: dict[str, Counter[int]] = {}
        for (topic, _), nodes in placed.items():
            sizes.setdefault(topic, Counter())[len(nodes)] += 1
        usual = {topic: max(n, key=lambda size: (n[size], size)) for topic, n in sizes.items()}
        return {
            where: usual[where[0]] - len(nodes)
            for where, nodes in placed.items()
            if len(nodes) < usual[where[0]]
        }

    @property
    def leaderless(self) -> list[Partition]:
        return [each for each in self.partitions if not each.has_leader]

    @property
    def under_replicated(self) -> list[Partition]:
        """Those that move are not, for what they leave or have not come to."""
        moving = self._moving
        return [
            each
            for each in self.partitions
            if each.is_under_replicated(moving.get(each.where, frozenset()))
        ]

    @property
    def not_preferred(self) -> list[Partition]:
        """Without those whose preferred replica is just being made: it can't lead yet."""
        moving = self._moving
        return [
            each
            for each in self.partitions
            if not each.is_led_as_preferred
            and each.replicas[0] not in moving.get(each.where, frozenset())
        ]

    @property
    def _moving(self) -> dict[Where, frozenset[int]]:
        """Replicas that come or go."""
        return {move.where: frozenset((*move.adding, *move.removing)) for move in self.moves}

    @property
    def down(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if not broker.is_up]

    @property
    def is_healthy(self) -> bool:
        """Every broker is up, the metadata have a leader, and every partition has all its copies and
        one, too."""
        return not (
            self.is_headless or self.down or self.leaderless or self.under_replicated or self.thin
        )

    @property
    def is_headless(self) -> bool:
        """Nobody leads the metadata: nothing can be changed."""
        return self.quorum is not None and not self.quorum.has_leader

    def partition(self, where: Where) -> Partition | None:
        """The partition, if it exists."""
        return next((each for each in self.partitions if each.where == where), None)

    def size(self, where: Where, nodes: Iterable[int]) -> int | None:
        """The largest copy of a partition on these brokers, as far as they tell."""
        disks = [self._disk(node) for node in nodes]
        return max(
            (disk.sizes[where] for disk in disks if disk and where in disk.sizes), default=None
        )

    def copies(self, move: Move) -> Copies:
        """How far a move is."""
        where = move.where
        size = self.size(where, [node for node in move.replicas if node not in move.adding])
        if size is None:
            return Copies(None, None)
        disks = [disk for node in move.adding if (disk := self._disk(node)) is not None]
        copied = None
        if len(disks) == len(move.adding):
            copied = sum(min(disk.sizes.get(where, 0), size) for disk in disks)
        return Copies(copied, size * len(move.adding))

    def _disk(self, node: int) -> Disk | None:
        broker = self.brokers.get(node)
        return None if broker is None else broker.disk


def gather(wire: ClusterWire, *, disks: bool = True) -> Cluster:
    """Ask for everything. `disks`: ask each broker for its disks as well."""
    placement = _placement(wire)
    described = wire.cluster()
    brokers = _brokers(wire, described, placement.partitions, disks=disks)
    return Cluster(
        cluster_id=described.cluster_id,
        brokers=brokers,
        partitions=placement.partitions,
        topic_count=placement.topic_count,
        quorum=_quorum(wire.quorum()),
        moves=placement.moves,
        unsure=placement.unsure,
    )


class _Placement(NamedTuple):
    """Partitions and their moves, at one moment as far as they are not `unsure`."""

    partitions: list[Partition]
    topic_count: int
    moves: list[Move]
    unsure: frozenset[Where]


def _placement(wire: ClusterWire) -> _Placement:
    """Two questions are two moments: what moved before the first as it does after the second has not
    changed between them."""
    before = wire.moves()
    for _ in range(_LOOKS_MAX):
        metadata = wire.metadata()
        partitions = [
            _partition(topic.name, each) for topic in metadata.topics for each in topic.partitions
        ]
        partitions.sort(key=lambda each: each.where)
        after = wire.moves()
        unsure = _unsure(before, partitions, after)
        if not unsure:
            break
        before = after
    return _Placement(partitions, len(metadata.topics), after, unsure)


def _unsure(before: list[Move], partitions: list[Partition], after: list[Move]) -> frozenset[Where]:
    moved = {move.where: move for move in before}
    moving = {move.where: move for move in after}
    known = {each.where: each.replicas for each in partitions}
    changed = {
        where for where in moved.keys() | moving.keys() if moved.get(where) != moving.get(where)
    }
    misfits = {
        where
        for where, move in moving.items()
        if where in known and sorted(known[where]) != sorted(move.replicas)
    }
    return frozenset(changed | misfits)


def _partition(topic: str, told: Any) -> Partition:
    return Partition(
        topic,
        told.partition_index,
        told.leader_id,
        told.leader_epoch,
        told.replica_nodes,
        told.isr_nodes,
        told.offline_replicas,
    )


def _brokers(
    wire: ClusterWire, described: Any, partitions: list[Partition], *, disks: bool
) -> dict[int, Broker]:
    leaders = Counter(each.leader for each in partitions)
    replicas = Counter(node for each in partitions for node in each.replicas)
    brokers: dict[int, Broker] = {}
    for told in described.brokers:
        is_up = not told.is_fenced
        disk = _disk(wire.log_dirs(told.host, told.port)) if disks and is_up else None
        brokers[told.broker_id] = Broker(
            told.broker_id,
            told.host,
            told.port,
            told.rack,
            is_up,
            leaders[told.broker_id],
            replicas[told.broker_id],
            disk,
        )
    for node in replicas:  # Placed on, but nobody tells of it: down, or forgotten too early.
        if node not in brokers:
            brokers[node] = Broker(node, None, None, None, False, leaders[node], replicas[node])
    return dict(sorted(brokers.items()))


def _disk(told: Any | None) -> Disk | None:
    if told is None:
        return None
    sizes = partition_sizes(told)
    return Disk(
        sum(sizes.values()),
        _sum(result.total_bytes for result in told.results),
        _sum(result.usable_bytes for result in told.results),
        sizes,
    )


def partition_sizes(told: Any) -> dict[Where, int]:
    """By partition: its bytes, as a broker describes its disks."""
    return {
        (topic.name, each.partition_index): each.partition_size
        for result in told.results
        for topic in result.topics
        for each in topic.partitions
        if not each.is_future_key
    }


def _sum(values: Iterable[int]) -> int | None:
    known = list(values)
    return None if not known or min(known) < 0 else sum(known)


def _quorum(told: Any | None) -> Quorum | None:
    if told is None:
        return None
    copies = [(each, True) for each in told.current_voters]
    copies += [(each, False) for each in told.observers]
    end = max((each.log_end_offset for each, _ in copies), default=0)
    members = [
        QuorumMember(each.replica_id, is_voter, each.log_end_offset, end - each.log_end_offset)
        for each, is_voter in copies
    ]
    if told.error_code:
        return Quorum(-1, -1, -1, [])
    return Quorum(told.leader_id, told.leader_epoch, told.high_watermark, members)


def as_json(cluster: Cluster) -> dict[str, Any]:
    """The stable schema of `dmq cluster status --json`."""
    return {
        "cluster_id": cluster.cluster_id,
        "healthy": cluster.is_healthy,
        "brokers": [_broker_json(broker) for broker in cluster.brokers.values()],
        "metadata": None if cluster.quorum is None else _quorum_json(cluster.quorum),
        "topics": cluster.topic_count,
        "partitions": len(cluster.partitions),
        "leaderless": [each.as_json() for each in cluster.leaderless],
        "under_replicated": [each.as_json() for each in cluster.under_replicated],
        "thin": [
            {"topic": topic, "partition": index, "missing_replicas": missing}
            for (topic, index), missing in cluster.thin.items()
        ],
        "not_led_by_preferred": len(cluster.not_preferred),
        "moving": [move_json(move, cluster.copies(move)) for move in cluster.moves],
    }


def _quorum_json(quorum: Quorum) -> dict[str, Any]:
    """What nobody tells is null."""
    has_leader = quorum.has_leader
    return {
        "has_leader": has_leader,
        "leader": quorum.leader if has_leader else None,
        "leader_epoch": quorum.leader_epoch if has_leader else None,
        "high_watermark": quorum.high_watermark if has_leader else None,
        "voters": quorum.voters if has_leader else None,
        "observers": sorted(m.node for m in quorum.members if not m.is_voter)
        if has_leader
        else None,
        "lag": {str(m.node): m.lag for m in sorted(quorum.members, key=lambda m: m.node)},
    }


def _broker_json(broker: Broker) -> dict[str, Any]:
    disk = broker.disk
    return {
        "broker": broker.node,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "up": broker.is_up,
        "leaders": broker.leaders,
        "replicas": broker.replicas,
        "log_bytes": None if disk is None else disk.log_bytes,
        "disk_total_bytes": None if disk is None else disk.total_bytes,
        "disk_free_bytes": None if disk is None else disk.free_bytes,
    }


def move_json(move: Move, copies: Copies) -> dict[str, Any]:
    """A move that is under way, and how far it is."""
    return {
        "topic": move.topic,
        "partition": move.partition,
        "replicas": move.replicas,
        "adding": move.adding,
        "removing": move.removing,
        "copied_bytes": copies.copied_bytes,
        "total_bytes": copies.total_bytes,
    }
