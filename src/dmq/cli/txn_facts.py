"""What transactions look like: asked of their coordinators and of the partitions' leaders.

Owns these questions and the plain values that come of them, with their JSON. Librdkafka asks none of
them, so they go over plain connections. Never prints and changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dmq.cli.cluster_wire import error_name
from dmq.cli.exits import CommandError, not_found
from dmq.cli.group_wire import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    TRANSACTION,
    CoordinatorWire,
    Node,
)
from dmq.cli.moments import iso
from dmq.errors import ErrorCode

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""States in Kafka's words."""
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""Records of such a transaction are not yet read by those who read what is committed."""

Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id and what its producer is about."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int | None
    timeout_ms: int | None
    started_ms: int | None
    """None when no transaction is open."""
    coordinator: int
    partitions: list[Where]

    def age_ms(self, now_ms: int) -> int | None:
        """How long the transaction has been open."""
        return None if self.started_ms is None else max(0, now_ms - self.started_ms)

    def as_json(self, now_ms: int) -> dict[str, Any]:
        """The stable schema of `dmq txn list --json`."""
        return {
            "transactional_id": self.transactional_id,
            "state": self.state,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "timeout_ms": self.timeout_ms,
            "started": None if self.started_ms is None else iso(self.started_ms),
            "age_ms": self.age_ms(now_ms),
            "coordinator": self.coordinator,
            "partitions": [{"topic": t, "partition": p} for t, p in self.partitions],
        }


@dataclass(frozen=True, slots=True)
class Producing:
    """What a partition's leader knows of a producer."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp_ms: int
    start_offset: int | None
    """Where its open transaction begins in this partition; None: it has none there."""


def list_transactions(
    wire: CoordinatorWire,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    older_than_ms: int | None = None,
    now_ms: int = 0,
) -> tuple[list[Transaction], list[str]]:
    """What every coordinator knows, and a sentence for each broker that told nothing."""
    from dmq.wire.messages.k66_list_transactions import ListTransactionsRequest

    request = ListTransactionsRequest(list(states), list(producer_ids))
    by_coordinator = wire.version_of(LIST_TRANSACTIONS) >= 1
    if by_coordinator and older_than_ms is not None:
        request.duration_filter = older_than_ms
    answers, problems = wire.ask_all(LIST_TRANSACTIONS, request)
    found: list[Transaction] = []
    for node, response in answers:
        names = [each.transactional_id for each in response.transaction_states]
        found += _described(wire, node, names) if names else []
    if older_than_ms is not None:  # A coordinator also counts from the start of what has ended.
        found = [each for each in found if each.state in OPEN]
        if not by_coordinator:
            found = [each for each in found if (each.age_ms(now_ms) or 0) > older_than_ms]
    return sorted(found, key=lambda each: each.transactional_id), problems


def _described(wire: CoordinatorWire, node: Node, names: list[str]) -> list[Transaction]:
    """Those that are still there: an id may go between the list and the description."""
    from dmq.wire.messages.k65_describe_transactions import DescribeTransactionsRequest

    response = wire.ask_node(node, DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(names))
    return [_told(node, each) for each in response.transaction_states if not each.error_code]


def describe_transaction(wire: CoordinatorWire, name: str) -> Transaction:
    """One transactional id. Raises CommandError if its coordinator does not know it."""
    from dmq.wire.messages.k65_describe_transactions import DescribeTransactionsRequest

    node, response = wire.ask_coordinator(
        TRANSACTION,
        name,
        DESCRIBE_TRANSACTIONS,
        DescribeTransactionsRequest([name]),
        lambda answer: int(answer.transaction_states[0].error_code),
    )
    state = response.transaction_states[0]
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise not_found(f"There is no transactional id {name!r}", "See `dmq txn list`.")
    if state.error_code:
        raise CommandError(f"Describing {name!r} failed: {error_name(state.error_code)}")
    return _told(node, state)


def _told(node: Node, state: Any) -> Transaction:
    started_ms = state.transaction_start_time_ms  # Kept after the end.
    is_open = state.transaction_state in OPEN and started_ms >= 0
    return Transaction(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        started_ms if is_open else None,
        node.id,
        sorted((topic.topic, index) for topic in state.topics for index in topic.partitions),
    )


def producers(wire: CoordinatorWire, topic: str, partition: int) -> tuple[Node, list[Producing]]:
    """Who leads a partition, and the producers that it remembers."""
    from dmq.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest

    node = wire.leader(topic, partition)
    request = DescribeProducersRequest([TopicRequest(topic, [partition])])
    told = wire.ask_node(node, DESCRIBE_PRODUCERS, request).topics[0].partitions[0]
    if told.error_code:
        why = told.error_message or error_name(told.error_code)
        raise CommandError(f"Asking for the producers of {topic}:{partition} failed: {why}")
    return node, [
        Producing(
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_timestamp,
            each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
        )
        for each in told.active_producers
    ]


def start_offsets(wire: CoordinatorWire, transaction: Transaction) -> dict[Where, int]:
    """Where the transaction begins in its partitions, as far as their leaders tell."""
    starts: dict[Where, int] = {}
    for topic, partition in transaction.partitions:
        try:
            _, known = producers(wire, topic, partition)
        except CommandError:  # A partition without leader, say: what the others tell is shown.
            continue
        for each in known:
            if each.producer_id == transaction.producer_id and each.start_offset is not None:
                starts[topic, partition] = each.start_offset
    return starts
