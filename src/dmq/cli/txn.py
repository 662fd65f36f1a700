"""`dmq txn list|describe|abort`.

Owns the options and words of these commands. What transactions look like is gathered by `txn_facts`,
how one is ended is in `txn_abort`. All of it are Kafka's own requests over plain connections, so they
work with any Kafka cluster.
"""

import time
from typing import Annotated

import typer

from dmq.cli.cluster_words import confirm, partition_of
from dmq.cli.command import command
from dmq.cli.exits import CommandError, Exit, usage, worst
from dmq.cli.group_args import duration_ms, words_among
from dmq.cli.group_wire import CoordinatorWire
from dmq.cli.moments import iso
from dmq.cli.output import Column, count_of
from dmq.cli.plain_help import PlainGroup
from dmq.cli.session import Session
from dmq.cli.txn_abort import Hanging, fence, hanging, write_abort
from dmq.cli.txn_facts import (
    STATES,
    Transaction,
    Where,
    describe_transaction,
    list_transactions,
    start_offsets,
)

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="List, describe and abort transactions.",
)


def now_ms() -> int:
    """This machine's clock."""
    return round(time.time() * 1000)


@command(
    app,
    "list",
    """
    dmq txn list
    dmq txn list --state ongoing --longer-than 5m
    dmq txn list --producer-id 4001 --json
    """,
)
def list_(
    session: Session,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help=f"Only: {', '.join(STATES)}; repeatable."),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(
            "--longer-than", metavar="TIME", help="Only open ones, for over 5m, 2h, PT1M."
        ),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="N", min=0, help="Only of these; repeatable."),
    ] = None,
) -> Exit:
    """List transactional ids with the state of their last or open transaction."""
    states = sorted(words_among(state or [], STATES, "--state"))
    longer_ms = None if longer_than is None else duration_ms(longer_than, "--longer-than")
    session.reach()
    now = now_ms()
    with CoordinatorWire(session) as wire:
        found, problems = list_transactions(
            wire,
            states=states,
            producer_ids=producer_id or (),
            older_than_ms=longer_ms,
            now_ms=now,
        )
    if session.output.json:
        session.output.emit({"transactions": [each.as_json(now) for each in found]})
    else:
        columns = [Column("transactional id"), Column("state"), Column("producer id", True)]
        columns += [Column("epoch", True), Column("partitions", True), Column("open for", True)]
        session.output.table(
            [*columns, Column("coordinator", True)],
            (
                [
                    each.transactional_id,
                    each.state,
                    each.producer_id,
                    each.producer_epoch,
                    len(each.partitions),
                    duration(each.age_ms(now)),
                    each.coordinator,
                ]
                for each in found
            ),
        )
        session.output.note(count_of(len(found), "transactional id"))
    for problem in problems:
        session.output.error(problem, "Its transactions are not in the list.")
    return worst(len(found), len(problems))


def duration(ms: int | None) -> str | None:
    """`950 ms`, `12 s`, `5 m 3 s`, `2 h 7 m`, `3 d 4 h`."""
    if ms is None:
        return None
    if ms < 1000:
        return f"{ms} ms"
    rest = ms // 1000
    words: list[str] = []
    units = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
    for unit, size in units:
        count, rest = divmod(rest, size)
        if count or words:
            words.append(f"{count} {unit}")
    return " ".join(words[:2])


@command(
    app,
    "describe",
    """
    dmq txn describe transfers-1
    dmq txn describe transfers-1 transfers-2 --json
    """,
)
def describe(
    session: Session,
    names: Annotated[list[str], typer.Argument(metavar="ID", show_default=False)],
) -> Exit:
    """Show a transactional id: its producer, its open transaction and where that began."""
    session.reach()
    now = now_ms()
    found: list[tuple[Transaction, dict[Where, int]]] = []
    failed: list[CommandError] = []
    with CoordinatorWire(session) as wire:
        for name in dict.fromkeys(names):
            try:
                transaction = describe_transaction(wire, name)
                found.append((transaction, start_offsets(wire, transaction)))
            except CommandError as error:
                failed.append(error)
    if session.output.json:
        told = [_with_starts(each, starts, now) for each, starts in found]
        session.output.emit({"transactions": told})
    else:
        for each, starts in found:
            show(session, each, starts, now)
    for problem in failed:
        session.output.error(problem.message, problem.hint)
    return worst(len(found), len(failed), failed[0].code if failed else Exit.FAILURE)


