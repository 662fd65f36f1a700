"""InitProducerId with a transactional id: one producer at a time has the name.

    who asks                                nothing open              a transaction open
    a newcomer                              next epoch                abort it, then ask again
    who has the present id and epoch        next epoch                abort it, then ask again
    who had the one before, and lost our    the same answer again     -
    answer
    anybody else                            PRODUCER_FENCED           PRODUCER_FENCED

While the last transaction is decided and not finished: CONCURRENT_TRANSACTIONS. An id without a
further epoch is left for a new one. Kafka does not look at the epoch of who asks while a transaction
is open, so that a late request could abort it; here it must be the present one.
"""

import dataclasses

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.transactions.commands import InitProducerId, NeedsProducerIdError
from dmq.machines.transactions.ending import fence
from dmq.machines.transactions.facts import (
    EPOCH_LAST,
    NO_PRODUCER_ID,
    PREPARED,
    Transaction,
    TxnState,
)


def check_timeout(timeout_ms: int, timeout_max_ms: int) -> None:
    """Raises KafkaError."""
    if not 0 < timeout_ms <= timeout_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"a transaction may take from 1 to {timeout_max_ms} ms, not {timeout_ms}",
        )


def initialise(transaction: Transaction | None, command: InitProducerId, now: int) -> Transaction:
    """The producer as it is to be; with a decision to abort, if something was open.

    Raises KafkaError.
    """
    if transaction is None:
        return _first(command, now)
    is_newcomer = command.producer_id == NO_PRODUCER_ID
    asked_by = command.producer_id, command.producer_epoch
    is_again = not is_newcomer and transaction.was_known_as(*asked_by)
    if not is_newcomer and not is_again and asked_by != transaction.known_as:
        raise KafkaError(
            ErrorCode.PRODUCER_FENCED,
            f"producer {command.producer_id} of epoch {command.producer_epoch} was replaced by "
            f"{transaction.producer_id} of epoch {transaction.producer_epoch}",
        )
    if transaction.state in PREPARED:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is not finished yet"
        )
    if transaction.state is TxnState.ONGOING:
        return fence(transaction, now, may_ask_again=not is_newcomer)
    if is_again:
        return _at_rest(transaction, command, now)
    return _next(transaction, command, now, is_newcomer=is_newcomer)


def _first(command: InitProducerId, now: int) -> Transaction:
    if command.spare_producer_id == NO_PRODUCER_ID:
        raise NeedsProducerIdError
    return Transaction(command.spare_producer_id, 0, command.timeout_ms, last_update_ms=now)


def _next(
    transaction: Transaction, command: InitProducerId, now: int, *, is_newcomer: bool
) -> Transaction:
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch + 1
    if transaction.is_exhausted:
        if command.spare_producer_id == NO_PRODUCER_ID:
            raise NeedsProducerIdError
        producer_id, epoch = command.spare_producer_id, 0
    given = dataclasses.replace(
        transaction,
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=NO_PRODUCER_ID if is_newcomer else transaction.producer_id,
    )
    return _at_rest(given, command, now)


def _at_rest(transaction: Transaction, command: InitProducerId, now: int) -> Transaction:
    assert transaction.producer_epoch <= EPOCH_LAST, "producers never get the largest epoch"
    return dataclasses.replace(
        transaction,
        state=TxnState.EMPTY,
        partitions=frozenset(),
        timeout_ms=command.timeout_ms,
        start_ms=-1,
        last_update_ms=now,
    )
