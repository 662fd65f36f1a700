"""Plans for moving replicas: an even spread (`rebalance`), and a broker that leaves (`decommission`).

    placed   where each partition is: (topic, index) → brokers in order of preference
    racks    the brokers, and the rack of each; None is a rack like any other
    fixed    brokers that keep what they have and get nothing (those that are down)

Plain values in, and out come the partitions that change, with their new brokers; nothing of the
cluster machine is used, so a plan can be made for any Kafka cluster. What a plan promises:

 - as many replicas as before (and those that `rebalance` is told are missing, where there is a broker
   for them), each on another broker; racks as far apart as they can be
 - replicas of all brokers within one of each other, as far as racks and the first rule let them be; and
   then likewise first replicas, which costs only another order
 - no replica moves that need not: `rebalance` moves what is too much (and what stands in the wrong
   rack), `decommission` what is on the leaving broker
 - a topic's replicas are spread, where there is a choice

Balancing is a search for paths: a broker that has two more than another gives one away, directly or
over brokers between them that pass on another one. When there is no such path left, no spread is more
even. No dice: the same input gives the same plan. Called by the command line.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from dmq.errors import DmqError, ErrorCode

Partition = tuple[str, int]
Replicas = tuple[int, ...]
Plan = dict[Partition, Replicas]

_NOWHERE = object()
"""The rack of a broker that we know nothing of: no other one is in it."""


class PlanError(DmqError):
    """There is no such plan."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class _Step(NamedTuple):
    """A partition's weight goes from one broker to another."""

    partition: Partition
    giver: int
    taker: int


class _Scale:
    """What each broker carries, and who could carry it instead.

    `may` says whether a step is allowed, `make` makes it. `load` counts everything; `loose` are the
    partitions that may be taken from a broker, by topic.
    """

    def __init__(
        self,
        brokers: Collection[int],
        may: Callable[[_Step], bool],
        make: Callable[[_Step], None],
    ) -> None:
        self.load = dict.fromkeys(sorted(brokers), 0)
        self._may = may
        self._make = make
        self._loose: dict[int, dict[str, dict[Partition, None]]] = {node: {} for node in self.load}
        self._topics: dict[int, Counter[str]] = {node: Counter() for node in self.load}
        self._barren: set[tuple[int, int]] = set()
        """Pairs between which no step was found; not looked at again before the next pass."""

    def add(self, partition: Partition, node: int, *, is_loose: bool) -> None:
        if node in self.load:
            self.load[node] += 1
            self._topics[node][partition[0]] += 1
            if is_loose:
                self._loose[node].setdefault(partition[0], {})[partition] = None

    def defer(self, partition: Partition, node: int) -> None:
        """Where there is a choice, take others from this broker before this one."""
        topics = self._loose.get(node, {})
        parts = topics.get(partition[0], {})
        if partition in parts:
            del parts[partition]
            parts[partition] = None
            topics[partition[0]] = topics.pop(partition[0])

    def of_topic(self, node: int, topic: str) -> int:
        return self._topics[node][topic]

    def step(self, step: _Step) -> None:
        topic = step.partition[0]
        parts = self._loose[step.giver][topic]
        del parts[step.partition]
        if not parts:
            del self._loose[step.giver][topic]
        self._loose[step.taker].setdefault(topic, {})[step.partition] = None
        for node, by in ((step.giver, -1), (step.taker, 1)):
            self.load[node] += by
            self._topics[node][topic] += by
        self._make(step)

    def even(self) -> None:
        """Make the loads as even as they can be."""
        is_changed = True
        while is_changed:
            is_changed = False
            stuck: set[int] = set()
            self._barren.clear()
            while len(stuck) < len(self.load):
                giver = max(self.load, key=lambda node: (node not in stuck, self.load[node], -node))
                path = self._path(giver)
                for step in path:
                    self.step(step)
                    is_changed = True
                if not path:
                    stuck.add(giver)

    def _path(self, giver: int) -> list[_Step]:
        """Steps that take one from the giver and leave it with somebody who has two less."""
        takers = [node for node, load in self.load.items() if load <= self.load[giver] - 2]
        for taker in sorted(takers, key=lambda node: (self.load[node], node)):
            step = self._pick(giver, taker, ())
            if step is not None:
                return [step]
        return self._detour(giver, takers) if takers else []

    def _detour(self, giver: int, takers: list[int]) -> list[_Step]:
        paths: dict[int, list[_Step]] = {giver: []}
        queue = deque([giver])
        while queue:
            node = queue.popleft()
            for other in self.load:
                if other in paths:
                    continue
                step = self._pick(node, other, [step.partition for step in paths[node]])
                if step is None:
                    continue
                paths[other] = [*paths[node], step]
                if other in takers:
                    return paths[other]
                queue.append(other)
        return []

    def _pick(self, giver: int, taker: int, but: Collection[Partition]) -> _Step | None:
        """A step between these two, of a topic of which the giver has most compared to the taker."""
        if (giver, taker) in self._barren:
            return None
        best: _Step | None = None
        best_gap = 0
        ours, theirs = self._topics[giver], self._topics[taker]
        top = max(ours.values(), default=0)
        for topic, parts in self._loose[giver].items():
            gap = ours[topic] - theirs[topic]
            if best is not None and gap <= best_gap:
                continue
            for partition in parts:
                step = _Step(partition, giver, taker)
                if partition not in but and self._may(step):
                    best, best_gap = step, gap
                    break
            if best is not None and best_gap >= top:
                break
        if best is None:
            self._barren.add((giver, taker))
        return best


