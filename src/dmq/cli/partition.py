"""`dmq partition recover`: a leader for a partition that has lost its majority, at a price.

Owns the words that tell the price before it is paid. The request is Kafka's ElectLeaders (unclean),
so it works with any Kafka cluster over plain connections.
"""

import time
from typing import Annotated, Any

import typer

from dmq.cli.cluster_facts import Cluster, Partition, gather
from dmq.cli.cluster_show import ids
from dmq.cli.cluster_wire import UNCLEAN, ClusterWire, Outcome, Where
from dmq.cli.cluster_words import complain, confirm, no_partition, outcomes_json, partition_of
from dmq.cli.command import command
from dmq.cli.exits import CommandError, Exit, usage, worst
from dmq.cli.output import count_of, human_size
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

_FINE = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
_UNDER_WAY = (*_FINE, ErrorCode.REQUEST_TIMED_OUT)
_NOBODY_ORDERS = (
    "The order must be written into the cluster's metadata, and the broker that was asked finds no leader"
    " of them: too few of those that vote on them are up, or it does not reach them. If their disks are"
    " lost, see `dmq serve --accept-lost`."
)
_TAKES_OVER_S = 30.0
"""How long the survivor may take to lead."""


@app.callback()
def _group() -> None:
    """With a callback, a group of one command stays a group."""


@command(
    app,
    "recover",
    """
    dmq partition recover orders:3
    dmq partition recover orders:3 --yes

    After the damage of a disk, when all brokers are up again:
    dmq partition recover --all
    """,
)
def recover(
    session: Session,
    partition: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC:PARTITION", show_default=False, help="Which one."),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="All that have no leader though all their brokers are up."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> Exit:
    """Make the best survivor the leader of a partition that has none.

    The last resort: what only the brokers have that are gone is lost, acknowledged records too. While
    there is hope that they come back with their disks, wait for them: then nothing is lost.
    """
    if partition is not None and everything:
        raise usage(f"{partition} and --all contradict each other", "Give one of them.")
    if partition is None and not everything:
        raise usage("Which partition?", "Name one, TOPIC:PARTITION, or say --all.")
    return _recover_all(session, yes) if partition is None else _recover(session, partition, yes)


def _recover_all(session: Session, yes: bool) -> Exit:
    """A broker that is down may come back with all that it has: what it has a replica of waits."""
    with ClusterWire(session) as wire:
        cluster = gather(wire)
        lost = [each for each in cluster.leaderless if not _down(cluster, each)]
        _tell_the_price_of_all(session, cluster, lost)
        if lost and not yes:
            names = count_of(len(lost), "partition")
            confirm(f"Recover {names} from what is left?", "Nothing was changed")
        elected = wire.elect(UNCLEAN, [each.where for each in lost]) if lost else []
    failed = [each for each in elected if each.code not in _FINE]
    if session.output.json:
        session.output.emit({"elections": outcomes_json(elected)})
    for well in elected:
        if well not in failed and well.message:
            session.output.note(f"{well.topic}:{well.partition}: {well.message}")
    done = count_of(len(elected) - len(failed), "partition")
    session.output.say(f"{done} recovered" if lost else "There is nothing to recover")
    waiting = len(cluster.leaderless) - len(lost)
    if waiting:
        names = count_of(waiting, "partition")
        session.output.note(f"{names} without a leader and with a broker that is down: left alone")
    complain(session, failed)
    return worst(len(elected) - len(failed), len(failed), Exit.FAILURE)


def _recover(session: Session, partition: str, yes: bool) -> Exit:
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
        if outcome.code not in _UNDER_WAY:
            raise _refused(partition, outcome)
        if outcome.code == ErrorCode.ELECTION_NOT_NEEDED:
            return _is_well(session, found, outcome.message)
        leader = _await_leader(wire, where)
    if session.output.json:
        said = outcome.message if outcome.code == ErrorCode.NONE else ""
        result = {"recovered": leader >= 0, "leader": leader, "message": said or None}
        session.output.emit(_json(found) | result)
    if leader < 0:
        raise CommandError(f"{partition} has no leader yet: see `dmq cluster status`")
    if outcome.code == ErrorCode.NONE and outcome.message:
        session.output.note(outcome.message)
    session.output.say(f"{partition}: led by {leader}; what it does not have is lost")
    return Exit.OK


def _refused(partition: str, outcome: Outcome) -> CommandError:
    if outcome.code == ErrorCode.NOT_CONTROLLER:
        return CommandError(f"{partition} can't be recovered yet", hint=_NOBODY_ORDERS)
    return CommandError(
        f"{partition} can't be recovered: {outcome.message or outcome.name}",
        hint="Bring the brokers back that have its replicas: then nothing is lost.",
    )


def _is_well(session: Session, found: Partition, why: str = "") -> Exit:
    if session.output.json:
        result = {"recovered": False, "leader": found.leader, "message": why or None}
        session.output.emit(_json(found) | result)
    led = f"is led by {found.leader}" if found.has_leader else f"needs no order. {why}".rstrip(". ")
    session.output.say(f"{found.name} {led}: there is nothing to recover")
    return Exit.OK


def _json(found: Partition) -> dict[str, Any]:
    return {"topic": found.topic, "partition": found.partition, "replicas": found.replicas}


def _tell_the_price(session: Session, cluster: Cluster, found: Partition) -> None:
    down = _down(cluster, found)
    up = [node for node in found.replicas if node not in down]
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
    else:
        note("A disk of it was lost or damaged: records that only this one had are lost for ever.")


def _tell_the_price_of_all(session: Session, cluster: Cluster, lost: list[Partition]) -> None:
    """A line for each; the price is the same for all."""
    for each in lost:
        sizes = [
            f"{human_size(size)} on broker {node}"
            for node in each.replicas
            if (size := cluster.size(each.where, [node])) is not None
        ]
        session.output.note(f"{each.name} has no leader: {', '.join(sizes) or 'no sizes known'}")
    if lost:
        session.output.note(
            "A disk of each was lost or damaged: records that only this one had are lost for ever."
        )


def _down(cluster: Cluster, found: Partition) -> list[int]:
    brokers = cluster.brokers
    return [node for node in found.replicas if node not in brokers or not brokers[node].is_up]


def _await_leader(wire: ClusterWire, where: Where) -> int:
    deadline = time.monotonic() + _TAKES_OVER_S
    while True:
        cluster = gather(wire, disks=False)
        found = cluster.partition(where)
        if found is None:
            raise no_partition(cluster, where)  # Its topic was deleted meanwhile.
        if found.has_leader or time.monotonic() > deadline:
            return found.leader
        time.sleep(0.1)
