"""`dmq group reset-offsets|delete-offsets`, registered by `group`.

Owns the options of these commands, and which offset a partition gets for which option: `targets` and
`moved` decide it from plain values. A reset is a dry run unless --execute is given, and neither
command touches the offsets of a group whose members would commit over them.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmq.cli.command import command
from dmq.cli.exits import CommandError, Exit, usage, worst
from dmq.cli.group_args import Chosen, chosen_partitions, duration_ms, group_names, resolved
from dmq.cli.moments import timestamp_ms
from dmq.cli.output import Column, count_of
from dmq.cli.session import REQUEST_TIMEOUT_S, Session

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from dmq.cli.cluster_wire import Outcome
    from dmq.cli.group_facts import Group

app = typer.Typer()
Where = tuple[str, int]

GroupName = Annotated[
    str, typer.Argument(metavar="GROUP", show_default=False, autocompletion=group_names)
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC[:P,…]", help="All of it, or partitions; repeatable."
    ),
]


@dataclass(frozen=True, slots=True)
class Aim:
    """Where offsets are to go: one of `kind`, with its number where it has one."""

    kind: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Reset:
    """What becomes of one partition's offset."""

    topic: str
    partition: int
    old: int | None
    new: int
    start: int
    end: int

    def as_json(self) -> dict[str, Any]:
        """Part of the stable schema of `dmq group reset-offsets --json`."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "old_offset": self.old,
            "new_offset": self.new,
            "log_start_offset": self.start,
            "log_end_offset": self.end,
            "new_lag": self.end - self.new,
        }


@command(
    app,
    "reset-offsets",
    """
    dmq group reset-offsets billing --topic orders --to-earliest
    dmq group reset-offsets billing --topic orders --to-datetime 2026-01-31T12:00Z --execute
    dmq group reset-offsets billing --topic orders:0,2-4 --shift-by -100 --execute
    dmq group reset-offsets billing --all-topics --by-duration 2h
    """,
)
def reset_offsets(
    session: Session,
    group: GroupName,
    topic: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Whatever the group has committed offsets for.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Where the log begins.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Where the log ends.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="As committed; the end where nothing is.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="OFFSET", min=0, help="This offset.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime", metavar="MOMENT", help="First record of then or later: ISO or @MS."
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="TIME", help="So long ago: 5m, 2h, 7d or PT1H30M."),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="±N", help="From what is committed, on or (-N) back."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it. Without this it is only shown.")
    ] = False,
) -> Exit:
    """Show what offsets a group would get, and with --execute commit them.

    Offsets outside a log are moved to its nearest end. With --execute the group must have no
    members: they would go on where they are, and commit over the new offsets.
    """
    flags = {"earliest": to_earliest, "latest": to_latest, "current": to_current}
    numbers = {
        "offset": to_offset,
        "moment": _moment(to_datetime, by_duration),
        "shift": shift_by,
    }
    aim = one_aim(flags, numbers, both=to_datetime is not None and by_duration is not None)
    chosen = _chosen(topic, all_topics=all_topics)
    admin = session.admin()
    found, plan = _plan(session, admin, group, chosen, aim)
    if not execute:
        _show(session, group, plan, executed=False)
        if found is not None and found.is_active:
            session.output.warn(f"{_active(found)}; --execute will be refused while they are there")
        return Exit.OK
    if found is not None and found.is_active:
        raise _has_members(found)
    failed = _commit(session, admin, group, plan)
    _show(session, group, plan, executed=True, failed=failed)
    return worst(len(plan) - len(failed), len(failed))


def _moment(to_datetime: str | None, by_duration: str | None) -> int | None:
    now_ms = round(time.time() * 1000)
    if to_datetime is not None:
        return timestamp_ms(to_datetime, now_ms, "--to-datetime")
    return None if by_duration is None else now_ms - duration_ms(by_duration, "--by-duration")


def one_aim(flags: Mapping[str, bool], numbers: Mapping[str, int | None], *, both: bool) -> Aim:
    """The one place that was named. Raises CommandError for none and for several."""
    aims = [Aim(kind) for kind, given in flags.items() if given]
    aims += [Aim(kind, number) for kind, number in numbers.items() if number is not None]
    if len(aims) != 1 or both:
        raise usage(
            "Several places are given for the offsets" if aims else "Where are the offsets to go?",
            "Give one of --to-earliest, --to-latest, --to-offset, --to-datetime, --by-duration,"
            " --shift-by and --to-current.",
        )
    return aims[0]


def _chosen(topics: list[str] | None, *, all_topics: bool) -> Chosen | None:
    """Topics and partitions as written; None: all that the group has offsets for."""
    if bool(topics) == all_topics:
        raise usage(
            "--topic and --all-topics exclude each other" if topics else "Which topics?",
            "Give --topic TOPIC, --topic TOPIC:0,1 or --all-topics.",
        )
    return None if all_topics else chosen_partitions(topics or [])


def _plan(
    session: Session, admin: "AdminClient", name: str, chosen: Chosen | None, aim: Aim
) -> tuple["Group | None", list[Reset]]:
    from dmq.cli.group_facts import Limits, find, no_group, partition_counts

    found = find(session, admin, name)
    if found is None and chosen is None:
        raise no_group(name)
    committed = {} if found is None else _committed(found)
    wanted = sorted(committed)
    if chosen is not None:
        wanted = resolved(chosen, partition_counts(session, admin))
    limits = Limits.of(session, admin, wanted)
    silent = [where for where in wanted if where not in limits.starts or where not in limits.ends]
    if silent:
        raise CommandError(
            f"{silent[0][0]}:{silent[0][1]} does not tell where its log begins and ends",
            hint="See `dmq cluster status`: it may have no leader; or leave it out with --topic.",
        )
    logs = {where: (limits.starts[where], limits.ends[where]) for where in wanted}
    moments = _at_moment(admin, wanted, aim) if aim.kind == "moment" else {}
    return found, targets(aim, logs, committed, moments)


def _committed(group: "Group") -> dict[Where, int]:
    known = ((each.topic, each.partition, each.committed) for each in group.progress)
    return {(topic, partition): at for topic, partition, at in known if at is not None}


def _at_moment(admin: "AdminClient", wanted: list[Where], aim: Aim) -> dict[Where, int]:
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    from dmq.cli.group_facts import offsets_at

    found = offsets_at(admin, wanted, OffsetSpec.for_timestamp(aim.number))
    for topic, partition in wanted:
        if (topic, partition) not in found:
            raise CommandError(f"{topic}:{partition} does not tell its offset at that moment")
    return found


def targets(
    aim: Aim,
    logs: Mapping[Where, tuple[int, int]],
    committed: Mapping[Where, int],
    moments: Mapping[Where, int],
) -> list[Reset]:
    """The new offset of each partition, within its log. `moments` has -1 for "nothing so late"."""
    if aim.kind == "shift":
        for topic, partition in logs:
            if (topic, partition) not in committed:
                raise CommandError(
                    f"The group has no offset for {topic}:{partition} that could be shifted",
                    hint="Leave it out with --topic TOPIC:P,… or name a place with another option.",
                )
    resets = []
    for where, (start, end) in logs.items():
        old = committed.get(where)
        new = {
            "earliest": start,
            "latest": end,
            "current": end if old is None else old,
            "offset": aim.number,
            "moment": end if moments.get(where, -1) < 0 else moments[where],
            "shift": (old or 0) + aim.number,
        }[aim.kind]
        resets.append(Reset(*where, old, min(max(new, start), end), start, end))
    return resets


def _active(group: "Group") -> str:
    if not group.members:
        return f"Group {group.group!r} is active ({group.state})"
    clients = sorted({member.client for member in group.members})
    some = ", ".join(clients[:3]) + (", …" if len(clients) > 3 else "")
    return f"Group {group.group!r} has {count_of(len(group.members), 'member')} ({some})"


def _has_members(group: "Group") -> CommandError:
    return CommandError(
        f"{_active(group)}: their offsets can't be reset",
        hint="Stop the members, wait until `dmq group describe` shows none, and do it again.",
    )


def _commit(
    session: Session, admin: "AdminClient", name: str, plan: list[Reset]
) -> dict[Where, str]:
    """Commit the new offsets; what failed, and why."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition

    from dmq.cli.kafka_errors import asked, sentence

    if not plan:
        return {}
    wanted = [TopicPartition(each.topic, each.partition, each.new) for each in plan]
    futures = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(name, wanted)], request_timeout=REQUEST_TIMEOUT_S
    )
    answer = asked(session, f"Committing offsets of group {name!r}", futures[name].result)
    failed = {}
    for each in answer.topic_partitions:
        if each.error is not None:
            joined = each.error.code() == KafkaError.UNKNOWN_MEMBER_ID
            why = "a member has joined just now" if joined else sentence(each.error)
            failed[(each.topic, each.partition)] = why
    return failed


