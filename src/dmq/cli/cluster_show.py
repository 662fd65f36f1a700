"""`dmq cluster status` in words and tables. Owns how a cluster looks to a person, and asks nothing."""

from collections.abc import Iterable, Mapping

from dmq.cli.cluster_facts import Broker, Cluster, Copies, Partition, Quorum
from dmq.cli.cluster_wire import Where
from dmq.cli.output import Column, Output, count_of, human_size, percent

SHOWN_MAX = 20
"""Partitions in trouble that are listed; the rest are counted."""

NAMED_MAX = 5
"""Partitions that are named within a sentence."""


def show(output: Output, cluster: Cluster, *, all_of_them: bool) -> None:
    """Everything that matters, the worst first."""
    output.heading(f"cluster {cluster.cluster_id}: {verdict(cluster)}")
    output.say(f"  {_counts(cluster)}")
    for problem in problems(cluster):
        output.say(f"  {problem}")
    if cluster.quorum is not None and cluster.quorum.has_leader:
        output.say(f"  {_quorum(cluster.quorum)}")
    output.table(
        [
            Column("broker", True),
            Column("address"),
            Column("rack"),
            Column("state"),
            Column("metadata"),
            Column("leaders", True),
            Column("replicas", True),
            Column("logs", True),
            Column("disk free", True),
        ],
        (_broker_row(cluster, broker) for broker in cluster.brokers.values()),
    )
    limit = None if all_of_them else SHOWN_MAX
    _show_partitions(output, "without leader", cluster.leaderless, limit)
    led = [each for each in cluster.under_replicated if each.has_leader]
    _show_partitions(output, "under-replicated", led, limit)
    _show_moves(output, cluster, limit)


def verdict(cluster: Cluster) -> str:
    """One word on the whole."""
    if cluster.leaderless:
        return "not available in part"
    return "healthy" if cluster.is_healthy else "degraded"


def problems(cluster: Cluster) -> list[str]:
    """A sentence for each kind of trouble."""
    told = []
    if cluster.is_headless:
        told.append(_headless(cluster))
    if cluster.down:
        nodes = ", ".join(str(broker.node) for broker in cluster.down)
        told.append(f"{count_of(len(cluster.down), 'broker')} down: {nodes}")
    if cluster.leaderless:
        told.append(f"{count_of(len(cluster.leaderless), 'partition')} without a leader")
    if cluster.under_replicated:
        told.append(f"{count_of(len(cluster.under_replicated), 'partition')} under-replicated")
    if cluster.thin:
        told.append(_thin(cluster.thin))
    if cluster.moves:
        told.append(f"{count_of(len(cluster.moves), 'partition')} moving")
    if cluster.not_preferred:
        told.append(
            f"{count_of(len(cluster.not_preferred), 'partition')} not led by the preferred replica"
            " (`dmq cluster elect --preferred`)"
        )
    return told


def _headless(cluster: Cluster) -> str:
    down = f" ({ids(broker.node for broker in cluster.down)})" if cluster.down else ""
    return (
        "the metadata have no leader: topics, settings and replicas can't be changed. Start the"
        f" brokers that are down{down}; if their disks are lost, see `dmq serve --accept-lost`"
        " and docs/CLUSTER.md"
    )


def _thin(thin: Mapping[Where, int]) -> str:
    names = [f"{topic}:{index}" for topic, index in list(thin)[:NAMED_MAX]]
    rest = f" and {len(thin) - NAMED_MAX:,} more" if len(thin) > NAMED_MAX else ""
    verb = "has" if len(thin) == 1 else "have"
    return (
        f"{count_of(len(thin), 'partition')} {verb} fewer replicas than the rest of the topic:"
        f" {', '.join(names)}{rest} (`dmq cluster rebalance` gives them back)"
    )


def _counts(cluster: Cluster) -> str:
    return ", ".join(
        (
            count_of(len(cluster.brokers), "broker"),
            count_of(cluster.topic_count, "topic"),
            count_of(len(cluster.partitions), "partition"),
        )
    )


def _quorum(quorum: Quorum) -> str:
    behind = [f"{each.node} by {each.lag}" for each in quorum.members if each.lag > 0]
    lag = f", behind: {', '.join(behind)}" if behind else ""
    return (
        f"metadata led by {quorum.leader} (epoch {quorum.leader_epoch}), voters {ids(quorum.voters)},"
        f" committed to {quorum.high_watermark}{lag}"
    )


def _broker_row(cluster: Cluster, broker: Broker) -> list[object]:
    disk = broker.disk
    free = None if disk is None or disk.free_bytes is None else human_size(disk.free_bytes)
    return [
        broker.node,
        broker.address,
        broker.rack,
        "up" if broker.is_up else "down" if broker.host else "unknown",
        _part(cluster.quorum, broker.node),
        broker.leaders,
        broker.replicas,
        None if disk is None else human_size(disk.log_bytes),
        free,
    ]


def _part(quorum: Quorum | None, node: int) -> str | None:
    """What a broker is to the metadata log."""
    if quorum is None:
        return None
    if not quorum.has_leader:
        return "?"
    if node == quorum.leader:
        return "leader"
    return next(
        ("voter" if each.is_voter else "observer" for each in quorum.members if each.node == node),
        None,
    )


def _show_partitions(
    output: Output, what: str, partitions: list[Partition], limit: int | None
) -> None:
    if not partitions:
        return
    output.heading(f"Partitions {what}")
    columns = [Column("partition"), Column("leader", True), Column("replicas"), Column("in sync")]
    columns.append(Column("down"))
    output.table(columns, map(_partition_row, partitions[:limit]))
    _note_rest(output, len(partitions), limit)


def _partition_row(partition: Partition) -> list[object]:
    return [
        partition.name,
        partition.leader if partition.has_leader else "none",
        ids(partition.replicas),
        ids(partition.isr),
        ids(partition.offline),
    ]


def _show_moves(output: Output, cluster: Cluster, limit: int | None) -> None:
    if not cluster.moves:
        return
    output.heading("Partitions moving")
    columns = [Column("partition"), Column("replicas"), Column("adding"), Column("removing")]
    columns.append(Column("copied"))
    rows = [
        [
            f"{move.topic}:{move.partition}",
            ids(move.replicas),
            ids(move.adding),
            ids(move.removing),
            _how_far(cluster.copies(move)),
        ]
        for move in cluster.moves[:limit]
    ]
    output.table(columns, rows)
    _note_rest(output, len(cluster.moves), limit)


def _how_far(copies: Copies) -> str | None:
    copied, total = copies
    if total is None:
        return None
    if copied is None:
        return f"? of {human_size(total)}"
    return f"{human_size(copied)} of {human_size(total)} ({percent(copied, total)})"


def _note_rest(output: Output, count: int, limit: int | None) -> None:
    if limit is not None and count > limit:
        output.note(f"… and {count - limit:,} more; --all lists them")


def ids(nodes: Iterable[int]) -> str:
    """1,2,3"""
    return ",".join(map(str, nodes))
