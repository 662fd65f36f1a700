"""What is written on the command line of groups: partitions, states, durations, names after TAB.

Owns their parsing, which asks nobody, and the completion of group names. Never prints.
"""

import re
from collections.abc import Iterable, Mapping

import typer

from dmq.cli.exits import CommandError, not_found, usage

STATES = (
    "Empty",
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
"""States in Kafka's words; the classic and the new protocol have some each."""
TYPES = ("Classic", "Consumer", "Share", "Streams")

_DURATION = re.compile(
    r"P(?:(?P<d>\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(?P<h>\d+(?:\.\d+)?)H)?(?:(?P<m>\d+(?:\.\d+)?)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_SIMPLE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}
_PATIENCE_S = 1.0

Chosen = dict[str, list[int] | None]
"""Topic → its partitions that are meant; None: all."""


def chosen_partitions(words: Iterable[str]) -> Chosen:
    """`["orders", "events:0,2-4"]` → `{"orders": None, "events": [0, 2, 3, 4]}`."""
    chosen: Chosen = {}
    for word in words:
        topic, colon, numbers = word.partition(":")
        if not topic:
            raise usage(f"--topic {word!r} names no topic", "Write --topic orders or orders:0,2-4.")
        given = sorted(_numbers(word, numbers)) if colon else None
        if topic in chosen:
            before = chosen[topic]
            both = None if before is None or given is None else sorted({*before, *given})
            chosen[topic] = both
        else:
            chosen[topic] = given
    return chosen


def _numbers(word: str, text: str) -> set[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
            raise usage(
                f"--topic {word!r}: {part!r} is no partition", "Write numbers, as in orders:0,2-4."
            )
        numbers.update(range(int(first), int(last) + 1))
    return numbers


def resolved(chosen: Chosen, counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The partitions that are meant, of topics with so many. Raises CommandError for others."""
    wanted: list[tuple[str, int]] = []
    for topic, numbers in sorted(chosen.items()):
        if topic not in counts:
            raise not_found(f"There is no topic {topic!r}", "See `dmq topic list`.")
        for partition in range(counts[topic]) if numbers is None else numbers:
            if partition >= counts[topic]:
                raise not_found(
                    f"Topic {topic!r} has no partition {partition}",
                    f"It has 0 to {counts[topic] - 1}.",
                )
            wanted.append((topic, partition))
    return wanted


def words_among(given: Iterable[str], known: Iterable[str], option: str) -> set[str]:
    """Words of a fixed set, in whatever case and with dashes: `preparing-rebalance`."""
    plain = {_plain(word): word for word in known}
    found = set()
    for word in (part for item in given for part in item.split(",")):
        if _plain(word) not in plain:
            raise usage(f"{option} {word!r} is none of them", f"Write {', '.join(plain.values())}.")
        found.add(plain[_plain(word)])
    return found


def _plain(word: str) -> str:
    return re.sub(r"[^a-z]", "", word.lower())


def duration_ms(text: str, option: str) -> int:
    """Milliseconds of `5m`, `1.5h` or the ISO duration `PT1H30M`."""
    word = text.strip()
    match = _DURATION.fullmatch(word)
    if match and any(match.groupdict().values()):
        parts = match.groupdict()
        return round(sum(float(size or 0) * _UNIT_MS[unit] for unit, size in parts.items()))
    simple = _SIMPLE.fullmatch(word.lower())
    if simple:
        return round(float(simple[1]) * _UNIT_MS[simple[2]])
    raise usage(f"{option} {text!r} is no duration", "Write 5m, 1.5h, 7d or PT1H30M.")


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups of the cluster that begin so; nothing where anything goes wrong or takes long."""
    from confluent_kafka import KafkaException

    from dmq.cli.command import session_of

    places = (ctx.find_root().params, ctx.params)
    given = {name: value for place in places for name, value in place.items() if value}
    try:
        session = session_of(given)
        session.reach(_PATIENCE_S)
        admin = session.admin()  # A client that nobody holds ends, and its questions with it.
        groups = admin.list_consumer_groups(request_timeout=_PATIENCE_S).result().valid
    except (CommandError, KafkaException):
        return []
    present = ctx.params.get("names") or []
    names = (group.group_id for group in groups)
    return sorted(name for name in names if name.startswith(incomplete) and name not in present)
