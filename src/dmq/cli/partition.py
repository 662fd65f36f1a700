"""`dmq partition recover`: a leader for a partition that has lost its majority, at a price.

Owns the words that tell the price before it is paid. The request is Kafka's ElectLeaders (unclean),
so it works with any Kafka cluster over plain connections.
"""

import time
from typing import Annotated, Any

import typer

from dmq.cli.cluster_facts import Cluster, Partition, gather
from dmq.cli.cluster_show import ids
from dmq.cli.cluster_wire import UNCLEAN, ClusterWire, Where
from dmq.cli.cluster_words import confirm, no_partition, partition_of
from dmq.cli.command import command
from dmq.cli.exits import CommandError, Exit
from dmq.cli.output import human_size
from dmq.cli.plain_help import PlainGroup
from dmq.cli.session import Session
from dmq.errors import ErrorCode

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Save what is left of a partition that no majority can save.",
)

_TAKES_OVER_S = 30.0
"""How long the survivor may take to lead."""


@app.callback()
def _group() -> None:
    """With a callback, a group of one command stays a group."""


@command(app, "recover", "dmq partition recover orders:3\ndmq partition recover orders:3 --yes")
def recover(
    session: Session,
    partition: Annotated[
        str, typer.Argument(metavar="TOPIC:PARTITION", show_default=False, help="Which one.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> Exit:
    """Make the best survivor the leader of a partition that has none.

    The last resort: what only the brokers have that are gone is lost, acknowledged records too. While
    there is hope that they come back with their disks, wait for them: then nothing is lost.
    """
    where = partition_of(partition)
    with ClusterWire(session) as wire:
        cluster = gather(wire)
        found = cluster.partition(where)
        if found is None:
            raise no_partition(cluster, where)
        if found.has_leader:
            return _is_well(session, found)
        _tell_the_price(session, cluster, found)
        if not yes:
            confirm(f"Recover {partition} from what is left?", "Nothing was changed")
        [outcome] = wire.elect(UNCLEAN, [where])
        if outcome.code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
            raise CommandError(
                f"{partition} can't be recovered: {outcome.message or outcome.name}",
                hint="Bring the brokers back that have its replicas: then nothing is lost.",
            )
        leader = _await_leader(wire, where)
    if session.output.json:
        session.output.emit(_json(found) | {"recovered": leader >= 0, "leader": leader})
    if leader < 0:
        raise CommandError(f"{partition} has no leader yet: see `dmq cluster status`")
    session.output.say(f"{partition}: led by {leader}; what only the others had is lost")
    return Exit.OK


def _is_well(session: Session, found: Partition) -> Exit:
    if session.output.json:
        session.output.emit(_json(found) | {"recovered": False, "leader": found.leader})
    session.output.say(f"{found.name} is led by {found.leader}: there is nothing to recover")
    return Exit.OK


def _json(found: Partition) -> dict[str, Any]:
    return {"topic": found.topic, "partition": found.partition, "replicas": found.replicas}


def _tell_the_price(session: Session, cluster: Cluster, found: Partition) -> None:
    up = [
        node for node in found.replicas if node in cluster.brokers and cluster.brokers[node].is_up
    ]
    down = [node for node in found.replicas if node not in up]
    note = session.output.note
    note(
        f"{found.name} has no leader. Its replicas: {ids(found.replicas)}; down: {ids(down) or 'none'}"
    )
    for node in up:
        disk = cluster.brokers[node].disk
        size = None if disk is None else disk.sizes.get(found.where)
        if size is not None:
            note(f"  broker {node} has {human_size(size)} of it")
    if down:
        those = f"broker {ids(down)} has" if len(down) == 1 else f"brokers {ids(down)} have"
        note(
            f"Records that only {those} are lost for ever, acknowledged ones too, whoever comes back"
            " later."
        )


def _await_leader(wire: ClusterWire, where: Where) -> int:
    deadline = time.monotonic() + _TAKES_OVER_S
    while True:
        found = gather(wire, disks=False).partition(where)
        if found is not None and (found.has_leader or time.monotonic() > deadline):
            return found.leader
        time.sleep(0.1)
