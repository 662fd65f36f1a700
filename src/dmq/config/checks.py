"""What a value may be.

Each check is called with the setting's name and its parsed value and answers with what is wrong, or
None; printed, it says what is allowed (for documents and `dmq config list`).

Pure. Used by the tables of settings only.
"""

import dataclasses
import re
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class AtLeast:
    """A number that has a floor."""

    low: int | float

    def __call__(self, name: str, value: Any) -> str | None:
        if value is None or value >= self.low:
            return None
        return f"Value must be at least {self.low}"

    def __str__(self) -> str:
        return f"at least {self.low}"


@dataclasses.dataclass(frozen=True, slots=True)
class Between:
    """A number that has a floor and a ceiling, and perhaps one more value that means something."""

    low: int | float
    high: int | float
    otherwise: int | None = None

    def __call__(self, name: str, value: Any) -> str | None:
        if value is None or value == self.otherwise or self.low <= value <= self.high:
            return None
        if self.otherwise is not None:
            return f"Value must be between {self.low} and {self.high} or equal to {self.otherwise}"
        if value < self.low:
            return f"Value must be at least {self.low}"
        return f"Value must be no more than {self.high}"

    def __str__(self) -> str:
        also = "" if self.otherwise is None else f", or {self.otherwise}"
        return f"{self.low} to {self.high}{also}"


class OneOf:
    """One word of a few."""

    __slots__ = ("ignore_case", "words")

    def __init__(self, *words: str, ignore_case: bool = False) -> None:
        self.words = words
        self.ignore_case = ignore_case

    def __call__(self, name: str, value: Any) -> str | None:
        if value in self.words or (self.ignore_case and str(value).lower() in self.words):
            return None
        return f"String must be one of: {', '.join(self.words)}"

    def __str__(self) -> str:
        return ", ".join(self.words)


class EachOf:
    """A list of words, each one of a few; it may be empty if `empty` says so."""

    __slots__ = ("empty", "words")

    def __init__(self, *words: str, empty: bool = True) -> None:
        self.words = words
        self.empty = empty

    def __call__(self, name: str, value: Any) -> str | None:
        if not value and not self.empty:
            return "The list must not be empty"
        if all(word in self.words for word in value):
            return None
        return f"String must be one of: {', '.join(self.words)}"

    def __str__(self) -> str:
        return f"a list of: {', '.join(self.words)}"


class NotEmpty:
    """A text or list with something in it."""

    __slots__ = ()

    def __call__(self, name: str, value: Any) -> str | None:
        return None if value is None or len(value) else "Value must not be empty"

    def __str__(self) -> str:
        return "not empty"


@dataclasses.dataclass(frozen=True, slots=True)
class Exactly:
    """One value only: what Kafka lets you choose and dmq does not."""

    value: Any
    reason: str

    def __call__(self, name: str, value: Any) -> str | None:
        return None if value == self.value else self.reason

    def __str__(self) -> str:
        shown = str(self.value).lower() if isinstance(self.value, bool) else str(self.value)
        return f"only {shown or 'empty'}"


class ThrottledReplicas:
    """`*`, or partition:broker pairs."""

    __slots__ = ()
    PAIR = re.compile(r"[0-9]+:[0-9]+")

    def __call__(self, name: str, value: Any) -> str | None:
        if value == ("*",) or all(self.PAIR.fullmatch(pair) for pair in value):
            return None
        return f"{name} must be * or a list of partition:broker pairs such as 0:1,1:2"

    def __str__(self) -> str:
        return "`*`, or partition:broker pairs"


class OffsetReset:
    """Where a share group begins: earliest, latest or by_duration:<ISO 8601 duration>."""

    __slots__ = ()
    DURATION = re.compile(
        r"by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+([.][0-9]+)?S)?)?",
        re.IGNORECASE,
    )

    def __call__(self, name: str, value: Any) -> str | None:
        if value in ("earliest", "latest") or self.DURATION.fullmatch(value):
            return None
        return f"The value of {name} must be earliest, latest or by_duration:<PnDTnHnMn.nS>"

    def __str__(self) -> str:
        return "earliest, latest, by_duration:PnDTnHnMn.nS"
