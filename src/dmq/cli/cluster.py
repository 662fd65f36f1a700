"""`dmq cluster status|rebalance|decommission`; the commands about leaders are in `cluster_leaders`.

Owns the options and words of these commands. They use Kafka's own admin requests (`cluster_wire`),
so they work with any Kafka cluster over plain connections. What a cluster looks like is gathered by
`cluster_facts`, where replicas should go is decided by `plans`, moves are carried out by
`cluster_moves`.
"""

import sys
import time
from typing import Annotated, Any

import typer

from dmq.cli import cluster_leaders
from dmq.cli.cluster_facts import Cluster, as_json, gather
from dmq.cli.cluster_leaders import elect_preferred
from dmq.cli.cluster_moves import Carried, Plan, await_farewell, carry_out
from dmq.cli.cluster_show import ids, show
from dmq.cli.cluster_wire import ClusterWire, Where
from dmq.cli.cluster_words import complain, confirm, outcomes_json
from dmq.cli.command import command
from dmq.cli.exits import CommandError, Exit, not_found, usage, worst
from dmq.cli.output import Column, count_of, human_size
from dmq.cli.plain_help import PlainGroup
from dmq.cli.session import Session

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Watch a cluster, balance it, take brokers out, move leaders.",
)
app.registered_commands += cluster_leaders.app.registered_commands

