"""The verbs of transactions: what doors call, and what the broker behind them must be able to do.

`Transactions` is implemented by whoever knows which partitions of `__transaction_state` this broker
leads, with one `TransactionCoordinator` (transaction_coordinator.py) for each. Commands and answers
are the machine's; here they only find their way. Nothing is decided here.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from dmq.broker.answer import Answer
from dmq.broker.coordinators import CoordinatingService
from dmq.errors import ErrorCode
from dmq.machines.groups.patterns import Pattern
from dmq.machines.machine import Command
from dmq.machines.transactions import commands as commands
from dmq.machines.transactions.commands import ListTransactions, TransactionView, TxnMarker
from dmq.machines.transactions.looking import unknown_states as unknown_states
from dmq.types import TopicPartition

R = TypeVar("R")


def matcher(pattern: str | None) -> Callable[[str], bool] | None:
    """A test of transactional ids; None: all pass. Raises INVALID_REGULAR_EXPRESSION."""
    return Pattern(pattern).matches if pattern else None


CLIENT_ADDS = 1
"""Transactions whose client adds the partitions."""
LEADER_ADDS = 2
"""Transactions whose partitions' leaders do, and where each has its own epoch (KIP-890)."""


def code_at_partition(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """What a writer is told when the coordinator refused its transaction: where records and offsets
    are written, clients expect other words for it than from the coordinator itself.

    `knows_abortable`: Produce from version 11 on, TxnOffsetCommit from 4 on.
    """
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


_COORDINATOR_IS_AWAY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
)


def code_at_log(code: ErrorCode, *, knows_abortable: bool, version: int) -> ErrorCode:
    """The same for records: their writers know nothing of coordinators, and would give up where they
    only have to send again. NOT_ENOUGH_REPLICAS makes all of them do that, as Kafka found."""
    is_unfinished = code is ErrorCode.CONCURRENT_TRANSACTIONS and version < LEADER_ADDS
    if is_unfinished or code in _COORDINATOR_IS_AWAY:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code_at_partition(code, knows_abortable=knows_abortable)


def code_at_offsets(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """The same for offsets, whose writers know coordinators but no networks between them."""
    if code is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code_at_partition(code, knows_abortable=knows_abortable)


class ProducerView(NamedTuple):
    """A producer of a partition as people see it."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    txn_start_offset: int


class Transactions(Protocol):
    """Transactions of the whole cluster, as one broker can serve them."""

    def submit(self, transactional_id: str, command: Command[R]) -> Answer[R]:
        """Give the coordinator of a transactional id a command.

        Fails with NOT_COORDINATOR if that is another broker, COORDINATOR_LOAD_IN_PROGRESS or
        COORDINATOR_NOT_AVAILABLE if it can't answer yet, and as the command says.
        """
        ...

    def list_transactions(self, command: ListTransactions) -> Answer[list[TransactionView]]:
        """Those of all coordinators on this broker. Fails if one of them is still loading."""
        ...

    def enter(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        version: int,
    ) -> Answer[None]:
        """Leave to write into a transaction at a partition that this broker leads.

        At once if the log has the transaction open; else the coordinator is asked to vouch for it
        (CLIENT_ADDS) or to add it (LEADER_ADDS), and the partition's guard keeps its word until the
        append. Fails as AddPartitions and VerifyPartitions do.
        """
        ...

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """Where a group's offsets are kept. Raises KafkaError if there is no such topic yet."""
        ...

    def write_marker(self, marker: TxnMarker) -> Answer[None]:
        """End a transaction at a partition that this broker leads; done when it is committed.

        Fails with NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        ...

    def producers(self, partition: TopicPartition) -> Answer[list[ProducerView]]:
        """Who wrote of late to a partition that this broker leads."""
        ...


class TransactingService(CoordinatingService, Protocol):
    """What handlers of transaction APIs need of the broker."""

    @property
    def transactions(self) -> Transactions: ...

    def next_producer_id(self) -> Answer[int]: ...
