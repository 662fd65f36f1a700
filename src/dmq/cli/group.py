"""`dmq group list|describe|delete`; the commands about offsets are in `group_offsets`.

Owns the options and words of these commands. What groups look like is gathered by `group_facts`.
They work with any Kafka cluster, for both group protocols.
"""

import sys
import time
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmq.cli import group_offsets
from dmq.cli.command import command
from dmq.cli.exits import CommandError, Exit, worst
from dmq.cli.group_args import STATES, TYPES, group_names, words_among
from dmq.cli.output import Column, count_of
from dmq.cli.plain_help import PlainGroup
from dmq.cli.session import REQUEST_TIMEOUT_S, Session

if TYPE_CHECKING:
    from dmq.cli.group_facts import Group, Member, Where

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="List, describe and delete consumer groups; move their offsets.",
)
WATCH_S = 2.0

Names = Annotated[
    list[str], typer.Argument(metavar="GROUP", show_default=False, autocompletion=group_names)
]


# --- list ----------------------------------------------------------------------------------------


@command(
    app,
    "list",
    """
    dmq group list
    dmq group list --state empty --type consumer
    dmq group list --state stable,preparing-rebalance --json
    """,
)
def list_(
    session: Session,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help=f"Only: {', '.join(STATES)}; repeatable."),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help=f"Only: {', '.join(TYPES)}; repeatable."),
    ] = None,
) -> Exit:
    """List groups with their state, type and protocol.

    Type Classic is the old protocol, Consumer the new one (KIP-848). With TLS or a login only groups
    of consumers are listed.
    """
    from dmq.cli.group_facts import list_groups

    states = words_among(state or [], STATES, "--state")
    types = words_among(type_ or [], TYPES, "--type")
    groups, problems = list_groups(session)
    shown = [
        each
        for each in groups
        if (not states or each.state in states) and (not types or each.type in types)
    ]
    if session.output.json:
        session.output.emit({"groups": [each.as_json() for each in shown]})
    else:
        columns = [Column("group"), Column("state"), Column("type"), Column("protocol")]
        rows = [[e.group, e.state, e.type, e.protocol, e.coordinator] for e in shown]
        session.output.table([*columns, Column("coordinator", True)], rows)
        session.output.note(count_of(len(shown), "group"))
    for problem in problems:
        session.output.error(problem, "Its groups are not in the list.")
    return worst(len(groups), len(problems))


# --- describe ------------------------------------------------------------------------------------


@command(
    app,
    "describe",
    """
    dmq group describe billing
    dmq group describe billing --watch --interval 5
    dmq group describe billing shipping --json
    """,
)
def describe(
    session: Session,
    names: Names,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Between two looks.")
    ] = WATCH_S,
) -> Exit:
    """Show members with what they read, and how far the group is in each partition.

    Lag is the log's end less the committed offset. A partition without a committed offset has none.
    """
    admin = session.admin()
    wanted = list(dict.fromkeys(names))
    if not watch:
        return _tell(session, admin, wanted)
    while True:
        _look(session, admin, wanted)
        time.sleep(interval)


def _look(session: Session, admin: Any, names: list[str]) -> None:
    """One look of a watch; what is not there now may come (back)."""
    if session.output.is_terminal and not session.output.json:
        sys.stdout.write("\x1b[H\x1b[2J")
    _tell(session, admin, names)
    sys.stdout.flush()


def _tell(session: Session, admin: Any, names: list[str]) -> Exit:
    from dmq.cli.group_facts import describe as described

    groups: list[Group] = []
    failed: list[CommandError] = []
    for name in names:
        try:
            groups.append(described(session, admin, name))
        except CommandError as error:
            failed.append(error)
    if session.output.json:
        session.output.emit({"groups": [group.as_json() for group in groups]})
    else:
        for group in groups:
            show(session, group)
    for each in failed:
        session.output.error(each.message, each.hint)
    return worst(len(groups), len(failed), failed[0].code if failed else Exit.FAILURE)


