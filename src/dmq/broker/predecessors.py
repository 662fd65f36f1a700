"""Brokers that are registered where this one listens: one address can't be two brokers'.

Mostly that is a broker whose folder was emptied and which joined again without its number: the cluster
took it for a new one, and waits for the old one and its replicas. Told once, by the newcomer, who is the
only one to know. Called by the runtime when it has read the metadata that it joined.
"""

import logging

from dmq.machines.state import ClusterState

log = logging.getLogger("dmq.broker")


def tell_predecessors(state: ClusterState, me: int) -> None:
    """Say which other brokers have an address of ours, and what to do about it."""
    for node, address in predecessors(state, me).items():
        log.warning(
            "broker %d is registered at %s, which is an address of this broker %d: it is down, or lives "
            "elsewhere by now. If this is its new disk, it should have its number: stop this broker, run "
            "`dmq cluster decommission %d`, and start it with an empty data directory and --node-id %d. "
            "If broker %d is gone for good, `dmq cluster decommission %d` gives its replicas to others",
            node,
            address,
            me,
            me,
            node,
            node,
            node,
        )


def predecessors(state: ClusterState, me: int) -> dict[int, str]:
    """By node id: the first address that is ours as well."""
    ours = {(endpoint.host, endpoint.port) for endpoint in state.brokers[me].endpoints}
    found: dict[int, str] = {}
    for node, broker in sorted(state.brokers.items()):
        for endpoint in broker.endpoints:
            if node != me and (endpoint.host, endpoint.port) in ours:
                found.setdefault(node, f"{endpoint.host}:{endpoint.port}")
    return found
