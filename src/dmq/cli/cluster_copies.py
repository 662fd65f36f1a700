"""How far a plan of moves is: the bytes that new replicas have, of those that they shall have.

Owns that arithmetic, and the questions to brokers that copy. A new replica shall have as much as the
largest of the others had at the beginning: near enough, for records come and go meanwhile; who has
arrived has all of it. Never prints.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

from dmq.cli.cluster_facts import Cluster, partition_sizes
from dmq.cli.cluster_wire import ClusterWire, Where

ASK_EACH_S = 1.0
"""Between two questions to a broker that copies: people look no faster."""
ASK_AGAIN_S = 15.0
"""A broker that did not answer is left alone for so long: a question to it may take seconds."""


class CopyWatch:
    """The copies of a plan from its beginning to its end."""

    def __init__(
        self, wire: ClusterWire, cluster: Cluster, plan: Mapping[Where, Sequence[int]]
    ) -> None:
        self._wire = wire
        self._addresses = {
            broker.node: (broker.host, broker.port)
            for broker in cluster.brokers.values()
            if broker.host is not None and broker.port is not None
        }
        self._wanted = _wanted(cluster, plan)
        self._has: dict[Where, dict[int, int]] = {where: {} for where in plan}
        self._ask_at = dict.fromkeys(self._addresses, 0.0)

    @property
    def total_bytes(self) -> int:
        return sum(sum(sizes.values()) for sizes in self._wanted.values())

    @property
    def copied_bytes(self) -> int:
        return sum(sum(sizes.values()) for sizes in self._has.values())

    def refused(self, where: Where) -> None:
        """It stays where it is: there is nothing to copy."""
        self._wanted.pop(where, None)
        self._has.pop(where, None)

    def arrived(self, where: Where) -> None:
        self._has[where] = self._wanted[where]

    def look(self, under_way: Iterable[Where]) -> bool:
        """Ask the brokers that get these partitions, unless they were asked just now; whether they
        have more than before."""
        before = self.copied_bytes
        by_node: dict[int, list[Where]] = {}
        for where in under_way:
            for node, size in self._wanted[where].items():
                if size:
                    by_node.setdefault(node, []).append(where)
        for node, wanted in by_node.items():
            if node in self._addresses and time.monotonic() >= self._ask_at[node]:
                self._ask(node, wanted)
        return self.copied_bytes > before

    def _ask(self, node: int, wanted: list[Where]) -> None:
        told = self._wire.log_dirs(*self._addresses[node], wanted)
        self._ask_at[node] = time.monotonic() + (ASK_AGAIN_S if told is None else ASK_EACH_S)
        if told is None:
            return
        sizes = partition_sizes(told)
        for where in wanted:
            self._has[where][node] = min(sizes.get(where, 0), self._wanted[where][node])


def _wanted(cluster: Cluster, plan: Mapping[Where, Sequence[int]]) -> dict[Where, dict[int, int]]:
    """By partition: its new replicas, and the bytes of each; 0 where nobody says."""
    adding = {move.where: move.adding for move in cluster.moves}
    before = {each.where: each.replicas for each in cluster.partitions}
    wanted: dict[Where, dict[int, int]] = {}
    for where, after in plan.items():
        settled = [node for node in before.get(where, ()) if node not in adding.get(where, ())]
        size = cluster.size(where, settled) or 0
        wanted[where] = {node: size for node in after if node not in settled}
    return wanted
