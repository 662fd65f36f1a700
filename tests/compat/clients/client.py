"""What the compatibility tests ask of any Kafka client, and the records that they pass around.

Owns the vocabulary (`Record`, `Stored`, `Client`, `ClientError`); does no input or output. The
modules beside it put one real client each behind it.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
COMPRESSIONS: tuple[Compression, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
Acks = Literal["all", "1", "0"]
Headers = tuple[tuple[str, bytes | None], ...]
MAX_REQUEST_BYTES = 8 << 20
FETCH_BYTES = 4 << 20
# Short, because a client that changes its assignment first waits for the fetch that is parked.
FETCH_WAIT_MS = 50
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a producer gives it; without a timestamp the client's clock says it."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as a consumer got it."""

    offset: int
    record: Record
    timestamp_type: Literal["create", "append"] = "create"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a producer was told that its record is; offset -1 when nobody told it (acks=0)."""

    partition: int
    offset: int


class ClientError(Exception):
    """The client gave up; `code` is the wire's error code, -1 if the broker did not say one."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (error code {code})")
        self.code = code


class Client(Protocol):
    """One real client. Consuming is by assignment and seek, never by a group."""

    name: str
    compressions: tuple[Compression, ...]
    reads: tuple[Compression, ...]
    is_idempotent: bool

    def produce(
        self,
        topic: str,
        records: list[Record],
        *,
        partition: int | None = 0,
        compression: Compression = "none",
        acks: Acks = "all",
    ) -> list[Place]:
        """Sends and waits until all are acknowledged. Raises `ClientError`."""

    def consume(
        self, topic: str, *, partition: int = 0, offset: int = 0, count: int, max_bytes: int = ...
    ) -> list[Stored]:
        """The first `count` records from `offset`; fewer if they do not come in time."""

    def offsets(
        self, topic: str, *, partition: int = 0, timestamp_ms: int | None = None
    ) -> tuple[int, int, int | None]:
        """Beginning, end, and the first offset at or after `timestamp_ms`, if there is one."""

    def topics(self) -> set[str]:
        """The names of all topics."""

    def close(self) -> None: ...
