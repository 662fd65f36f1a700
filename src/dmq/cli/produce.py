"""`dmq produce`: records from arguments, lines or a file into a topic.

Owns the options and the report. Hands records to librdkafka as fast as it takes them (or as --rate
says) and counts what the broker acknowledged: a record is delivered when the broker said so.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmq.cli.command import command
from dmq.cli.completing import topic_names
from dmq.cli.exits import Exit, usage, worst
from dmq.cli.interrupts import held
from dmq.cli.moments import timestamp_ms
from dmq.cli.output import Progress, count_of, human_size
from dmq.cli.produce_input import Shape, file_lines, records, unescape
from dmq.cli.record_json import Headers, Outgoing, RecordError
from dmq.cli.session import Session, key_values

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
_BAD_LINES_SHOWN = 10
_PARTITIONS_SHOWN = 5
_METADATA_S = 5.0
_POLL_EVERY = 1000
_POLL_EVERY_S = 0.5
"""Records, and for slow input seconds, between two looks at librdkafka's answers."""

_RECORD_BYTES_MAX = 1_000_000_000
"""librdkafka's own limit, raised as far as it goes: the broker decides."""

_FLUSH_S = 0.2
_INTERRUPT_FLUSH_S = 5.0
"""What is on its way at Ctrl-C gets this long to arrive."""


@dataclass(slots=True)
class Tally:
    """What became of the records so far."""

    delivered: int = 0
    size_bytes: int = 0
    bad_lines: list[str] = field(default_factory=list)
    bad_count: int = 0
    refused: "Counter[tuple[int, str, str]]" = field(default_factory=Counter)
    spans: dict[int, list[int]] = field(default_factory=dict)
    """Partition → [count, first offset, last offset]; without acks there are no offsets: -1."""

    @property
    def failed(self) -> int:
        """Lines that were no record, and records that the cluster did not take."""
        return self.bad_count + self.refused.total()


@command(
    app,
    "produce",
    """
    dmq produce greetings hello world
    cat users.txt | dmq produce users --key-separator : --compression zstd
    dmq produce users --key u42 --tombstone
    dmq consume orders --json | dmq produce copy --json --repartition
    """,
)
def produce(
    session: Session,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)
    ],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="VALUE", help="Records; else one per line of stdin or --file."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read lines from here; - is stdin."),
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="The whole input is one record.")] = False,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", help="The key of every record.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            help=r"What stands between key and value; \t is a tab.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeatable."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Else chosen by key."),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp", metavar="WHEN", help="ISO date, @MILLISECONDS or 5m (ago); else now."
        ),
    ] = None,
    repartition: Annotated[
        bool, typer.Option("--repartition", help="Choose partitions anew, whatever --json says.")
    ] = False,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="One record with --key and no value.")
    ] = False,
    null: Annotated[
        str | None,
        typer.Option("--null", metavar="TEXT", help="A key or value of just this is null."),
    ] = None,
    base64: Annotated[bool, typer.Option("--base64", help="Keys and values are base64.")] = False,
    compression: Annotated[
        str, typer.Option("--compression", "-z", metavar="|".join(COMPRESSIONS))
    ] = "none",
    acks: Annotated[
        str, typer.Option("--acks", metavar="|".join(ACKS), help="Whom to wait for.")
    ] = "all",
    idempotent: Annotated[
        bool | None,
        typer.Option(
            "--idempotent/--no-idempotent",
            help="A retry never writes twice. Default: for stdin and files with --acks all.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", min=0.001, help="At most so many records a second."),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0.1, help="Until an unsent record has failed."
        ),
    ] = 30.0,
) -> Exit:
    """Write records to a topic.

    With --json each input is an object with value (or value_base64), and as you like key, headers,
    partition and timestamp, and the report is JSON too. Says how many records the broker
    acknowledged; the exit code is not 0 when any failed.
    """
    _check(compression, acks, key=key, separator=key_separator, tombstone=tombstone)
    shape = Shape(
        is_json=session.output.json,
        is_base64=base64,
        separator=None if key_separator is None else unescape(key_separator).encode(),
        null=None if null is None else null.encode(),
        key=None if key is None else key.encode(),
        headers=_headers(header or []),
        partition=partition,
        is_repartitioned=repartition,
        timestamp_ms=None
        if timestamp is None
        else timestamp_ms(timestamp, _now_ms(), "--timestamp"),
    )
    source: Iterable[Outgoing | RecordError]
    if tombstone:
        source = [Outgoing(None, shape.key, shape.headers, partition, shape.timestamp_ms)]
    else:
        source = records(_lines(session, values or [], file, whole=whole), shape)
    if idempotent is None:
        # It costs librdkafka half a second to begin with: a stream is worth it, a word is not.
        idempotent = acks == "all" and not values and not tombstone
    settings = {
        "compression.type": compression,
        "acks": acks,
        "enable.idempotence": idempotent,
        "message.timeout.ms": round(timeout * 1000),
        "message.max.bytes": _RECORD_BYTES_MAX,
        "queue.buffering.max.messages": 200_000,
        "linger.ms": 5,
    }
    is_typed = file in (None, "-") and not values and not tombstone and sys.stdin.isatty()
    return Run(session, topic, rate, is_typed=is_typed).send(source, settings)


