"""The options of the source: names, meanings and defaults of Spark's Kafka source, checked at once.

Options that this source does not know are refused, with the name that was probably meant. Client
options (`kafka.*`) are taken as far as they mean something here; others of the Java consumer are
accepted and have no effect, so that a job moves by changing the word in `format(…)`.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dmq.spark.cluster import Settings
from dmq.spark.failures import SparkSourceError
from dmq.spark.security import SECURITY_OPTIONS

EARLIEST = -2
LATEST = -1
"""In place of an offset, as ListOffsets and Spark's options have them."""

FETCH_BYTES = 8 << 20
MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000

Positions = Mapping[str, Mapping[int, int]]
"""Topic → partition → offset, or timestamp."""

_STRATEGIES = ("subscribe", "subscribePattern", "assign")
_NAMES = (
    *_STRATEGIES,
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "failOnDataLoss", "includeHeaders", "minPartitions", "maxRecordsPerPartition",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger",
    "groupId", "fetchBytes",
)  # fmt: skip
_WITHOUT_EFFECT = (
    "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "groupIdPrefix", "path", "checkpointLocation", "queryName",
)  # fmt: skip
_CLIENT_USED = frozenset({
    "bootstrap.servers", "client.id", "request.timeout.ms", "default.api.timeout.ms",
    "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms",
    "isolation.level", "group.id", "check.crcs", "client.rack",
}) | SECURITY_OPTIONS  # fmt: skip
_CLIENT_REFUSED = {
    "auto.offset.reset": "set startingOffsets to earliest or latest instead",
    "enable.auto.commit": "Spark's checkpoint keeps the progress; set groupId to show it as lag",
    "key.deserializer": "keys come as bytes; cast or parse the column key",
    "value.deserializer": "values come as bytes; cast or parse the column value",
    "interceptor.classes": "it could change records on their way",
}
_DURATIONS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Subscription:
    """Which partitions are read: topics by name, by pattern, or partitions one by one."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics like {self.pattern!r}"
        if self.partitions:
            return ", ".join(f"{topic}-{partition}" for topic, partition in self.partitions)
        return ", ".join(self.topics)


@dataclass(frozen=True)
class Bound:
    """Where a read starts or ends: one position for all, or one for each partition.

    `everywhere` and `each` are offsets (or EARLIEST, LATEST); with `is_time`, timestamps in ms.
    """

    everywhere: int | None = None
    each: Positions | None = None
    is_time: bool = False
    option: str = ""


@dataclass(frozen=True)
class SourceOptions:
    """All options of one use of the source."""

    settings: Settings
    subscription: Subscription
    starting: Bound | None = None
    ending: Bound | None = None
    latest_when_no_match: bool = False
    """A starting timestamp behind the last record: begin at the end, or tell the user."""
    fail_on_data_loss: bool = True
    includes_headers: bool = False
    reads_committed: bool = True
    checks_crcs: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    max_bytes_per_trigger: int | None = None
    group_id: str | None = None
    rack: str = ""
    fetch_bytes: int = FETCH_BYTES
    given: frozenset[str] = field(default_factory=frozenset)
    """The options that were set, in lower case."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "SourceOptions":
        """From Spark's options, whose names may be in any case. Raises SparkSourceError."""
        low = {name.lower(): value for name, value in options.items()}
        _check_names(options)
        client = {n.removeprefix("kafka."): v for n, v in low.items() if n.startswith("kafka.")}
        values = _Values(low)
        made = cls(
            settings=Settings.of(low),
            subscription=_subscription(low),
            starting=_bound(low, "starting"),
            ending=_bound(low, "ending"),
            latest_when_no_match=values.one_of(
                "startingOffsetsByTimestampStrategy", ("error", "latest")
            )
            == "latest",
            fail_on_data_loss=values.boolean("failOnDataLoss", True),
            includes_headers=values.boolean("includeHeaders", False),
            reads_committed=_isolation(client) == "read_committed",
            checks_crcs=client.get("check.crcs", "true").lower() != "false",
            min_partitions=values.count("minPartitions"),
            max_records_per_partition=values.count("maxRecordsPerPartition"),
            max_offsets_per_trigger=values.count("maxOffsetsPerTrigger"),
            min_offsets_per_trigger=values.count("minOffsetsPerTrigger"),
            max_trigger_delay_ms=values.duration("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
            max_bytes_per_trigger=values.size("maxBytesPerTrigger"),
            group_id=low.get("groupid") or client.get("group.id"),
            rack=client.get("client.rack", ""),
            fetch_bytes=values.size("fetchBytes") or FETCH_BYTES,
            given=frozenset(low),
        )
        lowest, highest = made.min_offsets_per_trigger, made.max_offsets_per_trigger
        if lowest and highest and lowest > highest:
            raise SparkSourceError(
                f"minOffsetsPerTrigger ({lowest}) is more than maxOffsetsPerTrigger ({highest});"
                " no batch could ever start"
            )
        return made

    def check_batch(self) -> None:
        """What makes no sense in `spark.read`. Raises SparkSourceError."""
        if self.starting is not None and LATEST in _offsets_of(self.starting):
            raise SparkSourceError(
                "startingOffsets=latest in a batch query reads nothing; use earliest, offsets or a"
                " timestamp"
            )
        if self.ending is not None and EARLIEST in _offsets_of(self.ending):
            raise SparkSourceError(
                "endingOffsets=earliest in a batch query reads nothing; use latest, offsets or a"
                " timestamp"
            )

    def check_stream(self) -> None:
        """What makes no sense in `spark.readStream`. Raises SparkSourceError."""
        if self.ending is not None:
            raise SparkSourceError(
                f"{self.ending.option} is not for streaming queries, which have no end; leave it out,"
                " or use .trigger(availableNow=True) to stop at what is there now"
            )


def is_latest(bound: Bound, partition: tuple[str, int]) -> bool:
    """Whether a partition is to be read from its end, whatever that is."""
    topic, index = partition
    each = (bound.each or {}).get(topic, {})
    return not bound.is_time and LATEST in (bound.everywhere, each.get(index))


def _offsets_of(bound: Bound) -> set[int]:
    if bound.is_time:
        return set()
    each = {offset for of in (bound.each or {}).values() for offset in of.values()}
    return each if bound.everywhere is None else each | {bound.everywhere}


# --- names


def _check_names(options: Mapping[str, str]) -> None:
    known = {name.lower() for name in (*_NAMES, *_WITHOUT_EFFECT)}
    for name in options:
        if name.lower().startswith("kafka."):
            _check_client_name(name)
        elif name.lower() not in known:
            raise SparkSourceError(
                f"unknown option {name!r} for reading{_meant(name, _NAMES)} Options are"
                f" {', '.join(_NAMES)} and kafka.* client options."
            )


def _check_client_name(name: str) -> None:
    short = name.lower().removeprefix("kafka.")
    if short in _CLIENT_REFUSED:
        raise SparkSourceError(f"option {name} is not supported: {_CLIENT_REFUSED[short]}")
    if short in _CLIENT_USED:
        return
    close = difflib.get_close_matches(short, _CLIENT_USED, n=1, cutoff=0.92)
    if close:
        raise SparkSourceError(f"unknown option {name!r}: did you mean 'kafka.{close[0]}'?")


def _meant(name: str, names: tuple[str, ...]) -> str:
    by_low = {known.lower(): known for known in names}
    by_low |= {f"kafka.{known}": f"kafka.{known}" for known in _CLIENT_USED}
    by_low |= {known: f"kafka.{known}" for known in _CLIENT_USED}
    close = difflib.get_close_matches(name.lower(), by_low, n=1, cutoff=0.6)
    return f": did you mean {by_low[close[0]]!r}?" if close else "."


# --- values


class _Values:
    """Reads values of options by name."""

    def __init__(self, low: Mapping[str, str]) -> None:
        self._low = low

    def boolean(self, name: str, default: bool) -> bool:
        value = self._low.get(name.lower(), str(default)).strip().lower()
        if value not in ("true", "false"):
            raise SparkSourceError(f"{name}={value!r}: write true or false")
        return value == "true"

    def count(self, name: str) -> int | None:
        return self._read(name, _positive, "a whole number above 0")

    def size(self, name: str) -> int | None:
        return self._read(name, _bytes, "bytes, for example 67108864 or 64m")

    def duration(self, name: str, default: int) -> int:
        found = self._read(name, _milliseconds, "a time such as 30s, 15m or 2h")
        return default if found is None else found

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self._low.get(name.lower(), allowed[0]).strip().lower()
        if value not in allowed:
            raise SparkSourceError(f"{name}={value!r}: choose {' or '.join(allowed)}")
        return value

    def _read(self, name: str, read: Callable[[str], int | None], what: str) -> int | None:
        value = self._low.get(name.lower())
        if value is None:
            return None
        found = read(value.strip().lower())
        if found is None:
            raise SparkSourceError(f"{name}={value!r}: give {what}")
        return found


def _positive(value: str) -> int | None:
    return int(value) if value.isdigit() and int(value) > 0 else None


def _bytes(value: str) -> int | None:
    found = re.fullmatch(r"(\d+)\s*(?:([kmgt])i?b?|b)?", value)
    if found is None or int(found[1]) == 0:
        return None
    return int(found[1]) << (10 * (" kmgt".index(found[2]) if found[2] else 0))


def _milliseconds(value: str) -> int | None:
    found = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d)?", value)
    return None if found is None else int(found[1]) * _DURATIONS[found[2] or "ms"]