def _show(
    session: Session,
    name: str,
    plan: list[Reset],
    *,
    executed: bool,
    failed: Mapping[Where, str] | None = None,
) -> None:
    failed = failed or {}
    output = session.output
    if output.json:
        partitions = [
            each.as_json() | {"error": failed.get((each.topic, each.partition))} for each in plan
        ]
        output.emit({"group": name, "executed": executed, "partitions": partitions})
    else:
        titles = ("partition", "old", "new", "start", "end", "new lag")
        columns = [Column("topic"), *(Column(title, True) for title in titles)]
        rows = [[e.topic, e.partition, e.old, e.new, e.start, e.end, e.end - e.new] for e in plan]
        output.table(columns, rows)
        if executed:
            output.say(f"{count_of(len(plan) - len(failed), 'offset')} committed for {name}")
        else:
            output.note("nothing was changed: add --execute to do it")
    for (topic, partition), why in failed.items():
        output.error(f"{topic}:{partition}: {why}")


# --- delete-offsets ------------------------------------------------------------------------------


@command(
    app,
    "delete-offsets",
    """
    dmq group delete-offsets billing --topic old-orders
    dmq group delete-offsets billing --topic orders:7 --yes
    """,
)
def delete_offsets(
    session: Session,
    group: GroupName,
    topic: Topics = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> Exit:
    """Make a group forget its offsets of topics that it does not read any more.

    It may have members, unless they are subscribed to the topic. Plain connections only.
    """
    from dmq.cli.cluster_words import complain, confirm, outcomes_json
    from dmq.cli.group_facts import committed, no_group
    from dmq.cli.group_wire import CoordinatorWire

    chosen = chosen_partitions(topic or [])
    if not chosen:
        raise usage("Which topics?", "Give --topic TOPIC or --topic TOPIC:0,1.")
    with CoordinatorWire(session) as wire:
        admin = session.admin()
        known = sorted(committed(session, admin, group))
        if not known:
            from dmq.cli.group_facts import find

            if find(session, admin, group) is None:
                raise no_group(group)
        wanted = [w for w in known if w[0] in chosen and w[1] in (chosen[w[0]] or [w[1]])]
        if not wanted:
            session.output.note(f"group {group} has no offsets there")
        elif not yes:
            what = count_of(len(wanted), "offset")
            confirm(f"Delete {what} of group {group}?", "Nothing was deleted")
        outcomes = _forget(wire, group, wanted) if wanted else []
    failed = [each for each in outcomes if each.code]
    if session.output.json:
        session.output.emit({"group": group, "offsets": outcomes_json(outcomes)})
    else:
        deleted = count_of(len(outcomes) - len(failed), "offset")
        session.output.say(f"{deleted} of group {group} deleted")
    complain(session, failed)
    return worst(len(outcomes) - len(failed), len(failed))


def _forget(wire: Any, group: str, wanted: list[Where]) -> "list[Outcome]":
    from itertools import groupby

    from dmq.cli.cluster_wire import Outcome, error_name
    from dmq.cli.group_wire import GROUP, OFFSET_DELETE
    from dmq.errors import ErrorCode
    from dmq.wire.messages.k47_offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )

    topics = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(w[1]) for w in those])
        for name, those in groupby(wanted, key=lambda where: where[0])
    ]
    request = OffsetDeleteRequest(group, topics)
    _, response = wire.ask_coordinator(
        GROUP, group, OFFSET_DELETE, request, lambda answer: int(answer.error_code)
    )
    if response.error_code == ErrorCode.NON_EMPTY_GROUP:
        raise CommandError(
            f"Group {group!r} has members that are no consumers", hint="Stop them first."
        )
    if response.error_code:
        raise CommandError(f"Deleting offsets failed: {error_name(response.error_code)}")
    subscribed = "members are subscribed to the topic: unsubscribe or stop them first"
    return [
        Outcome(
            topic.name,
            each.partition_index,
            each.error_code,
            subscribed if each.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC else "",
        )
        for topic in response.topics
        for each in topic.partitions
    ]