def _check(
    compression: str, acks: str, *, key: str | None, separator: str | None, tombstone: bool
) -> None:
    if compression not in COMPRESSIONS:
        raise usage(f"--compression {compression!r} is unknown", f"Use {', '.join(COMPRESSIONS)}.")
    if acks not in ACKS:
        raise usage(f"--acks {acks!r} is unknown", f"Use {', '.join(ACKS)}.")
    if tombstone and key is None:
        raise usage("A tombstone needs a key to bury", "Add --key.")
    if separator == "":
        raise usage("An empty --key-separator separates nothing", r"Write a tab as '\t'.")
    if separator is not None and key is not None:
        raise usage("--key and --key-separator contradict each other", "Give one of them.")


def _headers(items: list[str]) -> Headers:
    headers: Headers = []
    for item in items:
        [(name, value)] = key_values([item], "--header").items()
        headers.append((name, value.encode()))
    return headers


def _lines(
    session: Session, values: list[str], file: str | None, *, whole: bool
) -> Iterator[bytes]:
    if values:
        if file is not None:
            raise usage("Values and --file contradict each other", "Give one of them.")
        return (value.encode("utf-8", "surrogateescape") for value in values)
    if file is None and sys.stdin.isatty():
        session.output.note("One record per line; Ctrl-D ends.")
    return file_lines(file or "-", whole=whole)


