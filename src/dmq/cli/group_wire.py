"""Questions to coordinators of groups and transactions that librdkafka does not ask.

Owns who is asked (every broker, the coordinator of a key, the leader of a partition) and the patience
with coordinators that are just being found or loaded. Plain connections only, as `cluster_wire`.
Answers are the wire's own messages. Called by the `group` and `txn` commands; never prints.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self

from dmq.cli.cluster_wire import METADATA, ClusterWire, error_name
from dmq.cli.exits import CommandError, Exit, not_found
from dmq.cli.raw import Exchange
from dmq.cli.session import REQUEST_TIMEOUT_S, unreachable
from dmq.errors import ErrorCode, ProtocolError

FIND_COORDINATOR, LIST_GROUPS, INIT_PRODUCER_ID, WRITE_TXN_MARKERS = 10, 16, 22, 27
OFFSET_DELETE, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 47, 61, 65, 66

GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""
PATIENCE_S = 15.0
"""How long a coordinator may be in the making: its topic is created, or its leader is elected."""
PAUSE_S = 0.1

_LATER = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Node(NamedTuple):
    """A broker and where it listens."""

    id: int
    host: str
    port: int


class CoordinatorWire(ClusterWire):
    """A cluster whose coordinators and leaders can be asked."""

    def __enter__(self) -> Self:
        return self

    def nodes(self) -> list[Node]:
        """The brokers that are up."""
        from dmq.wire.messages.k03_metadata import MetadataRequest

        response = self.ask(METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False))
        return [Node(broker.node_id, broker.host, broker.port) for broker in response.brokers]

    def ask_node(self, node: Node, key: int, request: Any) -> Any:
        """Ask this broker and no other."""
        self._connect_or_end()
        version = self._version(key)
        try:
            with Exchange(node.host, node.port) as exchange:
                return exchange.ask(key, version, request, REQUEST_TIMEOUT_S)
        except (OSError, ProtocolError) as error:
            raise unreachable(f"{node.host}:{node.port}", str(error)) from error

    def version_of(self, key: int) -> int:
        """The version in which this API is asked. Raises CommandError if it is not served."""
        self._connect_or_end()
        return self._version(key)

    def _connect_or_end(self) -> None:
        if not self._versions:
            self.nodes()

    def ask_all(self, key: int, request: Any) -> tuple[list[tuple[Node, Any]], list[str]]:
        """Ask every broker: the answers, and a sentence for each broker that gave none."""
        answers: list[tuple[Node, Any]] = []
        problems: list[str] = []
        self.version_of(key)
        for node in self.nodes():
            try:
                response = self._settled(partial(self.ask_node, node, key, request))
            except CommandError as error:
                problems.append(f"Broker {node.id} does not answer: {error.message}")
                continue
            if response.error_code:
                problems.append(f"Broker {node.id} refuses: {error_name(response.error_code)}")
            else:
                answers.append((node, response))
        return answers, problems

    def _settled(self, ask: Callable[[], Any]) -> Any:
        """An answer that is no "later" of a coordinator which loads, or the last such answer."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            response = ask()
            if response.error_code not in _LATER or time.monotonic() > deadline:
                return response
            time.sleep(PAUSE_S)

    def coordinator(self, kind: int, name: str) -> Node:
        """Who coordinates this group or transactional id."""
        from dmq.wire.messages.k10_find_coordinator import FindCoordinatorRequest

        request = FindCoordinatorRequest(key=name, key_type=kind, coordinator_keys=[name])

        def ask() -> Any:
            response = self.ask(FIND_COORDINATOR, request)
            # Since version 4 an answer has many; before, it is the one.
            return response.coordinators[0] if response.coordinators else response

        found = self._settled(ask)
        if found.error_code:
            what = "group" if kind == GROUP else "transactional id"
            raise CommandError(
                f"The coordinator of {what} {name!r} is not known:"
                f" {found.error_message or error_name(found.error_code)}",
                hint="See `dmq cluster status`: too few brokers may be up.",
            )
        return Node(found.node_id, found.host, found.port)

    def ask_coordinator(
        self, kind: int, name: str, key: int, request: Any, error_of: Callable[[Any], int]
    ) -> tuple[Node, Any]:
        """Ask the coordinator of a name, again while it says that it is not (yet) the one."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            node = self.coordinator(kind, name)
            response = self.ask_node(node, key, request)
            if error_of(response) not in _LATER or time.monotonic() > deadline:
                return node, response
            time.sleep(PAUSE_S)

    def leader(self, topic: str, partition: int) -> Node:
        """Who leads this partition. Raises CommandError if there is no such, or nobody."""
        from dmq.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic

        wanted = [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = self.ask(METADATA, request)
        found = response.topics[0]
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise not_found(f"There is no topic {topic!r}", "See `dmq topic list`.")
        leaders = {each.partition_index: each.leader_id for each in found.partitions}
        if partition not in leaders:
            raise not_found(
                f"Topic {topic!r} has no partition {partition}", f"It has 0 to {len(leaders) - 1}."
            )
        for broker in response.brokers:
            if broker.node_id == leaders[partition]:
                return Node(broker.node_id, broker.host, broker.port)
        raise CommandError(
            f"{topic}:{partition} has no leader",
            hint="See `dmq cluster status`.",
            code=Exit.FAILURE,
        )
