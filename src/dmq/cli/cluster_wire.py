"""The admin requests that librdkafka does not know: quorum, elections, moves of replicas, farewells.

Owns one connection at a time to any broker of the cluster, over plain connections only, and the
highest version that both sides speak. Every broker passes these requests on to whom they concern, so
they work with any Kafka cluster. Answers are plain values; errors of a whole request end the command
in a sentence. Never prints.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import TracebackType
from typing import Any, NamedTuple

from dmq.cli.exits import CommandError, Exit
from dmq.cli.raw import Exchange, versions_of
from dmq.cli.session import (
    REQUEST_TIMEOUT_S,
    Session,
    addresses,
    no_metadata_leader,
    unreachable,
)
from dmq.errors import ErrorCode, ProtocolError
from dmq.types import METADATA_TOPIC
from dmq.wire import registry

METADATA, DESCRIBE_LOG_DIRS, ELECT_LEADERS = 3, 35, 43
INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CONFIGS = 44, 32
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 45, 46
DESCRIBE_QUORUM, DESCRIBE_CLUSTER, UNREGISTER_BROKER = 55, 60, 64

PREFERRED, UNCLEAN = 0, 1
"""Kinds of elections."""
_BROKERS = 1
"""Of DescribeCluster: brokers, not controllers."""
_SLACK_S = 5.0
"""An answer may take so much longer than the time that the request itself allows."""

Where = tuple[str, int]
"""A partition: topic and number."""


class Outcome(NamedTuple):
    """How it went with one partition; `code` 0 is success."""

    topic: str
    partition: int
    code: int
    message: str

    @property
    def name(self) -> str:
        """The error's name, or its number if we don't know it."""
        return error_name(self.code)


class Move(NamedTuple):
    """A move of replicas that is under way."""

    topic: str
    partition: int
    replicas: list[int]
    """All that may have it now, old and new ones."""
    adding: list[int]
    removing: list[int]

    @property
    def where(self) -> Where:
        return (self.topic, self.partition)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when it has ended."""
        return tuple(node for node in self.replicas if node not in self.removing)


class UnsureError(CommandError):
    """Nobody answered in time, or whoever answers does not know: it may have been done."""


