"""Moments and places in a log as people write them: offsets, dates, "5m" for five minutes ago.

Owns their parsing and nothing else; `reading` turns them into offsets. No input or output.
"""

import enum
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from dmq.cli.exits import usage

_AGO = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
MOMENTS = "an ISO date, @MILLISECONDS or 5m (ago)"
PLACES = f"beginning, end, an OFFSET, -N (N before the end), {MOMENTS}"


class Kind(enum.Enum):
    """What a place is told by."""

    BEGINNING = enum.auto()
    END = enum.auto()
    OFFSET = enum.auto()
    BEFORE_END = enum.auto()
    TIMESTAMP = enum.auto()


@dataclass(frozen=True, slots=True)
class Place:
    """Where to start or stop: `number` is an offset, a count or milliseconds since 1970."""

    kind: Kind
    number: int = 0


BEGINNING = Place(Kind.BEGINNING)
END = Place(Kind.END)


def place(text: str, now_ms: int, option: str = "--from") -> Place:
    """Read a place; a bare number is always an offset, never a timestamp."""
    word = text.strip().lower()
    if word in ("beginning", "earliest", "start"):
        return BEGINNING
    if word in ("end", "latest"):
        return END
    if word.isdecimal():
        return Place(Kind.OFFSET, int(word))
    if word.startswith("-") and word[1:].isdecimal():
        return Place(Kind.BEFORE_END, int(word[1:]))
    moment = _moment_ms(text, now_ms)
    if moment is None:
        raise usage(f"{option} {text!r} is no place in a log", f"Write {PLACES}.")
    return Place(Kind.TIMESTAMP, moment)


def timestamp_ms(text: str, now_ms: int, option: str) -> int:
    """Milliseconds since 1970 of `@ms`, `5m` (ago) or an ISO date; without a zone it is local."""
    moment = _moment_ms(text, now_ms)
    if moment is None:
        raise usage(f"{option} {text!r} is no moment", f"Write {MOMENTS}.")
    return moment


def _moment_ms(text: str, now_ms: int) -> int | None:
    word = text.strip()
    if word.startswith("@") and word[1:].isdecimal():
        return int(word[1:])
    ago = _AGO.fullmatch(word.lower())
    if ago:
        return now_ms - round(float(ago[1]) * _UNIT_MS[ago[2]])
    try:
        return round(datetime.fromisoformat(word).timestamp() * 1000)
    except ValueError:
        return None


def iso(timestamp: int) -> str:
    """Milliseconds since 1970 as an ISO date in UTC."""
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # Nobody checks what producers write there.
        return f"@{timestamp}"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
