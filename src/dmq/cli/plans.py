"""Where replicas should go: the cluster as it was told, put to the planner of `machines.planning`.

Owns the translation only: brokers that are down keep what they have and get nothing, a partition that
is being moved counts as where it is going, and one of which nobody can be sure is left alone. Used by
`dmq cluster`.
"""

from dmq.cli.cluster_facts import Cluster
from dmq.cli.cluster_moves import Plan
from dmq.cli.exits import CommandError
from dmq.machines import planning


def rebalancing(cluster: Cluster) -> Plan:
    """The moves after which replicas and preferred leaders are even, and no partition is thin."""
    return planning.rebalance(cluster.placed, _racks(cluster), _down(cluster), cluster.thin)


def farewell(cluster: Cluster, node: int) -> Plan:
    """The moves after which a broker has nothing any more. Raises CommandError if it can't be."""
    try:
        return planning.decommission(cluster.placed, _racks(cluster), node, _down(cluster))
    except planning.PlanError as error:
        raise CommandError(
            f"Broker {node} can't be taken out: {error}",
            hint="Add a broker first, or give these topics fewer replicas.",
        ) from error


def _racks(cluster: Cluster) -> dict[int, str | None]:
    return {broker.node: broker.rack for broker in cluster.brokers.values()}


def _down(cluster: Cluster) -> list[int]:
    return [broker.node for broker in cluster.down]