def _with_starts(transaction: Transaction, starts: dict[Where, int], now: int) -> dict[str, object]:
    partitions = [
        {"topic": topic, "partition": index, "start_offset": starts.get((topic, index))}
        for topic, index in transaction.partitions
    ]
    return transaction.as_json(now) | {"partitions": partitions}


def show(session: Session, each: Transaction, starts: dict[Where, int], now: int) -> None:
    """A transactional id for people."""
    output = session.output
    output.heading(each.transactional_id)
    about = [each.state, f"producer {each.producer_id} epoch {each.producer_epoch}"]
    about += [f"timeout {duration(each.timeout_ms)}", f"coordinator {each.coordinator}"]
    output.say("  " + ", ".join(about))
    if each.started_ms is not None:
        output.say(f"  open since {iso(each.started_ms)} ({duration(each.age_ms(now))})")
    if each.partitions:
        columns = [Column("topic"), Column("partition", True), Column("start offset", True)]
        output.table(columns, ([*where, starts.get(where)] for where in each.partitions))


@command(
    app,
    "abort",
    """
    dmq txn abort transfers-1
    dmq txn abort --partition orders:3 --start-offset 4711
    dmq txn abort --partition orders:3 --producer-id 4001 --yes
    """,
)
def abort(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(metavar="ID", show_default=False, help="The transactional id.")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="TOPIC:P", help="Where a transaction hangs."),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", metavar="OFFSET", min=0, help="Where it began there."),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="N", min=0, help="Who began it there.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="The marker, even if the coordinator knows of it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> Exit:
    """Abort a transaction: by its id, or where one hangs in a partition.

    By ID, the coordinator is asked for the id's next producer epoch (InitProducerId). It aborts the
    open transaction in all its partitions, and the producer is fenced: it fails at its next step and
    has to be started again. This is the orderly way.

    By --partition and --start-offset or --producer-id, an abort marker is written into that one
    partition (WriteTxnMarkers), past the coordinator. This is for a transaction that hangs: the
    partition waits for its end and no coordinator knows it any more, so that readers of committed
    records are stuck. If none began there, the command says which are open in the partition.
    """
    has_place = any(given is not None for given in (partition, start_offset, producer_id))
    if (name is not None) == has_place or (has_place and partition is None):
        raise usage("Which transaction?", "Give its ID, or --partition and where it began.")
    session.reach()
    with CoordinatorWire(session) as wire:
        if name is not None:
            return _abort_by_id(session, wire, name, yes=yes)
        assert partition is not None
        if (start_offset is None) == (producer_id is None):
            raise usage("Which transaction there?", "Give --start-offset or --producer-id.")
        found = hanging(wire, partition_of(partition), start_offset, producer_id, force=force)
        return _abort_by_marker(session, wire, found, yes=yes)


def _abort_by_id(session: Session, wire: CoordinatorWire, name: str, *, yes: bool) -> Exit:
    before = describe_transaction(wire, name)
    if before.state == "PrepareCommit":
        raise CommandError(
            f"The transaction of {name!r} is being committed: that can't be undone",
            hint="`dmq txn describe` tells where its markers are still to be written.",
        )
    is_open = before.state in ("Ongoing", "PrepareAbort")
    if is_open:
        if not yes:
            what = f"{name}, open for {duration(before.age_ms(now_ms()))}"
            confirm(
                f"Abort the transaction of {what}, and fence its producer?", "Nothing was aborted"
            )
        fence(wire, before)
    if session.output.json:
        session.output.emit({"transactional_id": name, "aborted": is_open, "was": before.state})
    elif is_open:
        session.output.say(f"{name}: aborted, and its producer is fenced")
    else:
        session.output.say(f"{name}: no transaction is open ({before.state})")
    return Exit.OK


def _abort_by_marker(session: Session, wire: CoordinatorWire, found: Hanging, *, yes: bool) -> Exit:
    place = f"{found.topic}:{found.partition}"
    who = f"producer {found.producer.producer_id} from offset {found.producer.start_offset}"
    if not yes:
        confirm(f"Write an abort marker for {who} into {place}?", "Nothing was aborted")
    write_abort(wire, found)
    if session.output.json:
        session.output.emit(found.as_json())
    else:
        session.output.say(f"{place}: aborted for {who}")
    return Exit.OK
