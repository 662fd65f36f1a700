"""`dmq consume`: records of topics, for people and for programs.

Owns the options, the loop and what is written. Reads up to the log's end as it is now and stops,
unless it follows. Without a group it leaves no trace on the cluster; with one it commits what it
has written out, never what it has not.
"""

import json
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dmq.cli.command import command
from dmq.cli.completing import topic_names
from dmq.cli.exits import CommandError, Exit, usage
from dmq.cli.interrupts import held
from dmq.cli.moments import BEGINNING, END, PLACES, Kind, Place, place
from dmq.cli.output import Progress, count_of
from dmq.cli.record_json import headers_json, put_bytes
from dmq.cli.record_text import Incoming, Style, columns, template
from dmq.cli.session import Session

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

    from dmq.cli.sieve import Sieve

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

Write = Callable[[Incoming], bytes]
_TIMESTAMP_TYPES = {1: "create", 2: "log_append"}
_BATCH_MAX = 1000
_POLL_S = 0.1
"""Python sees Ctrl-C only between two calls of librdkafka."""

STALLED_S = 30.0
"""A reading with an end that gets nothing for so long has failed."""


@command(
    app,
    "consume",
    """
    dmq consume greetings
    dmq consume orders --follow --keys --headers
    dmq consume orders --from 2026-01-31T12:00 --to 5m --json
    dmq consume orders --from -10 --format '{partition}/{offset} {key} = {value}\\n'
    """,
)
def consume(
    session: Session,
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)
    ],
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            "-s",
            metavar="PLACE",
            help=f"{PLACES}. Default: beginning; with --follow end.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", "-e", metavar="PLACE", help="Stop before it. Default: the end as it is now."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Wait for new records.")] = False,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", metavar="N", min=1, help="Stop after so many records."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Only these; repeatable."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", metavar="NAME", help="Share the work with this consumer group."
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", "-t", metavar="SECONDS", min=0.1, help="Stop after so many quiet seconds."
        ),
    ] = None,
    keys: Annotated[bool, typer.Option("--keys", "-k", help="Print keys.")] = False,
    headers: Annotated[bool, typer.Option("--headers", "-H", help="Print headers.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", "-O", help="Print partition, offset.")
    ] = False,
    times: Annotated[bool, typer.Option("--times", "-T", help="Print timestamps.")] = False,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="TEMPLATE", help="With {key} {value} {offset} …; see `docs/CLI.md`."
        ),
    ] = None,
    base64: Annotated[bool, typer.Option("--base64", help="Keys and values as base64.")] = False,
    null: Annotated[str, typer.Option("--null", metavar="TEXT", help="How null looks.")] = "NULL",
    read_uncommitted: Annotated[
        bool,
        typer.Option("--read-uncommitted", help="Also records of open and aborted transactions."),
    ] = False,
) -> Exit:
    """Read records from topics.

    Stops at the end of the log as it is when the command starts, unless --follow is given. Prints
    values, one per line; with --json one object per line. Ctrl-C ends it at any time.
    """
    now_ms = round(time.time() * 1000)
    first = place(from_, now_ms) if from_ is not None else (END if follow else BEGINNING)
    last = place(to, now_ms, "--to") if to is not None else (None if follow else END)
    _check(follow=follow, to=to, group=group, first=from_ and first, partition=partition)
    style = Style(null.encode(), base64, session.output.is_terminal)
    write: Write
    if session.output.json:
        write = partial(json_line, base64_only=base64)
    else:
        render = (
            template(format_)
            if format_ is not None
            else columns(offsets=offsets, times=times, headers=headers, keys=keys)
        )
        write = lambda record: render(record, style)  # noqa: E731
    settings = {
        "isolation.level": "read_uncommitted" if read_uncommitted else "read_committed",
        "enable.partition.eof": True,
        "enable.auto.offset.store": False,
    }
    run = Run(session, write, count, timeout, follow=follow)
    if group is not None:
        reset = "latest" if first.kind is Kind.END else "earliest"
        return run.as_group(topics, settings | {"group.id": group, "auto.offset.reset": reset})
    # librdkafka wants a group's name even where there is no group; nothing is committed to it.
    settings |= {"group.id": f"dmq-cli-{uuid.uuid4()}", "enable.auto.commit": False}
    settings |= {"auto.offset.reset": "error"}
    return run.alone(topics, settings, first, last, partition)


def _check(
    *,
    follow: bool,
    to: str | None,
    group: str | None,
    first: Place | str | None,
    partition: Sequence[int] | None,
) -> None:
    if follow and to is not None:
        raise usage("--follow and --to contradict each other", "Give one of them.")
    if group is None:
        return
    if to is not None or partition:
        raise usage(
            "A group chooses partitions and offsets itself", "Leave out --to and --partition."
        )
    if isinstance(first, Place) and first.kind not in (Kind.BEGINNING, Kind.END):
        raise usage(
            "A group starts where it stopped",
            "With --group, --from may be beginning or end: where to start the first time.",
        )


