"""`dmq cluster transfer-leader|elect`: who leads which partition.

Owns the options and words of these two commands; they belong to the group in `cluster`. A leader is
moved by preferring it: another order of the replicas (AlterPartitionReassignments), then an election
of the preferred one (ElectLeaders), as on any Kafka cluster.
"""

import time
from typing import Annotated

import typer

from dmq.cli.cluster_facts import gather
from dmq.cli.cluster_show import ids
from dmq.cli.cluster_wire import PREFERRED, ClusterWire, Outcome, Where
from dmq.cli.cluster_words import broker_of, complain, no_partition, outcomes_json, partition_of
from dmq.cli.command import command
from dmq.cli.exits import CommandError, Exit, usage, worst
from dmq.cli.output import count_of
from dmq.cli.session import Session
from dmq.errors import ErrorCode

app = typer.Typer()

_TAKES_OVER_S = 30.0
"""How long a leader that was asked for may take to lead."""


@command(
    app,
    "transfer-leader",
    """
    dmq cluster transfer-leader orders:3 2
    dmq cluster transfer-leader orders:0 1 --json
    """,
)
def transfer_leader(
    session: Session,
    partition: Annotated[
        str, typer.Argument(metavar="TOPIC:PARTITION", show_default=False, help="Which one.")
    ],
    broker: Annotated[
        str, typer.Argument(metavar="BROKER", show_default=False, help="Who shall lead it.")
    ],
) -> Exit:
    """Let another replica lead a partition, and prefer it from now on."""
    where, node = partition_of(partition), broker_of(broker)
    with ClusterWire(session) as wire:
        cluster = gather(wire, disks=False)
        found = cluster.partition(where)
        if found is None:
            raise no_partition(cluster, where)
        staying = cluster.placed.get(where, tuple(found.replicas))
        if node not in staying:
            stays = " that stays" if node in found.replicas else ""
            raise usage(
                f"Broker {node} has no replica of {partition}{stays}: {ids(staying)} have",
                "`dmq cluster rebalance` and Kafka's reassignments give brokers replicas.",
            )
        if not cluster.brokers[node].is_up:
            raise CommandError(
                f"Broker {node} is down, and who is down can't lead {partition}",
                hint="Start it first.",
            )
        if node not in found.isr:
            raise CommandError(
                f"Broker {node} is not in sync with {partition}: it could lose records as a leader",
                hint="Wait until `dmq topic describe` shows it in sync.",
            )
        order = [node, *(each for each in staying if each != node)]
        if order != list(staying):
            _reorder(wire, where, order)
        elected = wire.elect(PREFERRED, [where])
        outcome = _judge_transfer(elected)
        leader = _await_leader(wire, where, node)
    if session.output.json:
        facts = {"leader": leader, "was": found.leader, "replicas": order}
        session.output.emit({"topic": where[0], "partition": where[1]} | facts)
    elif leader == node:
        session.output.say(
            f"{partition}: led by {node}"
            + (f" (was {found.leader})" if leader != found.leader else " as before")
        )
    if leader != node:
        raise CommandError(
            f"{partition} is led by {leader if leader >= 0 else 'nobody'}, not by {node}: {outcome}"
        )
    return Exit.OK


def _reorder(wire: ClusterWire, where: Where, order: list[int]) -> None:
    """Another order of the same replicas: there is nothing to copy."""
    for outcome in wire.reassign({where: order}):
        if outcome.code:
            raise CommandError(
                f"Preferring broker {order[0]} failed: {outcome.message or outcome.name}"
            )


def _judge_transfer(elected: list[Outcome]) -> str:
    """Why not, for the case that it did not come to be."""
    fine = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    return next(
        (each.message or each.name for each in elected if each.code not in fine),
        f"it did not take over within {_TAKES_OVER_S:.0f} s",
    )


def _await_leader(wire: ClusterWire, where: Where, node: int) -> int:
    """The leader, when it is `node` or the time is over."""
    deadline = time.monotonic() + _TAKES_OVER_S
    while True:
        found = gather(wire, disks=False).partition(where)
        leader = -1 if found is None else found.leader
        if leader == node or time.monotonic() > deadline:
            return leader
        time.sleep(0.1)


@command(
    app,
    "elect",
    """
    dmq cluster elect --preferred
    dmq cluster elect --preferred orders:0 orders:1
    """,
)
def elect(
    session: Session,
    partitions: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC:PARTITION", show_default=False, help="Only these; else all."),
    ] = None,
    preferred: Annotated[
        bool, typer.Option("--preferred", help="The first replica of each list; the only kind.")
    ] = True,
) -> Exit:
    """Let preferred replicas lead where others do.

    For partitions that have lost their majority see `dmq partition recover`.
    """
    wanted = [partition_of(each) for each in partitions] if partitions else None
    with ClusterWire(session) as wire:
        elected = elect_preferred(wire, wanted)
    failed = [each for each in elected if each.code]
    if session.output.json:
        session.output.emit({"elections": outcomes_json(elected)})
    else:
        done = len(elected) - len(failed)
        session.output.say(f"{count_of(done, 'leader')} changed to the preferred replica")
    complain(session, failed)
    code = Exit.NOT_FOUND if _are_unknown(failed) else Exit.FAILURE
    return worst(len(elected) - len(failed), len(failed), code)


def elect_preferred(wire: ClusterWire, wanted: list[Where] | None) -> list[Outcome]:
    """What became of those that needed it."""
    elected = wire.elect(PREFERRED, wanted)
    return [each for each in elected if each.code != ErrorCode.ELECTION_NOT_NEEDED]


def _are_unknown(failed: list[Outcome]) -> bool:
    return bool(failed) and all(
        each.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in failed
    )
