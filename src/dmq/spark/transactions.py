"""Transactions over the raw wire: begun in one process, ended in another.

Speaks the first version of Kafka's transaction protocol (KIP-98, KIP-360) with every broker: partitions
are added by request (AddPartitionsToTxn up to 3), Produce goes up to 11, EndTxn up to 4, so a
transaction keeps one epoch from its beginning to its end and (id, producer id, epoch) is all that
somebody else needs to end it. Brokers of Kafka 4 serve this beside the second version (KIP-890), where
epochs move with each end; the two must not be mixed within a transaction, so the caps are here.

Ending twice in the same way is no error. A transaction that was ended otherwise (its time ran out,
somebody fenced it) raises `LostTransactionError`.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmq.errors import ErrorCode, KafkaError
from dmq.spark.cluster import TRANSACTION, Cluster
from dmq.spark.connection import (
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    Connection,
)
from dmq.spark.failures import SparkSourceError, check
from dmq.spark.routing import Target
from dmq.wire.messages.k22_init_producer_id import InitProducerIdRequest
from dmq.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from dmq.wire.messages.k26_end_txn import EndTxnRequest
from dmq.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from dmq.wire.messages.k66_list_transactions import ListTransactionsRequest

PRODUCE_HIGHEST = 11
"""From 12 on a Produce joins the transaction by itself: the second version of the protocol."""
_INIT_HIGHEST = 4
_ADD_HIGHEST = 3
_END_HIGHEST = 4
_ABORT_HIGHEST = 5

IN_FLIGHT_MAX = 5
_BUSY_PAUSE_S = 0.004
"""The end before this one is being written to its partitions; that takes a few milliseconds."""

_GONE = frozenset({
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.INVALID_TXN_STATE,
})  # fmt: skip
"""What a coordinator says when the transaction is no longer the caller's to end."""


class LostTransactionError(KafkaError):
    """A transaction was ended by somebody else: its time ran out, or a newer owner fenced it."""


class Transaction(NamedTuple):
    """What it takes to end a transaction."""

    id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True)
