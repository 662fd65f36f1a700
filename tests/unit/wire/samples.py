"""Random messages of any class and version, for the tests of the wire.

Values stay inside what the judges accept: they model error codes as an enumeration and some times
as dates. Numbers else are drawn from the whole range, with a liking for its ends.
"""

from random import Random
from typing import Any
from uuid import UUID

from dmq.errors import ErrorCode
from dmq.types import NIL_UUID
from dmq.wire.registry import APIS, Api
from dmq.wire.schema import Field, Kind, layout

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ["", "a", "topic-1", "Füße 日本", "x" * 126, "y" * 127, "z" * 300]
CHOICES: dict[str, list[Any]] = {
    "bool": [False, True],
    "uint16": [0, 1, 9092, 65535],
    "float64": [0.0, -1.5, 1e300],
    "string": TEXTS,
}
# Judges know these as moments or lengths of time, not as numbers.
MOMENTS = {
    "expiry_timestamp_ms",
    "issue_timestamp_ms",
    "log_append_time_ms",
    "max_timestamp_ms",
    "transaction_start_time_ms",
}
LONG_SPANS = {
    "expiry_time_period_ms",
    "max_lifetime_ms",
    "renew_period_ms",
    "retention_time_ms",
    "session_lifetime_ms",
}

CASES = [
    (api, version, direction)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    for direction in ("request", "response")
]
"""Every message that we speak: API, version, direction."""


def case_id(case: tuple[Api, int, str]) -> str:
    api, version, direction = case
    return f"{api.name}-v{version}-{direction}"


def message_type(api: Api, direction: str) -> type:
    return api.request_type if direction == "request" else api.response_type


def encode(api: Api, version: int, direction: str, message: Any) -> bytes:
    if direction == "request":
        return b"".join(api.encode_request(version, message))
    return b"".join(api.encode_response(version, message))


def decode(api: Api, version: int, direction: str, raw: bytes) -> Any:
    if direction == "request":
        return api.decode_request(version, raw)
    return api.decode_response(version, raw)


def random_message(cls: type, version: int, rng: Random, *, depth: int = 0) -> Any:
    """A message with random values in the fields that the version has, defaults in the others."""
    message = cls()
    for field in layout(cls, version):
        if field.is_present:
            setattr(message, field.name, _random_field(field, version, rng, depth))
    return message


def _random_field(field: Field, version: int, rng: Random, depth: int) -> Any:
    if field.is_nullable and rng.random() < 0.3:
        return None
    if field.tag is not None and rng.random() < 0.5:
        return field.factory() if field.factory else field.default
    value = _random_value(field.kind, field.name, version, rng, depth)
    if field.tag is not None and isinstance(field.kind, type) and value == field.kind():
        return None  # A tagged struct of defaults is not sent.
    return value


def _random_value(kind: Kind, name: str, version: int, rng: Random, depth: int) -> Any:
    if isinstance(kind, list):
        count = rng.choice([0, 1, 2, 3]) if depth < 3 else rng.choice([0, 1])
        if isinstance(kind[0], str) and rng.random() < 0.05:
            count = rng.choice([126, 127, 130])
        return [_random_value(kind[0], name, version, rng, depth + 1) for _ in range(count)]
    if isinstance(kind, type):
        return random_message(kind, version, rng, depth=depth + 1)
    if kind in BITS:
        return _random_int(kind, name, rng)
    if kind in ("bytes", "records"):
        return rng.randbytes(rng.choice([0, 1, 126, 127, 128, 16384]))
    if kind == "uuid":
        return rng.choice([NIL_UUID, UUID(int=rng.getrandbits(128))])
    return rng.choice(CHOICES[kind])


def _random_int(kind: str, name: str, rng: Random) -> int:
    if name.endswith("error_code"):
        return int(rng.choice(list(ErrorCode)))
    if name in MOMENTS or name in LONG_SPANS:
        return 1000 * rng.randrange(1 << 32)
    top = 1 << (BITS[kind] - 1)
    return rng.choice([0, 1, -1, -top, top - 1, rng.randrange(-top, top)])