def _isolation(client: Mapping[str, str]) -> str:
    value = client.get("isolation.level", "read_committed").lower()
    if value not in ("read_committed", "read_uncommitted"):
        raise SparkSourceError(
            f"kafka.isolation.level={value!r}: choose read_committed or read_uncommitted"
        )
    return value


# --- what to read


def _subscription(low: Mapping[str, str]) -> Subscription:
    given = [name for name in _STRATEGIES if name.lower() in low]
    if len(given) != 1:
        raise SparkSourceError(
            f"set exactly one of {', '.join(_STRATEGIES)} to say what is read, for example"
            f' option("subscribe", "orders"); {"none" if not given else " and ".join(given)} is set'
        )
    value = low[given[0].lower()].strip()
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (part.strip() for part in value.split(",")))))
        if not topics:
            raise SparkSourceError("subscribe names no topic: write topics with commas in between")
        return Subscription(topics=topics)
    if given[0] == "subscribePattern":
        return Subscription(pattern=_pattern(value))
    return Subscription(partitions=_assigned(value))


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise SparkSourceError(f"subscribePattern={value!r} is no pattern: {error}") from error
    if not value:
        raise SparkSourceError("subscribePattern is empty: write a pattern such as orders-.*")
    return value


def _assigned(value: str) -> tuple[tuple[str, int], ...]:
    parsed = _json(value, "assign", '{"orders":[0,1]}')
    found = []
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list) or not all(_is_count(p) for p in partitions):
            raise SparkSourceError(f"assign: {topic} needs a list of partitions, e.g. [0,1]")
        found += [(topic, partition) for partition in partitions]
    if not found:
        raise SparkSourceError('assign names no partition; write e.g. {"orders":[0,1]}')
    return tuple(sorted(set(found)))


