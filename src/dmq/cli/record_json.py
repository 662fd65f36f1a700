"""A record as one line of JSON, the same for `consume --json` and `produce --json`.

Owns the schema. Text is text; bytes that are not UTF-8 are in a field of their own, `…_base64`, so
that no reader takes one for the other. Null is null. No input or output.

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000,
     "timestamp_type": "create", "key": "k", "value": "v", "headers": [{"key": "h", "value": "x"}]}
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Headers = list[tuple[str, bytes | None]]
_IGNORED = {"topic", "offset", "timestamp_type", "leader_epoch", "time"}
"""Fields of a consumed record that say nothing about the one to produce."""

_KNOWN = {"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp"}


class RecordError(ValueError):
    """A line that is no record. The message says why, without the line's number."""


@dataclass(slots=True)
class Outgoing:
    """A record to produce. Without partition or timestamp the client chooses."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


def put_bytes(target: dict[str, Any], name: str, data: bytes | None, *, base64_only: bool) -> None:
    """Write `name`, or `name_base64` for what is not text."""
    if data is None:
        target[name] = None
        return
    if not base64_only:
        try:
            target[name] = data.decode()
            return
        except UnicodeDecodeError:
            pass
    target[f"{name}_base64"] = base64.b64encode(data).decode()


def headers_json(
    headers: Sequence[tuple[str, bytes | None]], *, base64_only: bool
) -> list[dict[str, Any]]:
    """Headers in order; names may repeat."""
    items = []
    for key, value in headers:
        item: dict[str, Any] = {"key": key}
        put_bytes(item, "value", value, base64_only=base64_only)
        items.append(item)
    return items


def parse(line: bytes | str) -> Outgoing:
    """Read one line. Raises RecordError."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"no JSON: {error}") from error
    if not isinstance(data, dict):
        raise RecordError('no JSON object like {"key": "k", "value": "v"}')
    unknown = sorted(set(data) - _KNOWN - _IGNORED)
    if unknown:
        raise RecordError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}")
    if "value" not in data and "value_base64" not in data:
        raise RecordError('no "value"; write "value": null for a tombstone')
    return Outgoing(
        value=_bytes(data, "value"),
        key=_bytes(data, "key"),
        headers=_headers(data.get("headers")),
        partition=_number(data, "partition", low=0),
        timestamp_ms=_number(data, "timestamp", low=0),
    )


def _bytes(data: Mapping[str, Any], name: str) -> bytes | None:
    encoded = data.get(f"{name}_base64")
    if encoded is not None:
        if data.get(name) is not None:
            raise RecordError(f"both {name!r} and '{name}_base64'")
        return decode_base64(encoded, f"{name}_base64")
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    # Any other JSON value goes as the JSON it is.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def decode_base64(text: Any, what: str) -> bytes:
    """Strict base64. Raises RecordError."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise RecordError(f"{what} is no base64") from error


def _headers(value: Any) -> Headers:
    if value is None:
        return []
    if isinstance(value, dict):
        return [(key, _bytes({"value": item}, "value")) for key, item in value.items()]
    if not isinstance(value, list):
        raise RecordError('"headers" is neither a list of {"key", "value"} nor an object')
    headers: Headers = []
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("key"), str):
            raise RecordError('a header is not like {"key": "h", "value": "x"}')
        headers.append((item["key"], _bytes(item, "value")))
    return headers


def _number(data: Mapping[str, Any], name: str, *, low: int) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise RecordError(f"{name!r} is no number from {low}")
    return value