def show(session: Session, group: "Group") -> None:
    """A group for people."""
    output = session.output
    about = [group.state, group.type and group.type.lower() + " protocol"]
    about.append(group.assignor and f"assignor {group.assignor}")
    if group.coordinator is not None:
        node, host, port = group.coordinator
        about.append(f"coordinator {node} ({host}:{port})")
    output.heading(group.group)
    output.say("  " + ", ".join(filter(None, about)))
    if group.members:
        columns = [Column("member"), Column("client id"), Column("host")]
        static = any(member.instance for member in group.members)
        columns += [Column("instance")] if static else []
        rows = [_member_row(member, static=static) for member in group.members]
        output.table([*columns, Column("partitions")], rows)
    else:
        output.say("  no members")
    if group.progress:
        columns = [Column("topic")]
        columns += [Column(t, True) for t in ("partition", "committed", "start", "end", "lag")]
        rows = [
            [p.topic, p.partition, p.committed, p.start, p.end, p.lag, p.member and p.member.member]
            for p in group.progress
        ]
        output.table([*columns, Column("member")], rows)
    if group.lag is not None:
        output.say(f"  total lag {group.lag:,}")


def _member_row(member: "Member", *, static: bool) -> list[object]:
    row: list[object] = [member.member, member.client, member.host]
    row += [member.instance] if static else []
    told = spans(member.partitions)
    if member.target is not None and member.target != member.partitions:
        told += f" (moving to {spans(member.target)})"
    return [*row, told]


def spans(partitions: "Iterable[Where]") -> str:
    """`orders:0-2,5 events:1`; `none` of nothing."""
    words = []
    for topic, those in groupby(sorted(partitions), key=lambda where: where[0]):
        words.append(f"{topic}:{','.join(_runs([where[1] for where in those]))}")
    return " ".join(words) or "none"


def _runs(numbers: list[int]) -> list[str]:
    """Sorted numbers, with those that follow each other drawn together."""
    runs = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return runs


# --- delete --------------------------------------------------------------------------------------


@command(app, "delete", "dmq group delete billing\ndmq group delete old-1 old-2 --yes")
def delete(
    session: Session,
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A group that is not there is fine.")
    ] = False,
) -> Exit:
    """Delete groups with all their committed offsets. A group that has members is left alone."""
    from confluent_kafka import KafkaError, KafkaException

    from dmq.cli.cluster_words import confirm
    from dmq.cli.kafka_errors import error_of, exit_code, sentence

    wanted = list(dict.fromkeys(names))
    admin = session.admin()
    if not yes:
        confirm(f"Delete {', '.join(wanted)} with all offsets?", "Nothing was deleted")
    done: list[dict[str, str]] = []
    failed: list[tuple[str, KafkaError]] = []
    futures = admin.delete_consumer_groups(wanted, request_timeout=REQUEST_TIMEOUT_S)
    for name, future in futures.items():
        try:
            future.result()
            done.append({"group": name, "outcome": "deleted"})
        except KafkaException as exception:
            error = error_of(exception)
            if if_exists and error.code() == KafkaError.GROUP_ID_NOT_FOUND:
                done.append({"group": name, "outcome": "missing"})
            else:
                failed.append((name, error))
    if session.output.json:
        errors = [{"group": n, "error": e.name(), "message": sentence(e)} for n, e in failed]
        session.output.emit({"done": done, "failed": errors})
    for entry in done if not session.output.quiet else []:
        session.output.say(f"{entry['group']}: {entry['outcome']}")
    for name, error in failed:
        _complain(session, name, error)
    codes = [_code(error, exit_code(error)) for _, error in failed]
    return worst(len(done), len(failed), codes[0] if codes else Exit.FAILURE)


def _complain(session: Session, name: str, error: Any) -> None:
    from confluent_kafka import KafkaError

    from dmq.cli.kafka_errors import hint_of, sentence

    if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
        session.output.error(f"There is no group {name!r}", "See `dmq group list`.")
    elif error.code() == KafkaError.NON_EMPTY_GROUP:
        session.output.error(
            f"Group {name!r} has members", f"Stop them: `dmq group describe {name}` tells who."
        )
    else:
        session.output.error(f"Group {name!r}: {sentence(error)}", hint_of(error))


def _code(error: Any, otherwise: Exit) -> Exit:
    from confluent_kafka import KafkaError

    return Exit.NOT_FOUND if error.code() == KafkaError.GROUP_ID_NOT_FOUND else otherwise


app.registered_commands += group_offsets.app.registered_commands
