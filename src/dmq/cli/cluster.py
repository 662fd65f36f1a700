"""`dmq cluster status|rebalance|decommission`; the commands about leaders are in `cluster_leaders`.

Owns the options and words of these commands. They use Kafka's own admin requests (`cluster_wire`),
so they work with any Kafka cluster over plain connections. What a cluster looks like is gathered by
`cluster_facts`, where replicas should go is decided by `plans`, moves are carried out by
`cluster_moves`, and brokers taken out by `cluster_farewell`.
"""

import sys
import time
from typing import Annotated, Any

import typer

from dmq.cli import cluster_leaders
from dmq.cli.cluster_facts import Cluster, as_json, gather
from dmq.cli.cluster_farewell import TakingOut
from dmq.cli.cluster_leaders import elect_preferred
from dmq.cli.cluster_moves import Carried, Plan, carry_out, time_over
from dmq.cli.cluster_show import ids, show
from dmq.cli.cluster_wire import ClusterWire, Where
from dmq.cli.cluster_words import broker_of, complain, confirm, outcomes_json
from dmq.cli.command import command
from dmq.cli.exits import CommandError, Exit, not_found, usage, worst
from dmq.cli.output import Column, count_of, human_size
from dmq.cli.plain_help import PlainGroup
from dmq.cli.session import Session, no_metadata_leader

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
ELECTION_S = 5.0
"""How long the metadata may be without a leader: they elect one within a second, if they can."""

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

    Disks are those of the brokers that answer. A broker is down when the one that is asked has not heard
    it for half a second: if all others seem to be down, ask another.
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
        cluster = _changeable(wire)
        plan = rebalancing(cluster)
        if dry_run:
            return _show_plan(session, cluster, plan)
        carried = carry_out(session, wire, cluster, plan, at_once=at_once, timeout_s=timeout)
        elected = [] if carried.is_over else elect_preferred(wire, None)
    failed = [each for each in elected if each.code]
    if session.output.json:
        session.output.emit(_carried_json(carried) | {"elections": outcomes_json(elected)})
    else:
        _say_carried(session, carried)
        led = count_of(len(elected) - len(failed), "leader")
        session.output.say(f"{led} changed to the preferred replica")
    complain(session, failed)
    if carried.is_over:
        raise time_over(carried)
    return worst(len(carried.moved) or 1, len(carried.refused) + len(failed))


@command(
    app,
    "decommission",
    """
    dmq cluster decommission 3 --dry-run
    dmq cluster decommission 3 --yes
    dmq cluster decommission 6 9
    """,
)
def decommission(
    session: Session,
    brokers: Annotated[
        list[str], typer.Argument(metavar="ID", show_default=False, help="The broker, or several.")
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
    at_once: AtOnce = AT_ONCE,
    timeout: Timeout = None,
) -> Exit:
    """Take brokers out of the cluster: move all their replicas away, then forget them.

    They may be up or down. Interrupted, it can be called again and goes on where it was. A broker's
    process ends by itself when the cluster has let it go. Several that leave are best named together:
    then nothing moves from one of them to another.
    """
    from dmq.cli.plans import farewell

    nodes = list(dict.fromkeys(map(broker_of, brokers)))
    with ClusterWire(session) as wire:
        cluster = _changeable(wire)
        for node in nodes:
            if node not in cluster.brokers:
                raise not_found(f"There is no broker {node}", "See `dmq cluster status`.")
        plan = farewell(cluster, nodes)
        if dry_run:
            return _show_plan(session, cluster, plan)
        if not yes:
            what = count_of(len(plan), "partition")
            who, them = ("broker", "it") if len(nodes) == 1 else ("brokers", "them")
            question = f"Move {what} away from {who} {ids(nodes)} and forget {them}?"
            confirm(question, "Nothing was moved")
        taking = TakingOut(session, wire, nodes, at_once=at_once, timeout_s=timeout)
        done = taking.run(cluster, plan)
    if session.output.json:
        one = {"broker": nodes[0]} if len(nodes) == 1 else {}
        gone = {"brokers": nodes, "gone": done.gone, "unregistered": done.gone == nodes}
        session.output.emit(one | gone | _carried_json(done.carried))
    else:
        _say_carried(session, done.carried)
        for node in done.gone:
            rest = ", and its process ends" if cluster.brokers[node].is_up else ""
            session.output.say(f"Broker {node} is no longer part of the cluster{rest}")
    if done.error is not None:
        raise done.error
    return worst(len(done.carried.moved), len(done.carried.refused))


def _changeable(wire: ClusterWire) -> Cluster:
    """A cluster that takes orders. Raises CommandError if it does not come to have a leader."""
    deadline = time.monotonic() + ELECTION_S
    while (cluster := gather(wire)).is_headless:
        if time.monotonic() > deadline:
            raise no_metadata_leader()
        time.sleep(0.2)
    return cluster


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
        "moving": [{"topic": topic, "partition": index} for topic, index in carried.moving],
        "refused": outcomes_json(carried.refused),
    }