class Run:
    """One run of `produce`, from the first record to the report."""

    def __init__(
        self, session: Session, topic: str, rate: float | None = None, *, is_typed: bool = False
    ) -> None:
        self._session = session
        self._topic = topic
        self._rate = rate
        self._is_typed = is_typed
        """Somebody types the records: a progress line would run into theirs."""
        self._unanswered = 0
        self._silent: set[int] = set()
        """Partitions whose records were answered by nobody; -1 if none was chosen yet."""
        self._leaderless: list[int] = []
        """Those of them that have no leader, as the metadata say."""
        self._tally = Tally()
        self._progress: Progress
        self._shown = (0, 0)
        """Records and bytes that the progress line knows of."""

    def send(self, source: Iterable[Outgoing | RecordError], settings: dict[str, Any]) -> Exit:
        """Send everything and report."""
        producer = self._session.producer(settings)
        started = time.monotonic()
        interrupted = False
        output = self._session.output
        with output.progress(f"to {self._topic}", hidden=self._is_typed) as self._progress:
            try:
                self._send_all(producer, source)
                self._flush(producer)
            except KeyboardInterrupt:
                interrupted = True
                self._flush(producer, _INTERRUPT_FLUSH_S)
        if self._silent:
            self._leaderless = _leaderless(producer, self._topic, self._silent)
        self._report(time.monotonic() - started)
        return Exit.INTERRUPTED if interrupted else self._exit_code()

    def _send_all(self, producer: "Producer", source: Iterable[Outgoing | RecordError]) -> None:
        started = polled = time.monotonic()
        for number, record in enumerate(source, 1):
            if isinstance(record, RecordError):
                self._bad_line(number, record)
                continue
            if self._rate is not None:
                _wait_until(producer, started + (number - 1) / self._rate)
            self._send_one(producer, record)
            now = time.monotonic()
            if number % _POLL_EVERY == 0 or now - polled > _POLL_EVERY_S:
                polled = now
                with held():
                    producer.poll(0)
                self._show_progress()

    def _send_one(self, producer: "Producer", record: Outgoing) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    -1 if record.partition is None else record.partition,
                    on_delivery=self._delivered,
                    timestamp=record.timestamp_ms or 0,
                    headers=list(record.headers) or None,
                )
                return
            except BufferError:
                with held():
                    producer.poll(0.1)  # Full: the broker sets the pace.
            except KafkaException as error:  # Refused at once, e.g. larger than message.max.bytes.
                self._refused(error.args[0])
                return

    def _flush(self, producer: "Producer", patience_s: float = float("inf")) -> None:
        deadline = time.monotonic() + patience_s
        self._unanswered = len(producer)
        while self._unanswered and time.monotonic() < deadline:
            with held():
                self._unanswered = producer.flush(_FLUSH_S)
            self._show_progress()

    def _show_progress(self) -> None:
        count, size_bytes = self._shown
        self._shown = self._tally.delivered, self._tally.size_bytes
        self._progress.advance(self._shown[0] - count, self._shown[1] - size_bytes)

    def _delivered(self, error: "KafkaError | None", message: "Message[Any, Any]") -> None:
        if error is not None:
            self._refused(error)
            if error.code() == error._MSG_TIMED_OUT:
                self._silent.add(-1 if (silent := message.partition()) is None else silent)
            return
        tally = self._tally
        size_bytes = len(message) + len(message.key() or b"")
        tally.delivered += 1
        tally.size_bytes += size_bytes
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        offset = -1 if offset is None else offset
        span = tally.spans.setdefault(partition, [0, offset, offset])
        span[0] += 1
        span[2] = offset

    def _refused(self, error: "KafkaError") -> None:
        self._tally.refused[(error.code(), error.name(), error.str())] += 1

    def _bad_line(self, number: int, error: RecordError) -> None:
        self._tally.bad_count += 1
        self._tally.bad_lines = [*self._tally.bad_lines, f"record {number}: {error}"][
            :_BAD_LINES_SHOWN
        ]

    def _exit_code(self) -> Exit:
        from confluent_kafka import KafkaError

        from dmq.cli.kafka_errors import exit_code

        code = Exit.FAILURE
        if self._tally.refused and not self._leaderless:
            code = exit_code(KafkaError(self._tally.refused.most_common(1)[0][0][0]))
        return worst(self._tally.delivered, self._tally.failed, code)

    def _report(self, seconds: float) -> None:
        tally, output = self._tally, self._session.output
        for line in tally.bad_lines:
            output.error(line)
        if tally.bad_count > len(tally.bad_lines):
            output.error(
                f"… and {count_of(tally.bad_count - len(tally.bad_lines), 'more bad record')}"
            )
        self._report_refused()
        if output.json:
            output.emit(self._json(seconds))
            return
        where = f" to {count_of(len(tally.spans), 'partition')}" if len(tally.spans) > 1 else ""
        line = f"{self._topic}: {count_of(tally.delivered, 'record')} delivered{where}"
        if tally.failed:
            line += f", {tally.failed:,} failed"
        if self._unanswered:
            line += f", {self._unanswered:,} unanswered: they may or may not be there"
        elif tally.delivered == 1:
            [(partition, span)] = tally.spans.items()
            line += f" (partition {partition}" + (f", offset {span[1]})" if span[1] >= 0 else ")")
        if tally.delivered > 1:
            line += f" ({human_size(tally.size_bytes)} in {seconds:.2f} s)"
        output.note(line)

    def _report_refused(self) -> None:
        from confluent_kafka import KafkaError

        from dmq.cli.kafka_errors import hint_of, sentence

        for (code, _, reason), count in self._tally.refused.most_common():
            error = KafkaError(code, reason)
            last = self._session.last_words() if code < 0 else ""
            why = sentence(error) + (f" ({last})" if last else "")
            hint = hint_of(error)
            if code == KafkaError._MSG_TIMED_OUT and self._leaderless:
                why, hint = _no_leader(self._topic, self._leaderless)
            self._session.output.error(f"{count_of(count, 'record')} failed: {why}", hint)

    def _json(self, seconds: float) -> dict[str, Any]:
        tally = self._tally
        return {
            "topic": self._topic,
            "delivered": tally.delivered,
            "failed": tally.failed,
            "unanswered": self._unanswered,
            "bytes": tally.size_bytes,
            "seconds": round(seconds, 6),
            "partitions": [
                {
                    "partition": p,
                    "count": count,
                    "first_offset": first if first >= 0 else None,
                    "last_offset": last if last >= 0 else None,
                }
                for p, (count, first, last) in sorted(tally.spans.items())
            ],
            "errors": [
                {"error": name, "message": reason, "count": count}
                for (_, name, reason), count in tally.refused.most_common()
            ],
            "bad_records": {"count": tally.bad_count, "first": tally.bad_lines},
        }


def _leaderless(producer: "Producer", topic: str, among: set[int]) -> list[int]:
    """Those of the partitions that have no leader; -1 stands for any. None if nobody tells."""
    from confluent_kafka import KafkaException

    try:
        told = producer.list_topics(topic, timeout=_METADATA_S).topics.get(topic)
    except KafkaException:
        return []
    partitions = {} if told is None else told.partitions
    found = [index for index, each in sorted(partitions.items()) if each.leader < 0]
    return found if -1 in among else [index for index in found if index in among]


def _no_leader(topic: str, partitions: list[int]) -> tuple[str, str]:
    """Why nobody answered, and what to do."""
    names = ", ".join(f"{topic}:{index}" for index in partitions[:_PARTITIONS_SHOWN])
    rest = len(partitions) - _PARTITIONS_SHOWN
    names += f" and {rest:,} more" if rest > 0 else ""
    verb = "has" if len(partitions) == 1 else "have"
    return f"{names} {verb} no leader", "See `dmq cluster status`: brokers that are down have it."


def _wait_until(producer: "Producer", moment: float) -> None:
    """Serve librdkafka's answers until it is time for the next record."""
    while (left_s := moment - time.monotonic()) > 0:
        with held():
            producer.poll(min(left_s, 0.1))


def _now_ms() -> int:
    return round(time.time() * 1000)
