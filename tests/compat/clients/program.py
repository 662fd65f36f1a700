"""The Node, Go and Java clients behind the tests' `Client`: each a program spoken to in JSON."""

from base64 import b64decode, b64encode
from typing import Any

from compat.clients.client import (
    COMPRESSIONS,
    FETCH_BYTES,
    TIMEOUT_S,
    Acks,
    ClientError,
    Compression,
    Place,
    Record,
    Stored,
)
from foreign.programs import Program, ProgramError

# kafkajs brings gzip; the other codecs are packages that its users plug in.
_COMPRESSIONS: dict[str, tuple[Compression, ...]] = {"kafkajs": ("none", "gzip")}
_READS: dict[str, tuple[Compression, ...]] = {"kafkajs": ()}


def _packed(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _unpacked(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


class ForeignClient:
    is_idempotent = True

    def __init__(self, name: str, command: tuple[str, ...], bootstrap: str) -> None:
        self.name = name
        self.compressions = _COMPRESSIONS.get(name, COMPRESSIONS)
        self.reads = _READS.get(name, COMPRESSIONS)
        self._program = Program(command, bootstrap)

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        try:
            return self._program.call(op, TIMEOUT_S, **arguments)
        except ProgramError as error:
            raise ClientError(error.code, str(error)) from error

    def produce(
        self,
        topic: str,
        records: list[Record],
        *,
        partition: int | None = 0,
        compression: Compression = "none",
        acks: Acks = "all",
    ) -> list[Place]:
        answer = self.call(
            "produce",
            topic=topic,
            partition=partition,
            compression=compression,
            acks=acks,
            idempotent=acks == "all",
            records=[
                {
                    "key": _packed(record.key),
                    "value": _packed(record.value),
                    "headers": [{"key": k, "value": _packed(v)} for k, v in record.headers],
                    "timestamp_ms": record.timestamp_ms,
                }
                for record in records
            ],
        )
        if "base_offsets" in answer:
            return _places(dict(answer["base_offsets"]), partition, len(records))
        return [
            Place(*place) for place in zip(answer["partitions"], answer["offsets"], strict=True)
        ]

    def consume(
        self,
        topic: str,
        *,
        partition: int = 0,
        offset: int = 0,
        count: int,
        max_bytes: int = FETCH_BYTES,
    ) -> list[Stored]:
        answer = self.call(
            "consume",
            topic=topic,
            partition=partition,
            offset=offset,
            count=count,
            max_bytes=max_bytes,
        )
        return [_stored(record) for record in answer["records"]]

    def offsets(
        self, topic: str, *, partition: int = 0, timestamp_ms: int | None = None
    ) -> tuple[int, int, int | None]:
        found = self.call(
            "offsets",
            topic=topic,
            partition=partition,
            timestamp_ms=timestamp_ms,
            max_bytes=FETCH_BYTES,
        )
        return found["beginning"], found["end"], found["for_time"]

    def topics(self) -> set[str]:
        return set(self.call("topics")["topics"])

    def close(self) -> None:
        self._program.close()


def _places(bases: dict[int, int], partition: int | None, count: int) -> list[Place]:
    """kafkajs says only the first offset of each partition, in one batch per partition."""
    if partition is None:
        return [Place(where, base) for where, base in sorted(bases.items())]
    base = bases.get(partition, -1)
    return [Place(partition, base + index if base >= 0 else -1) for index in range(count)]


def _stored(record: dict[str, Any]) -> Stored:
    headers = tuple((pair["key"], _unpacked(pair["value"])) for pair in record["headers"])
    return Stored(
        record["offset"],
        Record(
            _unpacked(record["key"]), _unpacked(record["value"]), headers, record["timestamp_ms"]
        ),
        record["timestamp_type"],
    )
