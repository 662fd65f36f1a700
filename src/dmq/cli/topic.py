"""`dmq topic create|list|describe|alter|delete`.

Owns the options and words of the topic commands. What a topic looks like is gathered by
`topic_facts`. Never creates a topic by asking about it.
"""

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmq.cli.command import command
from dmq.cli.completing import topic_names
from dmq.cli.exits import CommandError, Exit, usage, worst
from dmq.cli.output import Column, count_of, human_size
from dmq.cli.plain_help import PlainGroup
from dmq.cli.session import REQUEST_TIMEOUT_S, Session, key_values

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

    from dmq.cli.topic_facts import Partition, Topic

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Create, list, describe, alter and delete topics.",
)

Names = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names),
]
_MIN_IN_SYNC = "min.insync.replicas"

NewNames = Annotated[list[str], typer.Argument(metavar="TOPIC", show_default=False)]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting; repeatable."),
]


@command(
    app,
    "create",
    """
    dmq topic create greetings
    dmq topic create orders -p 12 -r 3 -c retention.ms=86400000 -c compression.type=zstd
    dmq topic create accounts -c cleanup.policy=compact --if-not-exists
    """,
)
def create(
    session: Session,
    names: NewNames,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", metavar="N", min=1, help="How many; else the broker's default."
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            metavar="N",
            min=1,
            help="Copies; else the broker's default.",
        ),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that is there already is fine.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the broker check everything, create nothing.")
    ] = False,
) -> Exit:
    """Create topics."""
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    settings = key_values(config or [], "--config")
    topics = [
        NewTopic(
            name,
            num_partitions=partitions or -1,
            replication_factor=replicas or -1,
            config=settings,
        )
        for name in dict.fromkeys(names)
    ]
    if replicas is not None:
        _warn_of_writes(session, settings, replicas)
    if replicas == 2:
        session.output.warn(
            "with two replicas every write needs both brokers, so one that is down stops them;"
            " three survive it"
        )
    admin = session.admin()
    futures = admin.create_topics(
        topics,
        validate_only=dry_run,
        operation_timeout=REQUEST_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
    )
    fine = {KafkaError.TOPIC_ALREADY_EXISTS: "exists"} if if_not_exists else {}
    return _report(session, futures, "would be created" if dry_run else "created", fine)


def _warn_of_writes(session: Session, settings: Mapping[str, str], replicas: int) -> None:
    """More copies than there are: no write with acks=all would ever be answered."""
    wanted = settings.get(_MIN_IN_SYNC, "")
    if wanted.isdecimal() and int(wanted) > replicas:
        session.output.warn(
            f"{_MIN_IN_SYNC}={wanted} is more than the {count_of(replicas, 'replica')} of a"
            " partition: writes with acks=all are refused"
        )


@command(app, "list", "dmq topic list\ndmq topic list --internal --json")
def list_(
    session: Session,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also the cluster's own topics.")
    ] = False,
) -> None:
    """List topics with their partitions and replicas."""
    from dmq.cli.topic_facts import overview

    topics = overview(session, session.admin(), internal=internal)
    if session.output.json:
        session.output.emit({"topics": topics})
        return
    columns = [
        Column("topic"),
        Column("partitions", True),
        Column("replicas", True),
        Column("health"),
    ]
    rows = [[t["topic"], t["partitions"], t["replication_factor"], _health(t)] for t in topics]
    session.output.table(columns, rows)
    session.output.note(count_of(len(rows), "topic"))


def _health(topic: Mapping[str, Any]) -> str:
    problems = [
        f"{topic[field]} {word}"
        for field, word in (
            ("leaderless", "without leader"),
            ("under_replicated", "under-replicated"),
        )
        if topic[field]
    ]
    return ", ".join(problems) or "ok"


@command(
    app, "describe", "dmq topic describe orders\ndmq topic describe orders --all-configs --json"
)
def describe(
    session: Session,
    names: Names,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Every setting, not only those that differ.")
    ] = False,
) -> Exit:
    """Show partitions, leaders, in-sync replicas, offsets, sizes and settings of topics."""
    from dmq.cli.topic_facts import describe_topics

    topics, missing = describe_topics(session, session.admin(), list(dict.fromkeys(names)))
    if session.output.json:
        session.output.emit({"topics": [topic.as_json() for topic in topics]})
    else:
        for topic in topics:
            _show(session, topic, all_configs=all_configs)
    for name in missing:
        session.output.error(f"There is no topic {name!r}", "See `dmq topic list`.")
    return worst(len(topics), len(missing), Exit.NOT_FOUND)


def _show(session: Session, topic: "Topic", *, all_configs: bool) -> None:
    output = session.output
    about = [count_of(len(topic.partitions), "partition"), f"id {topic.topic_id}"]
    if topic.record_count is not None:
        about.append(f"at most {count_of(topic.record_count, 'record')}")
    if topic.size_bytes is not None:
        about.append(human_size(topic.size_bytes))
    output.heading(topic.name)
    output.say("  " + ", ".join(about))
    columns = [Column("partition", True), Column("leader", True), Column("replicas")]
    columns += [Column("in sync"), Column("start", True), Column("end", True), Column("size", True)]
    output.table(columns, map(_partition_row, topic.partitions))
    configs = [c for c in topic.configs if all_configs or c.differs]
    if configs:
        columns = [Column("setting"), Column("value"), Column("set by")]
        output.table(columns, ((c.name, c.value, c.source) for c in configs))


