"""A Kafka cluster as the data source sees it: who leads what, and connections to all of them.

Owns the connections and what is known of the cluster. How it is used is told in `connection`.
Everything blocks; nothing here is for several threads at once. Raises OSError and KafkaError for what
may pass, `SparkSourceError` for what a human must mend; `retry` turns the first kind into the second
when its patience ends.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dmq.errors import RETRIABLE, ErrorCode, KafkaError
from dmq.spark.connection import FIND_COORDINATOR, METADATA, Address, Connection
from dmq.spark.failures import NoBrokerError, SparkSourceError, check
from dmq.spark.security import Security
from dmq.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from dmq.wire.messages.k10_find_coordinator import FindCoordinatorRequest

GROUP = 0
TRANSACTION = 1

PATIENCE_S = 60.0
"""How long `retry` goes on: longer than an election and a broker's restart."""
START_PATIENCE_S = 10.0
"""How long nobody may answer at all before the user is told."""
BACKOFF_S = (0.05, 2.0)
"""The first pause of `retry` and the longest."""
IDLE_S_MAX = 240.0
"""Brokers hang up after ten minutes, firewalls sooner: such a connection is made anew."""

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """How to reach a cluster. Goes to the executors with every task."""

    bootstrap: tuple[Address, ...]
    security: Security = field(default_factory=Security)
    client_id: str = "dmq-spark"
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    patience_s: float = PATIENCE_S

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Settings":
        """From Spark's options, `kafka.` and all, names in any case. Raises SparkSourceError."""
        client = {
            name.lower().removeprefix("kafka."): value
            for name, value in options.items()
            if name.lower().startswith("kafka.")
        }
        return cls(
            bootstrap=_addresses(client.get("bootstrap.servers", "")),
            security=Security.of(client),
            client_id=client.get("client.id", "dmq-spark"),
            request_timeout_s=_seconds(client, "request.timeout.ms", 30_000),
            connect_timeout_s=_seconds(client, "socket.connection.setup.timeout.ms", 10_000),
            patience_s=_seconds(client, "default.api.timeout.ms", int(PATIENCE_S * 1000)),
        )


def _addresses(servers: str) -> tuple[Address, ...]:
    found = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        host, colon, port = server.rpartition(":")
        if not colon or not host or not port.isdigit():
            raise SparkSourceError(
                f"kafka.bootstrap.servers: {server!r} is no host:port; write for example"
                ' option("kafka.bootstrap.servers", "broker1:9092,broker2:9092")'
            )
        found.append(Address(host.strip("[]"), int(port)))
    if not found:
        raise SparkSourceError(
            'no brokers are named: set option("kafka.bootstrap.servers", "host:9092")'
        )
    return tuple(found)


def _seconds(client: Mapping[str, str], name: str, default_ms: int) -> float:
    value = client.get(name, str(default_ms))
    if not value.isdigit() or int(value) == 0:
        raise SparkSourceError(
            f"kafka.{name}={value!r}: give milliseconds, for example {default_ms}"
        )
    return int(value) / 1000


