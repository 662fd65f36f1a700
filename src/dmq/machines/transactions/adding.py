"""Partitions of a transaction: AddPartitionsToTxn, AddOffsetsToTxn, and the question of a leader.

The first partition begins the transaction. Version 1: the client adds before it writes, and the
partition's leader only asks whether it did. Version 2: the leader adds for the client. Changes
nothing; gives the transaction as it is to be, or None if it is so already.
"""

import dataclasses

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.transactions.commands import AddPartitions, VerifyPartitions
from dmq.machines.transactions.facts import NO_PRODUCER_ID, PREPARED, Transaction, TxnState
from dmq.types import TopicPartition


def add_partitions(
    transaction: Transaction | None, command: AddPartitions, now: int
) -> Transaction | None:
    """Raises KafkaError."""
    transaction = _check(transaction, command.producer_id, command.producer_epoch)
    is_ongoing = transaction.state is TxnState.ONGOING
    if not command.partitions or (is_ongoing and command.partitions <= transaction.partitions):
        return None
    return dataclasses.replace(
        transaction,
        state=TxnState.ONGOING,
        partitions=transaction.partitions | command.partitions,
        start_ms=transaction.start_ms if is_ongoing else now,
        last_update_ms=now,
        previous_producer_id=NO_PRODUCER_ID,  # It went on, so it has our last answer.
        client_version=command.version,
    )


def verify_partitions(
    transaction: Transaction | None, command: VerifyPartitions
) -> dict[TopicPartition, ErrorCode]:
    """Raises KafkaError."""
    transaction = _check(transaction, command.producer_id, command.producer_epoch)
    return {
        partition: (
            ErrorCode.NONE
            if partition in transaction.partitions
            else ErrorCode.TRANSACTION_ABORTABLE
        )
        for partition in sorted(command.partitions)
    }


def _check(transaction: Transaction | None, producer_id: int, epoch: int) -> Transaction:
    if transaction is None or producer_id not in (
        transaction.producer_id,
        transaction.known_as[0],
    ):
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"producer {producer_id} does not have this transactional id",
        )
    if (producer_id, epoch) != transaction.known_as:
        raise KafkaError(
            ErrorCode.PRODUCER_FENCED,
            f"the transactional id is at epoch {transaction.producer_epoch}, not {epoch}",
        )
    if transaction.state in PREPARED:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is not finished yet"
        )
    return transaction
