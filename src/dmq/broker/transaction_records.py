"""Transactions as the records of `__transaction_state`, byte for byte Kafka's.

Translates between the machine's facts and `wire`'s tables; decides nothing. Values are written in
version 1 (flexible, KIP-890) and read in both. Given to `TransactionMachine` by its host.
"""

from itertools import groupby
from operator import itemgetter

from dmq.errors import ProtocolError
from dmq.machines.machine import Record
from dmq.machines.transactions.facts import Transaction, TransactionFact, TxnState
from dmq.types import TopicPartition
from dmq.wire.messages.stored_transaction import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from dmq.wire.stored import TRANSACTION_STATE

_STATES = {state.value: state for state in TxnState}


class TransactionRecords:
    """The machine's `Codec`."""

    def encode(self, fact: TransactionFact) -> Record:
        key = TRANSACTION_STATE.encode_key(TransactionLogKey(fact.transactional_id))
        transaction = fact.transaction
        if transaction is None:
            return Record(key, None)
        value = TransactionLogValue(
            producer_id=transaction.producer_id,
            previous_producer_id=transaction.previous_producer_id,
            next_producer_id=transaction.next_producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_status=transaction.state,
            transaction_partitions=_by_topic(transaction),
            transaction_last_update_timestamp_ms=transaction.last_update_ms,
            transaction_start_timestamp_ms=transaction.start_ms,
            client_transaction_version=transaction.client_version,
        )
        return Record(key, TRANSACTION_STATE.encode_value(value))

    def decode(self, record: Record) -> TransactionFact:
        """Raises ProtocolError for bytes that can't be read."""
        key, value = TRANSACTION_STATE.decode(record.key, record.value)
        if value is None:
            return TransactionFact(key.transactional_id, None)
        state = _STATES.get(value.transaction_status)
        if state is None:
            raise ProtocolError(f"a transaction in unknown state {value.transaction_status}")
        return TransactionFact(key.transactional_id, _transaction(value, state))


def _by_topic(transaction: Transaction) -> list[PartitionsSchema] | None:
    if transaction.state is TxnState.EMPTY:
        return None
    ordered = sorted(transaction.partitions)
    return [
        PartitionsSchema(topic, [partition for _, partition in group])
        for topic, group in groupby(ordered, key=itemgetter(0))
    ]


def _transaction(value: TransactionLogValue, state: TxnState) -> Transaction:
    return Transaction(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(each.topic, partition)
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