class Cluster:
    """Connections to the brokers of a cluster, found by what they are needed for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._addresses: dict[int, Address] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._coordinators: dict[tuple[str, int], int] = {}
        self._connections: dict[Address, Connection] = {}

    def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- connections

    def connection(self, node: int) -> Connection:
        """To a broker by its node id."""
        if node not in self._addresses:
            self.refresh()
        if node not in self._addresses:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not in the cluster")
        return self._connect(self._addresses[node])

    def leader_connection(self, topic: str, partition: int) -> Connection:
        """To the leader of a partition, as far as it is known."""
        return self.connection(self.leader(topic, partition))

    def coordinator_connection(self, key: str, kind: int) -> Connection:
        """To the coordinator of a group (`GROUP`) or of a transactional id (`TRANSACTION`)."""
        return self.connection(self.coordinator(key, kind))

    def any_connection(self) -> Connection:
        """To a broker that answers. Raises NoBrokerError if none of those known does."""
        for connection in self._connections.values():
            if connection.is_open and not self._is_stale(connection):
                return connection
        failures = []
        known = [*self._addresses.values(), *self.settings.bootstrap]
        for address in random.sample(known, len(known)):
            try:
                return self._connect(address)
            except OSError as error:
                failures.append(f"{address}: {error}")
        raise NoBrokerError(
            f"no broker answers ({'; '.join(dict.fromkeys(failures))}). Is one running, and is"
            " kafka.bootstrap.servers right? The driver and every executor must reach it."
        )

    def _connect(self, address: Address) -> Connection:
        known = self._connections.get(address)
        if known is not None and known.is_open and not self._is_stale(known):
            return known
        if known is not None:
            known.close()
        made = self._open(address)
        self._connections[address] = made
        return made

    def _open(self, address: Address) -> Connection:
        settings = self.settings
        return Connection(
            address,
            settings.security,
            client_id=settings.client_id,
            connect_timeout_s=settings.connect_timeout_s,
            request_timeout_s=settings.request_timeout_s,
        )

    def new_connection(self, node: int) -> Connection:
        """To a broker, for the caller alone, who closes it: for requests that stay in flight."""
        if node not in self._addresses:
            self.refresh()
        if node not in self._addresses:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node} is not in the cluster")
        return self._open(self._addresses[node])

    @staticmethod
    def _is_stale(connection: Connection) -> bool:
        idle_s = time.monotonic() - connection.used_at
        return not connection.in_flight and idle_s > IDLE_S_MAX

    # --- who is who

    def leader(self, topic: str, partition: int) -> int:
        """The node id of a partition's leader; asks when it is not known."""
        if (topic, partition) not in self._leaders:
            for found in self.refresh([topic]).topics:
                check(found.error_code, f"topic {topic}")
        node = self._leaders.get((topic, partition), -1)
        if node < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return node

    def coordinator(self, key: str, kind: int) -> int:
        """The node id of a coordinator; asks when it is not known."""
        known = self._coordinators.get((key, kind))
        if known is not None:
            return known
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        answer = self.any_connection().ask(FIND_COORDINATOR, request)
        found: Any = answer.coordinators[0] if answer.coordinators else answer
        check(found.error_code, found.error_message or f"no coordinator for {key}")
        self._addresses[found.node_id] = Address(found.host, found.port)
        self._coordinators[key, kind] = int(found.node_id)
        return int(found.node_id)

    def refresh(self, topics: Iterable[str] | None = ()) -> MetadataResponse:
        """Ask who is there and who leads these topics; None asks for all topics."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        connection = self.any_connection()
        response: MetadataResponse = connection.ask(METADATA, request)
        if response.brokers:
            self._addresses = {b.node_id: Address(b.host, b.port) for b in response.brokers}
        for topic in response.topics:
            self._note_leaders(topic)
        return response

    def _note_leaders(self, topic: MetadataResponseTopic) -> None:
        for partition in topic.partitions:
            self._leaders[str(topic.name), partition.partition_index] = partition.leader_id

    def forget(self) -> None:
        """Believe nothing about leaders and coordinators any more: something has moved."""
        self._leaders.clear()
        self._coordinators.clear()

    # --- again

    def retry(self, what: str, attempt: Callable[[], T], patience_s: float | None = None) -> T:
        """`attempt` until it works, while its failure is one that may pass.

        What is known of leaders is forgotten in between. Raises SparkSourceError when patience ends,
        other errors at once.
        """
        patience = self.settings.patience_s if patience_s is None else patience_s
        deadline = time.monotonic() + patience
        pause_s = BACKOFF_S[0]
        while True:
            try:
                return attempt()
            except (OSError, KafkaError, NoBrokerError) as error:
                if isinstance(error, KafkaError) and error.code not in RETRIABLE | _PASSING:
                    raise
                if time.monotonic() + pause_s > deadline:
                    raise _given_up(what, patience, error) from error
            self.forget()
            time.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
            pause_s = min(2 * pause_s, BACKOFF_S[1])


_PASSING = frozenset({ErrorCode.BROKER_NOT_AVAILABLE})


def _given_up(what: str, patience_s: float, error: Exception) -> SparkSourceError:
    if isinstance(error, NoBrokerError):
        return SparkSourceError(f"could not {what} within {patience_s:.0f} s: {error}")
    return SparkSourceError(
        f"could not {what} within {patience_s:.0f} s: {str(error) or type(error).__name__}. Look at the"
        " brokers' health (dmq cluster show), or raise kafka.default.api.timeout.ms."
    )
