"""A schema from examples: JSON values → the columns that Spark should read them into.

Pure Python, so that `dmq pipeline init` can do it without starting a Spark. Types widen: whole
numbers and fractions are DOUBLE, text and numbers are STRING. What hardly ever occurs (below one in
twenty) is taken for a broken record, which should be noticed, and does not widen anything.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

SAMPLE_MAX = 1000
RARE = 0.05

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True)
class _Seen:
    """What was seen in one place of the values."""

    kinds: Counter[str] = field(default_factory=Counter)
    fields: dict[str, "_Seen"] = field(default_factory=dict)
    items: "_Seen | None" = None

    def meet(self, value: Any) -> None:
        if value is None:
            return
        kind = _kind(value)
        self.kinds[kind] += 1
        if kind == "STRUCT":
            for name, each in value.items():
                self.fields.setdefault(name, _Seen()).meet(each)
        elif kind == "ARRAY":
            self.items = self.items or _Seen()
            for each in value:
                self.items.meet(each)

    def type(self) -> str:
        """The narrowest of Spark's types that takes what was seen often enough."""
        least = sum(self.kinds.values()) * RARE
        kinds = {kind for kind, count in self.kinds.items() if count >= least}
        if kinds == {"BIGINT", "DOUBLE"}:
            return "DOUBLE"
        if len(kinds) != 1:
            return "STRING"
        [kind] = kinds
        if kind == "STRUCT":
            return f"STRUCT<{self.columns(': ')}>" if self.fields else "STRING"
        if kind == "ARRAY":
            return f"ARRAY<{self.items.type() if self.items else 'STRING'}>"
        return kind

    def columns(self, between: str = " ") -> str:
        """`order_id STRING, amount DOUBLE`: the fields with their types."""
        return ", ".join(
            f"{_name(name)}{between}{each.type()}" for name, each in self.fields.items()
        )


def schema_of(values: Iterable[bytes | None]) -> str | None:
    """`order_id STRING, amount DOUBLE`, or None if there is no JSON object among the values."""
    seen = _Seen()
    for value in values:
        try:
            document = json.loads(value or b"")
        except ValueError:
            continue
        if isinstance(document, dict):
            seen.meet(document)
    return seen.columns() or None


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if -(2**63) <= value < 2**63 else "DOUBLE"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, str):
        return "TIMESTAMP" if _is_moment(value) else "STRING"
    return "STRUCT" if isinstance(value, dict) else "ARRAY"


def _is_moment(text: str) -> bool:
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _name(name: str) -> str:
    return name if _WORD.fullmatch(name) else "`" + name.replace("`", "``") + "`"