class Run:
    """One run of `consume`, from the first record to the exit code."""

    def __init__(
        self,
        session: Session,
        write: Write,
        count_max: int | None,
        timeout_s: float | None,
        *,
        follow: bool,
    ) -> None:
        self._session = session
        self._write = write
        self._count_max = count_max
        self._timeout_s = timeout_s
        self._follow = follow
        self._written = 0

    def alone(
        self,
        topics: Sequence[str],
        settings: dict[str, Any],
        first: Place,
        last: Place | None,
        partitions: Sequence[int] | None,
    ) -> Exit:
        """Read chosen spans of chosen partitions, without a group."""
        from confluent_kafka import TopicPartition

        from dmq.cli.reading import Reading, partitions_of, plan
        from dmq.cli.sieve import SpanSieve
        from dmq.cli.topic_facts import require

        admin = self._session.admin()
        found = require(self._session, admin, list(dict.fromkeys(topics)))
        wanted = partitions_of(((d.name, len(d.partitions)) for d in found), partitions)
        with self._session.consumer(settings) as consumer:
            spans = plan(self._session, consumer, wanted, first, last)
            reading = Reading(spans)
            consumer.assign([TopicPartition(*where, spans[where].start) for where in reading.open])
            total = None if last is None else reading.record_count_max
            return self._read(consumer, total, SpanSieve(self._session, consumer, reading))

    def as_group(self, topics: Sequence[str], settings: dict[str, Any]) -> Exit:
        """Read as a member of a group and commit what was written out."""
        from dmq.cli.sieve import GroupSieve
        from dmq.cli.topic_facts import require

        require(self._session, self._session.admin(), list(dict.fromkeys(topics)))
        with self._session.consumer(settings) as consumer:
            consumer.subscribe(list(topics))
            return self._read(consumer, None, GroupSieve(self._session, consumer, self._follow))

    def _read(self, consumer: "Consumer", progress_total: int | None, sieve: "Sieve") -> Exit:
        try:
            if self._session.output.is_terminal:  # The records are the progress.
                self._loop(consumer, sieve, None)
            else:
                with self._session.output.progress("read", progress_total or None) as progress:
                    self._loop(consumer, sieve, progress)
        except KeyboardInterrupt:
            self._session.output.note(f"{count_of(self._written, 'record')}, then interrupted")
            return Exit.INTERRUPTED
        self._session.output.note(count_of(self._written, "record"))
        return Exit.OK

    def _loop(self, consumer: "Consumer", sieve: "Sieve", progress: Progress | None) -> None:
        quiet_since = time.monotonic()
        while not sieve.is_done and not self._is_full:
            with held():
                messages = consumer.consume(_BATCH_MAX, _POLL_S)
            wanted = sieve.sift(messages)
            if self._count_max is not None:
                wanted = wanted[: self._count_max - self._written]
            if wanted:
                self._write_out(wanted, progress)
                sieve.written(wanted)
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since >= self._patience_s:
                self._out_of_patience()
                return

    def _write_out(
        self, messages: "Sequence[Message[Any, Any]]", progress: Progress | None
    ) -> None:
        size_bytes = 0
        lines = []
        for message in messages:
            lines.append(self._write(incoming(message)))
            size_bytes += len(message)
        self._written += len(lines)  # First: what an interrupt finds in the buffer is written, too.
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()
        if progress is not None:
            progress.advance(len(lines), size_bytes)

    @property
    def _is_full(self) -> bool:
        return self._count_max is not None and self._written >= self._count_max

    @property
    def _patience_s(self) -> float:
        if self._timeout_s is not None:
            return self._timeout_s
        return float("inf") if self._follow else STALLED_S

    def _out_of_patience(self) -> None:
        """Quiet is the normal end of following; it is a failure where more was asked for."""
        if self._follow and self._count_max is None:
            return
        asked = f" of {self._count_max:,}" if self._count_max is not None else ""
        raise CommandError(
            f"Nothing came for {self._patience_s:g} s; {self._written:,}{asked} records were read",
            hint="Check the topic with `dmq topic describe`, or wait longer with --timeout.",
        )


def incoming(message: "Message[Any, Any]") -> Incoming:
    """The record of a message of librdkafka."""
    kind, timestamp_ms = message.timestamp()
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers = message.headers() or []
    return Incoming(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms if kind in _TIMESTAMP_TYPES else None,
        timestamp_type=_TIMESTAMP_TYPES.get(kind),
        key=message.key(),
        value=message.value(),
        headers=cast(Sequence[tuple[str, bytes | None]], headers),
    )


def json_line(record: Incoming, *, base64_only: bool = False) -> bytes:
    """One line of `--json`; the schema is in `record_json`."""
    data: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
    }
    put_bytes(data, "key", record.key, base64_only=base64_only)
    put_bytes(data, "value", record.value, base64_only=base64_only)
    data["headers"] = headers_json(record.headers, base64_only=base64_only)
    return json.dumps(data, ensure_ascii=False).encode() + b"\n"