class _Board:
    """All partitions, while a plan is being made."""

    def __init__(
        self,
        placed: Mapping[Partition, Replicas],
        racks: Mapping[int, str | None],
        usable: Collection[int],
    ) -> None:
        self._before = placed
        self.now = {partition: list(placed[partition]) for partition in sorted(placed)}
        self._racks = racks
        self.usable = sorted(usable)
        self.replicas = _Scale(self.usable, self._may_move, self._move)

    def plan(self) -> Plan:
        return {
            partition: tuple(nodes)
            for partition, nodes in self.now.items()
            if tuple(nodes) != tuple(self._before[partition])
        }

    def rack(self, node: int) -> object:
        return self._racks.get(node, _NOWHERE)

    def crowd(self, nodes: Collection[int]) -> Counter[object]:
        """How many of these are in each rack."""
        return Counter(self.rack(node) for node in nodes)

    def _may_move(self, step: _Step) -> bool:
        nodes = self.now[step.partition]
        if step.taker in nodes:
            return False
        old, new = self.rack(step.giver), self.rack(step.taker)
        if old == new:
            return True
        racks = [self.rack(node) for node in nodes]
        return racks.count(new) < racks.count(old)

    def _move(self, step: _Step) -> None:
        nodes = self.now[step.partition]
        nodes[nodes.index(step.giver)] = step.taker
        # One replica each of many partitions rather than all replicas of a few: most copies stay
        # where they are, and new brokers share partitions with all the others.
        for node in nodes:
            self.replicas.defer(step.partition, node)

    def spread_racks(self, partition: Partition) -> None:
        """Move replicas out of crowded racks, while there are emptier ones."""
        while True:
            nodes = self.now[partition]
            crowd = self.crowd(nodes)
            load = self.replicas.load
            givers = [node for node in nodes if node in load]
            takers = [node for node in self.usable if node not in nodes]
            if not givers or not takers:
                return
            giver = max(givers, key=lambda node: (crowd[self.rack(node)], load[node], -node))
            taker = min(takers, key=lambda node: (crowd[self.rack(node)], load[node], node))
            if crowd[self.rack(giver)] - crowd[self.rack(taker)] < 2:
                return
            self.replicas.step(_Step(partition, giver, taker))

    def even_firsts(self, loose: Collection[Partition]) -> None:
        """Let as many partitions begin with each broker; only these may change their order."""

        def may_begin(step: _Step) -> bool:
            return step.taker in self.now[step.partition]

        def begin(step: _Step) -> None:
            nodes = self.now[step.partition]
            nodes.remove(step.taker)
            nodes.insert(0, step.taker)

        firsts = _Scale(self.usable, may_begin, begin)
        for partition, nodes in self.now.items():
            firsts.add(partition, nodes[0], is_loose=partition in loose)
        firsts.even()


def rebalance(
    placed: Mapping[Partition, Replicas],
    racks: Mapping[int, str | None],
    fixed: Collection[int] = (),
    missing: Mapping[Partition, int] | None = None,
) -> Plan:
    """The fewest moves after which replicas and first replicas are even. See the module.

    `missing`: how many replicas a partition shall get besides.
    """
    board = _Board(placed, racks, [node for node in racks if node not in fixed])
    for partition, nodes in board.now.items():
        for node in nodes:
            board.replicas.add(partition, node, is_loose=True)
    for partition, count in sorted((missing or {}).items()):
        for _ in range(count):
            _give(board, partition)
    for partition in board.now:
        board.spread_racks(partition)
    board.replicas.even()
    board.even_firsts(board.now.keys())
    return board.plan()


def decommission(
    placed: Mapping[Partition, Replicas],
    racks: Mapping[int, str | None],
    leaving: int,
    fixed: Collection[int] = (),
) -> Plan:
    """Others take over what the leaving broker has; nothing else moves. See the module.

    Raises PlanError if a partition would have to lose a replica.
    """
    usable = [node for node in racks if node not in fixed and node != leaving]
    board = _Board(placed, racks, usable)
    touched = {partition: None for partition, nodes in board.now.items() if leaving in nodes}
    for partition, nodes in board.now.items():
        for node in nodes:
            board.replicas.add(partition, node, is_loose=False)
    short = [partition for partition in touched if not set(usable) - set(board.now[partition])]
    if short:
        topic, index = short[0]
        raise PlanError(
            f"No broker can take over the replica of broker {leaving} for {topic}-{index} "
            f"({len(short)} partition(s) in all): each usable one has a replica already."
        )
    for partition in touched:
        _replace(board, partition, leaving)
    board.replicas.even()
    board.even_firsts(touched.keys())
    return board.plan()


def _replace(board: _Board, partition: Partition, leaving: int) -> None:
    """Somebody else has the partition; who has it already comes first."""
    board.now[partition].remove(leaving)
    _give(board, partition)


def _give(board: _Board, partition: Partition) -> None:
    """One more broker has the partition, if there is one: of the emptiest rack, with the least."""
    nodes = board.now[partition]
    crowd = board.crowd(nodes)
    load = board.replicas.load
    heir = min(
        (node for node in board.usable if node not in nodes),
        key=lambda node: (
            crowd[board.rack(node)],
            load[node],
            board.replicas.of_topic(node, partition[0]),
            node,
        ),
        default=None,
    )
    if heir is not None:
        nodes.append(heir)
        board.replicas.add(partition, heir, is_loose=True)