AT_ONCE = 20
"""Partitions that move at the same time unless something else is said."""
WATCH_S = 2.0

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan, change nothing.")]
AtOnce = Annotated[
    int, typer.Option("--at-once", metavar="N", min=1, help="Partitions that move at a time.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0, help="Stop waiting then; moves that began go on."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


# --- status --------------------------------------------------------------------------------------


@command(
    app,
    "status",
    """
    dmq cluster status
    dmq cluster status --watch
    dmq cluster status --check --json
    """,
)
def status(
    session: Session,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Between two looks.")
    ] = WATCH_S,
    all_: Annotated[
        bool, typer.Option("--all", help="List every partition in trouble, not only the first 20.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit code 1 unless everything is as it should be.")
    ] = False,
) -> Exit:
    """Show brokers, metadata quorum and partitions in trouble.

    Disks are those of the brokers that answer. A broker is down when the cluster says so.
    """
    with ClusterWire(session) as wire:
        if not watch:
            cluster = gather(wire)
            _tell(session, cluster, all_of_them=all_)
            return Exit.FAILURE if check and not cluster.is_healthy else Exit.OK
        while True:
            _look(session, wire, all_of_them=all_)
            time.sleep(interval)


def _look(session: Session, wire: ClusterWire, *, all_of_them: bool) -> None:
    """One look of a watch; a cluster that can't be reached just now may come back."""
    try:
        cluster = gather(wire)
    except CommandError as error:
        session.output.error(error.message)
        return
    if session.output.is_terminal and not session.output.json:
        sys.stdout.write("\x1b[H\x1b[2J")
    _tell(session, cluster, all_of_them=all_of_them)
    sys.stdout.flush()


def _tell(session: Session, cluster: Cluster, *, all_of_them: bool) -> None:
    if session.output.json:
        session.output.emit(as_json(cluster))
    else:
        show(session.output, cluster, all_of_them=all_of_them)


# --- moving replicas -----------------------------------------------------------------------------


@command(
    app,
    "rebalance",
    """
    dmq cluster rebalance --dry-run
    dmq cluster rebalance --at-once 5
    """,
)
def rebalance(
    session: Session,
    dry_run: DryRun = False,
    at_once: AtOnce = AT_ONCE,
    throttle: Annotated[
        str,
        typer.Option("--throttle", metavar="none", help="Copies run unthrottled; see --at-once."),
    ] = "none",
    timeout: Timeout = None,
) -> Exit:
    """Spread replicas and leaders evenly over the brokers that are up.

    Moves as few replicas as that takes, keeps racks apart, and then lets preferred leaders lead.
    """
    from dmq.cli.plans import rebalancing

    if throttle != "none":
        raise usage(
            f"--throttle {throttle!r} can't be done: copies run at full speed",
            "Use --at-once to let fewer partitions move at a time.",
        )
    with ClusterWire(session) as wire:
        cluster = gather(wire)
        plan = rebalancing(cluster)
        if dry_run:
            return _show_plan(session, cluster, plan)
        carried = _carry_out(session, wire, cluster, plan, at_once, timeout)
        elected = elect_preferred(wire, None)
    failed = [each for each in elected if each.code]
    if session.output.json:
        session.output.emit(_carried_json(carried) | {"elections": outcomes_json(elected)})
    else:
        _say_carried(session, carried)
        led = count_of(len(elected) - len(failed), "leader")
        session.output.say(f"{led} changed to the preferred replica")
    complain(session, failed)
    return worst(len(carried.moved) or 1, len(carried.refused) + len(failed))


@command(
    app,
    "decommission",
    """
    dmq cluster decommission 3 --dry-run
    dmq cluster decommission 3 --yes
    """,
)
def decommission(
    session: Session,
    node: Annotated[int, typer.Argument(metavar="ID", show_default=False, help="The broker.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    at_once: AtOnce = AT_ONCE,
    timeout: Timeout = None,
) -> Exit:
    """Take a broker out of the cluster: move all its replicas away, then forget it.

    It may be up or down. Interrupted, it can be called again and goes on where it was. The broker's
    process ends by itself when the cluster has let it go.
    """
    from dmq.cli.plans import farewell

    with ClusterWire(session) as wire:
        cluster = gather(wire)
        if node not in cluster.brokers:
            raise not_found(f"There is no broker {node}", "See `dmq cluster status`.")
        plan = farewell(cluster, node)
        if dry_run:
            return _show_plan(session, cluster, plan)
        if not yes:
            what = count_of(len(plan), "partition")
            confirm(f"Move {what} away from broker {node} and forget it?", "Nothing was moved")
        # A call before this one may have begun some of it.
        begun = {(m.topic, m.partition): m.replicas for m in cluster.moves if node in m.removing}
        carried = _carry_out(session, wire, cluster, plan, at_once, timeout, begun)
        if not carried.refused:
            if plan:
                elect_preferred(wire, list(plan))
            leaving = cluster.brokers[node]
            if leaving.host is not None and leaving.port is not None:
                wire.avoid((leaving.host, leaving.port))
                wire.unregister(node)
                await_farewell(session, wire, node, timeout)
    is_gone = not carried.refused
    if session.output.json:
        session.output.emit({"broker": node, "unregistered": is_gone} | _carried_json(carried))
    else:
        _say_carried(session, carried)
        if is_gone:
            rest = ", and its process ends" if cluster.brokers[node].is_up else ""
            session.output.say(f"Broker {node} is no longer part of the cluster{rest}")
    return worst(len(carried.moved), len(carried.refused))


def _carry_out(
    session: Session,
    wire: ClusterWire,
    cluster: Cluster,
    plan: Plan,
    at_once: int,
    timeout_s: float | None,
    begun: Plan | None = None,
) -> Carried:
    before = {each.where: each.replicas for each in cluster.partitions}
    if any(len(before[where]) == 1 for where in plan):
        session.output.note(
            "partitions with a single replica need their old and their new broker while they move"
        )
    try:
        return carry_out(
            session, wire, cluster, plan, at_once=at_once, timeout_s=timeout_s, begun=begun
        )
    except KeyboardInterrupt:
        session.output.note("moves that began go on by themselves: see `dmq cluster status`")
        raise


def _show_plan(session: Session, cluster: Cluster, plan: Plan) -> Exit:
    before = {each.where: each for each in cluster.partitions}
    sizes = _sizes(cluster)
    copied = 0
    rows: list[list[object]] = []
    moves: list[dict[str, Any]] = []
    for where, after in sorted(plan.items()):
        old = before[where].replicas
        new = [node for node in after if node not in old]
        size = sizes.get(where)
        copied += (size or 0) * len(new)
        rows.append(
            [before[where].name, ids(old), ids(after), None if size is None else human_size(size)]
        )
        moves.append(
            {
                "topic": where[0],
                "partition": where[1],
                "replicas": old,
                "new_replicas": list(after),
                "size_bytes": size,
            }
        )
    if session.output.json:
        session.output.emit({"dry_run": True, "moves": moves, "copied_bytes": copied})
        return Exit.OK
    if rows:
        columns = [Column("partition"), Column("replicas"), Column("new replicas")]
        session.output.table([*columns, Column("size", True)], rows)
    session.output.say(
        f"{count_of(len(plan), 'partition')} would change, {human_size(copied)} would be copied"
    )
    return Exit.OK


def _sizes(cluster: Cluster) -> dict[Where, int]:
    """The largest copy of each partition that somebody tells of."""
    sizes: dict[Where, int] = {}
    for broker in cluster.brokers.values():
        for where, size in (broker.disk.sizes if broker.disk else {}).items():
            sizes[where] = max(size, sizes.get(where, 0))
    return sizes


def _say_carried(session: Session, carried: Carried) -> None:
    session.output.say(f"{count_of(len(carried.moved), 'partition')} moved")
    complain(session, carried.refused)


def _carried_json(carried: Carried) -> dict[str, Any]:
    return {
        "moved": [{"topic": topic, "partition": index} for topic, index in carried.moved],
        "refused": outcomes_json(carried.refused),
    }
