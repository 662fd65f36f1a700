"""Which clients a test runs for, as pytest parameters, and the records that they must carry."""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from compat.clients.client import Compression, Record

FOREIGN = ("kafkajs", "franz", "java")
PRODUCERS = ("confluent", "kafka-python", "aiokafka", "kcat", *FOREIGN)
CONSUMERS = tuple(name for name in PRODUCERS if name != "kafkajs")
MIB = 1 << 20


def param(name: str) -> Any:
    return pytest.param(name, marks=[pytest.mark.foreign(name)] if name in FOREIGN else [])


def every(names: tuple[str, ...]) -> Any:
    """Runs a test once per client, given to it as the fixture `client`."""
    return pytest.mark.parametrize("client", [param(name) for name in names], indirect=True)


def now_ms() -> int:
    return int(time.time() * 1000)


def varied_records(seed: str, client: str, compression: Compression) -> list[Record]:
    """Records with every shape that a client can give them, the same for the same arguments."""
    dice = random.Random(f"{seed}/{client}/{compression}")
    base_ms = now_ms() - 3_600_000
    noise = dice.randbytes(3000)
    records = [
        Record(b"key", b"value", (), base_ms),
        Record(None, b"no key", (), base_ms + 1),
        Record(b"no value", None, (), base_ms + 2),
        Record(None, None, (), base_ms + 3),
        Record(b"", b"", (), base_ms + 4),
        Record(b"one header", b"x", (("name", b"value"),), base_ms + 5),
        Record(b"null header", b"x", (("empty", None), ("name", b"")), base_ms + 6),
        Record(b"many", b"x", (("again", b"1"), ("again", b"2"), ("again", None)), base_ms + 7),
        Record(noise[:50], noise, (("noise", noise[50:90]),), base_ms + 8),
        Record(b"out of time's order", b"x" * 5000, (), base_ms - 1000),
        Record(b"a mebibyte", _compressible(dice, MIB), (), base_ms + 9),
        Record(b"last", b"value \xc3\xa9", (("name \xe9", b"\x00\xff"),), base_ms + 10),
    ]
    narrow = _NARROWED.get(client, lambda record: record)
    return [record for record in map(narrow, records) if record is not None]


def _compressible(dice: random.Random, size: int) -> bytes:
    """Half noise, half not: it compresses, and its batches stay large."""
    return dice.randbytes(size // 2) + b"dmq " * (size // 8)


def _without_null_headers(record: Record) -> Record:
    headers = tuple((key, value) for key, value in record.headers if value is not None)
    return replace(record, headers=headers)


def _aiokafka_record(record: Record) -> Record | None:
    """aiokafka and kafka-python refuse a record with neither key nor value."""
    return None if record.key is None and record.value is None else record


def _kafka_python_record(record: Record) -> Record | None:
    return _aiokafka_record(_without_null_headers(record))


def _kcat_record(record: Record) -> Record | None:
    """kcat takes text as its arguments, and the clock's time."""
    pieces = [record.key or b"", *(value or b"" for _, value in record.headers)]
    if not all(piece.isascii() and b"\0" not in piece for piece in pieces):
        return None
    return replace(record, timestamp_ms=None)


# What a client's own interface cannot say; every other shape must pass through it unharmed.
_NARROWED: dict[str, Callable[[Record], Record | None]] = {
    "aiokafka": _aiokafka_record,
    "kafka-python": _kafka_python_record,
    "kafkajs": _without_null_headers,
    "kcat": _kcat_record,
}
