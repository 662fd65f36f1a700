"""How transactions end: by their producer, by time, by another producer; and what is left to do.

    version 1   the epoch stays; asked again with the same epoch, the answer is the same
    version 2   the epoch goes up with every end (KIP-890). So a late EndTxn can't meet the next
                transaction, late records and markers can't either, and "again" is told from "next"

         asked with        the epoch before       the present epoch
                           abort      commit      abort      commit
         Empty             fenced     fenced      new epoch  INVALID_TXN_STATE
         Ongoing           fenced     fenced      decided    decided
         …Abort            same       INVALID_…   new epoch  INVALID_TXN_STATE
         …Commit           INVALID_…  same        new epoch  INVALID_TXN_STATE
         Prepare…          (as above)             CONCURRENT_TRANSACTIONS

`Prepare…` answers as `Complete…` does: the decision is durable, markers follow whatever comes. Kafka
makes the client ask until they are written. A transaction without partitions has no markers and
is complete at once. Functions look and give the transaction as it is to be; nothing changes here.
"""

import dataclasses

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.transactions.commands import (
    Ended,
    Ending,
    EndTransaction,
    NeedsProducerIdError,
    TxnMarker,
)
from dmq.machines.transactions.facts import (
    EPOCH_MAX,
    EPOCH_PER_TXN,
    NO_PRODUCER_ID,
    PREPARED,
    Transaction,
    TxnState,
)


def end_transaction(
    transaction: Transaction | None, command: EndTransaction, now: int
) -> Transaction | None:
    """The transaction, decided; None: it was before, as asked. Raises KafkaError."""
    if transaction is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "nobody has this transactional id")
    asked_by = command.producer_id, command.producer_epoch
    is_again = command.version >= EPOCH_PER_TXN and transaction.state is not TxnState.EMPTY
    if is_again and transaction.was_known_as(*asked_by):
        _check_same_result(transaction, command)
        return None
    if command.producer_id not in (transaction.producer_id, transaction.known_as[0]):
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"producer {command.producer_id} does not have this transactional id",
        )
    if asked_by != transaction.known_as:
        raise KafkaError(
            ErrorCode.PRODUCER_FENCED,
            f"the transactional id is at epoch {transaction.producer_epoch}, "
            f"not {command.producer_epoch}",
        )
    if command.version >= EPOCH_PER_TXN:
        return _end_with_new_epoch(transaction, command, now)
    if transaction.state is not TxnState.ONGOING:
        _check_same_result(transaction, command)
        return None
    return _decided(transaction, command.is_commit, now, 1)


def _end_with_new_epoch(transaction: Transaction, command: EndTransaction, now: int) -> Transaction:
    if transaction.state in PREPARED:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is not finished yet"
        )
    if transaction.state is not TxnState.ONGOING and command.is_commit:
        raise _invalid_state(transaction, command)
    if transaction.is_exhausted and command.spare_producer_id == NO_PRODUCER_ID:
        raise NeedsProducerIdError
    bumped = dataclasses.replace(
        transaction,
        producer_epoch=transaction.producer_epoch + 1,
        previous_producer_id=transaction.producer_id,
        next_producer_id=command.spare_producer_id if transaction.is_exhausted else -1,
    )
    return _decided(bumped, command.is_commit, now, command.version)


def fence(transaction: Transaction, now: int, *, may_ask_again: bool) -> Transaction:
    """Abort what is open and take the epoch away from who opened it. `may_ask_again`: the same
    producer may learn its next epoch (it asked for the end, or merely took too long); not the
    largest one, though."""
    assert transaction.state is TxnState.ONGOING
    assert transaction.producer_epoch < EPOCH_MAX, "producers never get the largest epoch"
    bumped = dataclasses.replace(
        transaction,
        producer_epoch=transaction.producer_epoch + 1,
        previous_producer_id=(
            transaction.producer_id
            if may_ask_again and not transaction.is_exhausted
            else NO_PRODUCER_ID
        ),
    )
    return _decided(bumped, False, now, transaction.client_version)


def _decided(transaction: Transaction, is_commit: bool, now: int, version: int) -> Transaction:
    state = TxnState.PREPARE_COMMIT if is_commit else TxnState.PREPARE_ABORT
    decided = dataclasses.replace(
        transaction,
        state=state,
        last_update_ms=now,
        start_ms=transaction.start_ms if transaction.partitions else now,
        client_version=version,
    )
    return decided if decided.partitions else complete(decided, now)


def complete(transaction: Transaction, now: int) -> Transaction:
    """All markers are written."""
    is_commit = transaction.state is TxnState.PREPARE_COMMIT
    producer_id, epoch = transaction.known_as
    return dataclasses.replace(
        transaction,
        producer_id=producer_id,
        producer_epoch=epoch,
        state=TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT,
        partitions=frozenset(),
        last_update_ms=now,
        next_producer_id=NO_PRODUCER_ID,
    )


def ended(transaction: Transaction, ending: Ending | None) -> Ended:
    return Ended(*transaction.known_as, ending)


def ending_of(
    transactional_id: str, transaction: Transaction, coordinator_epoch: int
) -> Ending | None:
    """What has to be written to finish it; None if it is finished."""
    if transaction.state not in PREPARED:
        return None
    markers = tuple(
        TxnMarker(
            topic,
            partition,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.is_commit,
            coordinator_epoch,
            transaction.client_version,
        )
        for topic, partition in sorted(transaction.partitions)
    )
    return Ending(transactional_id, transaction.producer_id, transaction.producer_epoch, markers)


def _check_same_result(transaction: Transaction, command: EndTransaction) -> None:
    is_commit = transaction.is_commit
    is_abort = transaction.state in (TxnState.PREPARE_ABORT, TxnState.COMPLETE_ABORT)
    if not (is_commit if command.is_commit else is_abort):
        raise _invalid_state(transaction, command)


def _invalid_state(transaction: Transaction, command: EndTransaction) -> KafkaError:
    wish = "commit" if command.is_commit else "abort"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE, f"can't {wish}: the state is {transaction.state.label}"
    )
