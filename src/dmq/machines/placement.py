"""Which brokers get the replicas of a new partition.

A topic is spread evenly over the brokers first of all, then the cluster: so a new, empty broker
gets its share of each new topic, not all of it. The first replica (the preferred leader) goes where
the fewest are; the others to racks that have none of them yet, then where the fewest are. Of the
others, the one that takes over when the first dies (the second) is the one that stands beside it
least often, so that a broker's leaderships don't all fall to the same successor. No dice: the same
state gives the same placement.

Brokers that are up come before those that are down, which only fill up what is missing, and are never
first. Such a founder is merely late: it can have promised nothing yet under the name that it is
registered with, so it begins as a voter with an empty log; and if it comes back with another disk it
is somebody else, who learns first. The second may be down: elections leave out who is.
"""

from collections.abc import Collection, Iterable, Mapping

from dmq.machines.state import BrokerLoad


class Placer:
    """Places partitions one after another, counting in what it placed. Lives for one command."""

    __slots__ = (
        "_down",
        "_first",
        "_live",
        "_nodes",
        "_pairs",
        "_racks",
        "_replicas",
        "_topic_first",
        "_topic_replicas",
    )

    def __init__(
        self,
        racks: Mapping[int, str | None],
        loads: Mapping[int, BrokerLoad],
        pairs: Mapping[tuple[int, ...], int],
        live: Collection[int] | None = None,
    ) -> None:
        """`racks`: all brokers that may get replicas. `live`: those that are up; None: all."""
        self._nodes = sorted(racks)
        self._live = [node for node in self._nodes if live is None or node in live]
        self._down = frozenset(self._nodes).difference(self._live)
        self._racks = racks
        self._replicas = {node: loads[node].replicas if node in loads else 0 for node in racks}
        self._first = {node: loads[node].first if node in loads else 0 for node in racks}
        self._pairs = dict(pairs)
        self.begin_topic(())

    @property
    def size(self) -> int:
        """How many replicas a partition can have."""
        return len(self._nodes)

    @property
    def live(self) -> int:
        """How many brokers of those are up."""
        return len(self._live)

    def begin_topic(self, partitions: Iterable[tuple[int, ...]]) -> None:
        """The next partitions are of one topic, which has these already."""
        self._topic_first = dict.fromkeys(self._nodes, 0)
        self._topic_replicas = dict.fromkeys(self._nodes, 0)
        for replicas in partitions:
            for node in replicas:
                if node in self._topic_replicas:
                    self._topic_replicas[node] += 1
            if replicas[0] in self._topic_first:
                self._topic_first[replicas[0]] += 1

    def place(self, count: int) -> tuple[int, ...]:
        """Brokers for the replicas of one partition, in order of preference."""
        assert 0 < count <= len(self._nodes), (count, self._nodes)
        assert self._live, "somebody is up"
        chosen = [min(self._live, key=self._first_cost)]
        while len(chosen) < count:
            chosen.append(self._next(chosen))
        if count > 2:
            self._choose_second(chosen)
        self._note(chosen)
        return tuple(chosen)

    def _first_cost(self, node: int) -> tuple[int, int, int]:
        return self._topic_first[node], self._first[node], self._replicas[node]

    def _next(self, chosen: list[int]) -> int:
        used = [self._racks[node] for node in chosen]
        # Ties go round from the first replica, not to the lowest number.
        start = self._nodes.index(chosen[0])
        rotated = self._nodes[start:] + self._nodes[:start]

        def cost(node: int) -> tuple[bool, int, int, int]:
            in_rack = used.count(self._racks[node])
            is_down = node in self._down
            return is_down, in_rack, self._topic_replicas[node], self._replicas[node]

        return min((node for node in rotated if node not in chosen), key=cost)

    def _choose_second(self, chosen: list[int]) -> None:
        """Puts the best successor of the first replica in second place."""
        first, rack = chosen[0], self._racks[chosen[0]]

        def cost(node: int) -> tuple[bool, int]:
            same_rack = rack is not None and self._racks[node] == rack
            return same_rack, self._pairs.get((first, node), 0)

        second = min(chosen[1:], key=cost)
        chosen.remove(second)
        chosen.insert(1, second)

    def _note(self, replicas: list[int]) -> None:
        for node in replicas:
            self._replicas[node] += 1
            self._topic_replicas[node] += 1
        self._first[replicas[0]] += 1
        self._topic_first[replicas[0]] += 1
        if len(replicas) > 1:
            pair = (replicas[0], replicas[1])
            self._pairs[pair] = self._pairs.get(pair, 0) + 1
