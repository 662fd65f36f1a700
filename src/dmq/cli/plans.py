"""Where replicas should go: the cluster as it was told, put to the planner of `machines.planning`.

Owns the translation only: brokers that are down keep what they have and get nothing, a partition that
is being moved counts as where it is going, and one of which nobody can be sure is left alone. Used by
`dmq cluster`.
"""

from collections.abc import Sequence

from dmq.cli.cluster_facts import Cluster
from dmq.cli.cluster_moves import Plan
from dmq.cli.cluster_show import ids
from dmq.cli.exits import CommandError
from dmq.machines import planning


def rebalancing(cluster: Cluster) -> Plan:
    """The moves after which replicas and preferred leaders are even, and no partition is thin."""
    return planning.rebalance(cluster.placed, _racks(cluster), _down(cluster), cluster.thin)


def farewell(cluster: Cluster, nodes: Sequence[int]) -> Plan:
    """The moves after which these brokers have nothing any more. Nothing goes to one of them, nor to
    those that somebody else empties as far as there are others. Raises CommandError if it can't be."""
    taken = {node for move in cluster.moves for node in move.removing}
    emptied = taken - {node for move in cluster.moves for node in move.adding}
    try:
        return _farewell(cluster, nodes, [*_down(cluster), *emptied])
    except CommandError:
        return _farewell(cluster, nodes, _down(cluster))


def _farewell(cluster: Cluster, nodes: Sequence[int], fixed: Sequence[int]) -> Plan:
    placed, racks = cluster.placed, _racks(cluster)
    now = dict(placed)
    for node in nodes:
        others = [each for each in nodes if each != node]
        try:
            now |= planning.decommission(now, racks, node, [*fixed, *others])
        except planning.PlanError as error:
            down = [each.node for each in cluster.down if each.node not in nodes]
            start = f"Start the brokers that are down ({ids(down)}), or add" if down else "Add"
            raise CommandError(
                f"Broker {node} can't be taken out: {error}",
                hint=f"{start} a broker first, or give these topics fewer replicas.",
            ) from error
    return {where: after for where, after in now.items() if after != placed[where]}


def _racks(cluster: Cluster) -> dict[int, str | None]:
    return {broker.node: broker.rack for broker in cluster.brokers.values()}


def _down(cluster: Cluster) -> list[int]:
    return [broker.node for broker in cluster.down]