def _partition_row(partition: "Partition") -> list[object]:
    return [
        partition.partition,
        "none" if partition.leader < 0 else partition.leader,
        _ids(partition.replicas),
        _ids(partition.in_sync),
        partition.start,
        partition.end,
        None if partition.size_bytes is None else human_size(partition.size_bytes),
    ]


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


@command(
    app,
    "alter",
    """
    dmq topic alter orders -c retention.ms=3600000
    dmq topic alter orders --delete-config retention.ms --partitions 24
    """,
)
def alter(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)
    ],
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config", "-d", metavar="NAME", help="Back to the default; repeatable."
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", metavar="N", min=1, help="As many in all; never fewer."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the broker check everything, change nothing.")
    ] = False,
) -> Exit:
    """Change settings of a topic, or give it more partitions."""
    settings = key_values(config or [], "--config")
    deleted = list(dict.fromkeys(delete_config or []))
    both = sorted(set(settings) & set(deleted))
    if both:
        raise usage(f"{', '.join(both)} can't be set and deleted at once")
    if not settings and not deleted and partitions is None:
        raise usage("Nothing to alter", "Give --config, --delete-config or --partitions.")
    admin = session.admin()
    done: list[str] = []
    if settings or deleted:
        _alter_configs(session, admin, name, settings, deleted, dry_run=dry_run)
        done += [f"{key}={value}" for key, value in settings.items()]
        done += [f"{key} back to its default" for key in deleted]
    if partitions is not None:
        try:
            _add_partitions(session, admin, name, partitions, dry_run=dry_run)
        except CommandError as error:
            # Settings and partitions are two requests: say it when only the first went through.
            error.code = Exit.PARTLY_FAILED if done and not dry_run else error.code
            raise
        done.append(count_of(partitions, "partition"))
    if session.output.json:
        changes = {"set": settings, "deleted": deleted, "partitions": partitions}
        session.output.emit({"topic": name, **changes, "dry_run": dry_run})
    else:
        session.output.say(f"{name}: {'would get ' if dry_run else ''}{', '.join(done)}")
    return Exit.OK


def _alter_configs(
    session: Session,
    admin: "AdminClient",
    name: str,
    settings: Mapping[str, str],
    deleted: Sequence[str],
    *,
    dry_run: bool,
) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

    from dmq.cli.kafka_errors import asked
    from dmq.cli.topic_facts import require, require_settings

    [topic] = require(session, admin, [name])
    _warn_of_writes(session, settings, min(len(each.replicas) for each in topic.partitions))
    if deleted:
        require_settings(session, admin, name, deleted)
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    # librdkafka insists on a value; the broker ignores the one of a deletion.
    entries += [
        ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in deleted
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    futures = admin.incremental_alter_configs(
        [resource], validate_only=dry_run, request_timeout=REQUEST_TIMEOUT_S
    )
    asked(session, f"Altering {name!r}", futures[resource].result)


def _add_partitions(
    session: Session, admin: "AdminClient", name: str, total: int, *, dry_run: bool
) -> None:
    from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

    from dmq.cli.kafka_errors import asked

    futures = admin.create_partitions(
        [NewPartitions(name, total)],
        validate_only=dry_run,
        operation_timeout=REQUEST_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
    )
    asked(session, f"Giving {name!r} {count_of(total, 'partition')}", futures[name].result)


@command(app, "delete", "dmq topic delete greetings\ndmq topic delete old-1 old-2 --yes")
def delete(
    session: Session,
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A topic that is not there is fine.")
    ] = False,
) -> Exit:
    """Delete topics with all their records."""
    from confluent_kafka import KafkaError

    wanted = list(dict.fromkeys(names))
    admin = session.admin()
    if not yes:
        _confirm(wanted)
    futures = admin.delete_topics(
        wanted, operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S
    )
    fine = {KafkaError.UNKNOWN_TOPIC_OR_PART: "missing"} if if_exists else {}
    return _report(session, futures, "deleted", fine)


def _confirm(names: Sequence[str]) -> None:
    what = ", ".join(names)
    if not sys.stdin.isatty():
        raise usage(f"Deleting {what} needs a yes, and there is nobody to ask", "Add --yes.")
    print(f"Delete {what} with all records? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing was deleted")


def _report(
    session: Session,
    futures: "Mapping[str, Future[None]]",
    verb: str,
    fine: "Mapping[int, str]",
) -> Exit:
    """Say what became of each topic. `fine` names the errors that are as good as done."""
    from confluent_kafka import KafkaException

    from dmq.cli.kafka_errors import error_of, exit_code, hint_of, sentence

    done: list[dict[str, str]] = []
    failed: list[tuple[str, KafkaError]] = []
    for name, future in futures.items():
        try:
            future.result()
            done.append({"topic": name, "outcome": verb})
        except KafkaException as exception:
            error = error_of(exception)
            if error.code() in fine:
                done.append({"topic": name, "outcome": fine[error.code()]})
            else:
                failed.append((name, error))
    if session.output.json:
        errors = [{"topic": n, "error": e.name(), "message": sentence(e)} for n, e in failed]
        session.output.emit({"done": done, "failed": errors})
    for entry in done if not session.output.quiet else []:
        session.output.say(f"{entry['topic']}: {entry['outcome']}")
    for name, error in failed:
        why = sentence(error)
        is_named = repr(name) in why  # By the broker, as in "Topic 'orders' already exists."
        session.output.error(why if is_named else f"Topic {name!r}: {why}", hint_of(error))
    return worst(len(done), len(failed), exit_code(failed[0][1]) if failed else Exit.FAILURE)