class Standing:
    """A transaction as its coordinator sees it."""

    transaction: Transaction
    state: str
    started_ms: int
    timeout_ms: int

    @property
    def is_open(self) -> bool:
        """Has it begun, and is nobody ending it?"""
        return self.state == "Ongoing"

    @property
    def is_settled(self) -> bool:
        """Are all its ends written, so that readers see them?"""
        return self.state not in ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class Transactions:
    """The coordinators of a cluster, asked one thing after the other."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def begin(self, id_: str, timeout_ms: int) -> Transaction:
        """Take the id: whoever had it before is fenced, and what they had open is aborted."""
        request = InitProducerIdRequest(transactional_id=id_, transaction_timeout_ms=timeout_ms)

        def attempt() -> Transaction:
            _check_tells(self._cluster.coordinator_connection(id_, TRANSACTION))
            response = self._ask_patiently(id_, INIT_PRODUCER_ID, request, _INIT_HIGHEST)
            if response.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise SparkSourceError(
                    f"the brokers allow no transaction of {timeout_ms} ms: set"
                    " kafka.transaction.timeout.ms below their transaction.max.timeout.ms (15 minutes"
                    " unless changed), or raise that"
                )
            if response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise SparkSourceError(
                    f"the brokers allow no transactions named {id_!r}: allow Write and Describe on"
                    " transactional ids with that beginning, or choose another transactionalIdPrefix"
                )
            _check(response.error_code, id_)
            return Transaction(id_, response.producer_id, response.producer_epoch)

        return self._cluster.retry(f"begin transaction {id_}", attempt)

    def add(self, transaction: Transaction, targets: Iterable[Target]) -> None:
        """Add partitions to it, before anything is written to them."""
        topics: dict[str, list[int]] = {}
        for target in targets:
            topics.setdefault(target.topic, []).append(target.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transaction.id,
            v3_and_below_producer_id=transaction.producer_id,
            v3_and_below_producer_epoch=transaction.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(n, p) for n, p in topics.items()],
        )

        def attempt() -> None:
            response = self._ask_patiently(
                transaction.id, ADD_PARTITIONS_TO_TXN, request, _ADD_HIGHEST
            )
            for code in _added_codes(response):
                # A code other than "this one was not tried, because of that one".
                if code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                    _check(code, transaction.id)

        self._cluster.retry(f"add partitions to transaction {transaction.id}", attempt)

    def abort(self, transaction: Transaction) -> None:
        """End it for good; nothing happens if it is over, or if the id has begun another since.

        Where brokers speak the protocol's second version, the end moves the epoch on (KIP-890), so a
        task that nobody waits for any more can't go on either. InitProducerId would fence it, too, but
        hits the transaction that comes after this one as well.
        """
        try:
            self.end(transaction, commit=False, highest=_ABORT_HIGHEST)
        except LostTransactionError:
            return

    def end(self, transaction: Transaction, *, commit: bool, highest: int = _END_HIGHEST) -> None:
        """Commit or abort it. Raises LostTransactionError if it was ended otherwise."""
        request = _end_request(transaction, commit)

        def attempt() -> None:
            response = self._ask_patiently(transaction.id, END_TXN, request, highest)
            _check(response.error_code, transaction.id)

        self._cluster.retry(f"end transaction {transaction.id}", attempt)

    def commit_all(self, transactions: list[Transaction]) -> list[Transaction]:
        """Commit all of them, several at once; those that are lost are returned."""
        lost = []
        for transaction in self._commit_in_flight(transactions):
            try:
                self.end(transaction, commit=True)
            except LostTransactionError:
                lost.append(transaction)
        return lost

    def _commit_in_flight(self, transactions: list[Transaction]) -> Iterator[Transaction]:
        """Send the ends without waiting for each; what was not answered well is yielded."""
        by_node: dict[int, list[Transaction]] = {}
        for transaction in transactions:
            try:
                node = self._cluster.coordinator(transaction.id, TRANSACTION)
                by_node.setdefault(node, []).append(transaction)
            except (OSError, KafkaError):
                yield transaction
        for node, ours in by_node.items():
            left = list(ours)
            try:
                for done in self._committed_at(self._cluster.connection(node), ours):
                    left.remove(done)
            except (OSError, KafkaError):
                pass  # The rest is tried one by one, with patience.
            yield from left

    @staticmethod
    def _committed_at(connection: Connection, ours: list[Transaction]) -> Iterator[Transaction]:
        sent = 0
        for index, transaction in enumerate(ours):
            while sent < min(len(ours), index + IN_FLIGHT_MAX):
                connection.send(END_TXN, _end_request(ours[sent], True), highest=_END_HIGHEST)
                sent += 1
            if not connection.receive().error_code:
                yield transaction

    # --- looking

    def standing(self, ids: Iterable[str]) -> dict[str, Standing]:
        """What the coordinators know of these ids; those unknown to them are left out."""
        wanted = list(ids)

        def attempt() -> dict[str, Standing]:
            by_node: dict[int, list[str]] = {}
            for id_ in wanted:
                by_node.setdefault(self._cluster.coordinator(id_, TRANSACTION), []).append(id_)
            found: dict[str, Standing] = {}
            for node, ours in by_node.items():
                request = DescribeTransactionsRequest(ours)
                response = self._cluster.connection(node).ask(DESCRIBE_TRANSACTIONS, request)
                for state in response.transaction_states:
                    if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                        check(state.error_code, f"look at transaction {state.transactional_id}")
                        found[state.transactional_id] = _standing(state)
            return found

        return self._cluster.retry("look at transactions", attempt)

    def open_ids(self, prefix: str) -> list[str]:
        """Ids with that beginning that have a transaction open, as far as the brokers answer."""
        found: set[str] = set()
        for broker in self._cluster.refresh().brokers:
            request = ListTransactionsRequest(["Ongoing"], [])
            try:
                response = self._cluster.connection(broker.node_id).ask(LIST_TRANSACTIONS, request)
            except (OSError, KafkaError):
                continue  # Its ids move to another coordinator, and are found there the next time.
            found |= {
                each.transactional_id
                for each in response.transaction_states
                if each.transactional_id.startswith(prefix)
            }
        return sorted(found)

    # --- asking

    def _ask(self, id_: str, key: int, request: Any, highest: int | None = None) -> Any:
        connection = self._cluster.coordinator_connection(id_, TRANSACTION)
        return connection.ask(key, request, highest=highest)

    def _ask_patiently(self, id_: str, key: int, request: Any, highest: int) -> Any:
        """Again while the last end of the same id is still being written."""
        deadline = time.monotonic() + self._cluster.settings.patience_s
        while True:
            response = self._ask(id_, key, request, highest)
            codes = (
                [response.error_code] if key != ADD_PARTITIONS_TO_TXN else _added_codes(response)
            )
            if ErrorCode.CONCURRENT_TRANSACTIONS not in codes or time.monotonic() > deadline:
                return response
            time.sleep(_BUSY_PAUSE_S)


def _check_tells(connection: Connection) -> None:
    """What is begun on a broker that does not tell what is open could never be decided on."""
    if not (connection.speaks(DESCRIBE_TRANSACTIONS) and connection.speaks(LIST_TRANSACTIONS)):
        raise SparkSourceError(
            f"the broker at {connection.address} does not tell which transactions are open, as Kafka"
            " does from 3.0 on, and exactly-once can't do without: use newer brokers, or write with"
            ' option("delivery", "at-least-once")'
        )


def _end_request(transaction: Transaction, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transaction.id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        committed=commit,
    )


def _standing(state: Any) -> Standing:
    transaction = Transaction(state.transactional_id, state.producer_id, state.producer_epoch)
    return Standing(
        transaction,
        state.transaction_state,
        state.transaction_start_time_ms,
        state.transaction_timeout_ms,
    )


def _added_codes(response: Any) -> list[int]:
    return [
        result.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    ]


def _check(code: int, id_: str) -> None:
    if code in _GONE:
        raise LostTransactionError(
            ErrorCode(code), f"transaction {id_} was ended by others ({ErrorCode(code).name})"
        )
    check(code, f"transaction {id_}")