def _bound(low: Mapping[str, str], side: str) -> Bound | None:
    """Spark's order: a timestamp for all, timestamps for each, offsets."""
    if f"{side}timestamp" in low:
        value, name = low[f"{side}timestamp"].strip(), f"{side}Timestamp"
        if not value.isdigit():
            raise SparkSourceError(
                f"{name}={value!r}: give milliseconds since 1970, e.g. 1700000000000"
            )
        return Bound(everywhere=int(value), is_time=True, option=name)
    if f"{side}offsetsbytimestamp" in low:
        name = f"{side}OffsetsByTimestamp"
        each = _positions(low[name.lower()], name, lowest=0)
        return Bound(each=each, is_time=True, option=name)
    value = low.get(f"{side}offsets", "").strip()
    name = f"{side}Offsets"
    if not value:
        return None
    if value.lower() in ("earliest", "latest"):
        everywhere = EARLIEST if value.lower() == "earliest" else LATEST
        return Bound(everywhere=everywhere, option=name)
    return Bound(each=_positions(value, name, lowest=EARLIEST), option=name)


def _positions(value: str, option: str, lowest: int) -> dict[str, dict[int, int]]:
    example = '{"orders":{"0":23,"1":-2}}'
    parsed = _json(value, option, f"earliest, latest or JSON like {example}")
    found: dict[str, dict[int, int]] = {}
    for topic, positions in parsed.items():
        if not isinstance(positions, dict):
            raise SparkSourceError(f"{option}: {topic} needs partitions, as in {example}")
        for partition, position in positions.items():
            if not partition.isdigit() or not _is_count(position, lowest):
                raise SparkSourceError(
                    f"{option}: {topic} has {partition!r}: {position!r}; write it as in {example}"
                )
            found.setdefault(topic, {})[int(partition)] = position
    if not found:
        raise SparkSourceError(f"{option} names no partition; write it as in {example}")
    return found


def _is_count(value: Any, lowest: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest


def _json(value: str, option: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise SparkSourceError(f"{option}={value!r}: write {example} ({error})") from error
    if not isinstance(parsed, dict):
        raise SparkSourceError(f"{option}={value!r}: write {example}")
    return parsed