def error_name(code: int) -> str:
    """The error's name, or its number if we don't know it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


class ClusterWire:
    """A cluster that can be asked. Moves on to another broker when the one it speaks with goes."""

    def __init__(self, session: Session) -> None:
        if not session.is_plain:
            raise CommandError(
                "This command speaks with plain connections only, and the client settings ask for"
                " TLS or a login",
                hint="Use Kafka's own tools on such a cluster.",
            )
        self._session = session
        self._addresses = addresses(session.bootstrap)
        self._exchange: Exchange | None = None
        self._versions: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> "ClusterWire":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hang_up()

    def _hang_up(self) -> None:
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None

    # --- asking ------------------------------------------------------------------------------

    def ask(self, key: int, request: Any, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """Ask any broker, in the newest version that both know."""
        problems: list[str] = []
        for _ in range(len(self._addresses) + 1):  # A connection that went stale, then all others.
            try:
                exchange = self._connect()
                return exchange.ask(key, self._version(key), request, timeout_s)
            except (OSError, ProtocolError) as error:
                problems.append(str(error))
                self._hang_up()
                self._addresses.append(self._addresses.pop(0))
        where = ", ".join(f"{host}:{port}" for host, port in self._addresses)
        raise unreachable(where, problems[-1])

    def ask_broker(self, node: int | None, key: int, request: Any) -> Any:
        """Ask this broker and no other; None: any."""
        if node is None:
            return self.ask(key, request)
        found = [broker for broker in self.metadata().brokers if broker.node_id == node]
        if not found:
            raise CommandError(
                f"There is no broker {node} that is up",
                hint="See `dmq cluster status`.",
                code=Exit.NOT_FOUND,
            )
        host, port = found[0].host, found[0].port
        try:
            with Exchange(host, port) as exchange:
                return exchange.ask(key, self._version(key), request, REQUEST_TIMEOUT_S)
        except (OSError, ProtocolError) as error:
            raise unreachable(f"{host}:{port}", str(error)) from error

    def _connect(self) -> Exchange:
        if self._exchange is None:
            exchange = Exchange(*self._addresses[0])
            try:
                self._versions = versions_of(exchange)
            except BaseException:
                exchange.close()
                raise
            self._exchange = exchange
        return self._exchange

    def serves(self, key: int) -> bool:
        """Whether the broker that we speak with knows this API at all."""
        with contextlib.suppress(OSError, ProtocolError):
            self._connect()
        return key in self._versions

    def _version(self, key: int) -> int:
        api = registry.api(key)
        lowest, highest = self._versions.get(key, (1, 0))
        version = min(highest, api.max_version)
        if version < max(lowest, api.min_version):
            raise CommandError(
                f"This cluster does not serve {api.name}",
                hint="`dmq doctor --remote` tells what it speaks.",
            )
        return version

    # --- reading -----------------------------------------------------------------------------

    def metadata(self) -> Any:
        """The Metadata response: brokers that are up, all topics and their partitions."""
        from dmq.wire.messages.k03_metadata import MetadataRequest

        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response = self.ask(METADATA, request)
        self._know((broker.host, broker.port) for broker in response.brokers)
        return response

    def _know(self, found: Iterable[tuple[str, int]]) -> None:
        for address in found:
            if address not in self._addresses:
                self._addresses.append(address)

    def avoid(self, address: tuple[str, int]) -> None:
        """Ask others than this broker, if there are any: it is about to leave."""
        if address in self._addresses and len(self._addresses) > 1:
            self._addresses.remove(address)
            self._hang_up()

    def cluster(self) -> Any:
        """The DescribeCluster response, with brokers that are registered but down where told."""
        from dmq.wire.messages.k60_describe_cluster import DescribeClusterRequest

        request = DescribeClusterRequest(endpoint_type=_BROKERS, include_fenced_brokers=True)
        response = self.ask(DESCRIBE_CLUSTER, request)
        _check("Describing the cluster", response)
        return response

    def quorum(self) -> Any | None:
        """The metadata log's part of the DescribeQuorum response, without a leader if there is none;
        None if nothing is told of it."""
        from dmq.wire.messages.k55_describe_quorum import (
            DescribeQuorumRequest,
            PartitionData,
            TopicData,
        )

        if not self.serves(DESCRIBE_QUORUM):
            return None
        request = DescribeQuorumRequest([TopicData(METADATA_TOPIC, [PartitionData(0)])])
        response = self.ask(DESCRIBE_QUORUM, request)
        if response.error_code or not response.topics:
            return None
        partition = response.topics[0].partitions[0]
        return partition if partition.error_code in _NOBODY_LEADS else None

    def moves(self) -> list[Move]:
        """Moves of replicas that are under way; none on a cluster that can't move any."""
        from dmq.wire.messages.k46_list_partition_reassignments import (
            ListPartitionReassignmentsRequest,
        )

        if not self.serves(LIST_REASSIGNMENTS):
            return []
        response = self.ask(LIST_REASSIGNMENTS, ListPartitionReassignmentsRequest(topics=None))
        _check("Listing the moves of replicas", response)
        return [
            Move(
                topic.name,
                each.partition_index,
                each.replicas,
                each.adding_replicas,
                each.removing_replicas,
            )
            for topic in response.topics
            for each in topic.partitions
        ]

    def log_dirs(self, host: str, port: int, wanted: Iterable[Where] | None = None) -> Any | None:
        """The DescribeLogDirs response of one broker, for these partitions or for all; None if it
        does not say."""
        from dmq.wire.messages.k35_describe_log_dirs import (
            DescribableLogDirTopic,
            DescribeLogDirsRequest,
        )

        topics = None
        if wanted is not None:
            topics = [
                DescribableLogDirTopic(name, [w[1] for w in those])
                for name, those in _by_topic(wanted)
            ]
        with contextlib.suppress(OSError, ProtocolError), Exchange(host, port) as exchange:
            low, high = versions_of(exchange).get(DESCRIBE_LOG_DIRS, (1, 0))
            version = min(high, registry.api(DESCRIBE_LOG_DIRS).max_version)
            if low <= version:
                return exchange.ask(DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics))
        return None

    # --- changing ----------------------------------------------------------------------------

    def reassign(
        self, targets: Mapping[Where, Sequence[int] | None], *, may_resize: bool = False
    ) -> list[Outcome]:
        """Give partitions these replicas, in order of preference; None ends a move. Without
        `may_resize` a cluster that knows of it (Kafka since 4.1) refuses more or fewer than there are:
        whoever planned with an old picture."""
        from dmq.wire.messages.k45_alter_partition_reassignments import (
            AlterPartitionReassignmentsRequest,
            ReassignablePartition,
            ReassignableTopic,
        )

        topics = [
            ReassignableTopic(
                name,
                [
                    ReassignablePartition(index, None if replicas is None else list(replicas))
                    for index, replicas in ((w[1], targets[w]) for w in those)
                ],
            )
            for name, those in _by_topic(targets)
        ]
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=round(REQUEST_TIMEOUT_S * 1000),
            allow_replication_factor_change=may_resize,
            topics=topics,
        )
        response = self.ask(ALTER_REASSIGNMENTS, request, REQUEST_TIMEOUT_S + _SLACK_S)
        _check("Moving replicas", response)
        return [
            Outcome(topic.name, each.partition_index, each.error_code, each.error_message or "")
            for topic in response.responses
            for each in topic.partitions
        ]

    def elect(self, kind: int, wanted: Iterable[Where] | None) -> list[Outcome]:
        """Elect leaders of these partitions; None: of all that need it."""
        from dmq.wire.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions

        topics = None
        if wanted is not None:
            topics = [
                TopicPartitions(name, [w[1] for w in those]) for name, those in _by_topic(wanted)
            ]
        request = ElectLeadersRequest(kind, topics, round(REQUEST_TIMEOUT_S * 1000))
        response = self.ask(ELECT_LEADERS, request, REQUEST_TIMEOUT_S + _SLACK_S)
        outcomes = [
            Outcome(topic.topic, each.partition_id, each.error_code, each.error_message or "")
            for topic in response.replica_election_results
            for each in topic.partition_result
        ]
        if not outcomes:
            _check("Electing leaders", response)
        return outcomes

    def unregister(self, node: int) -> None:
        """Make the cluster forget a broker. Raises UnsureError: see whether it did."""
        from dmq.wire.messages.k64_unregister_broker import UnregisterBrokerRequest

        response = self.ask(UNREGISTER_BROKER, UnregisterBrokerRequest(node))
        _check(f"Unregistering broker {node}", response)


def _by_topic(wanted: Iterable[Where]) -> Iterator[tuple[str, list[Where]]]:
    for name, those in groupby(sorted(wanted), key=lambda where: where[0]):
        yield name, list(those)


_NOBODY_LEADS = (
    ErrorCode.NONE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NETWORK_EXCEPTION,  # Who led last does not answer.
    ErrorCode.REQUEST_TIMED_OUT,
)
_UNSURE = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)
_NOT_FOUND = (ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _check(doing: str, response: Any) -> None:
    """Raise for an error of the whole."""
    code = response.error_code
    if not code:
        return
    if code == ErrorCode.NOT_CONTROLLER:
        raise no_metadata_leader()
    why = getattr(response, "error_message", None) or error_name(code)
    kind = UnsureError if code in _UNSURE else CommandError
    raise kind(
        f"{doing} failed: {why}", code=Exit.NOT_FOUND if code in _NOT_FOUND else Exit.FAILURE
    )
