"""What a leader refuses, given what it knows of the producer; codes as Kafka 4.3 gives them.

    INVALID_PRODUCER_EPOCH          another producer took the place of this one
    OUT_OF_ORDER_SEQUENCE_NUMBER    a batch is missing before this one, or it is a duplicate of one
                                    that is too old to be remembered
    INVALID_TXN_STATE               records in or outside of a transaction, and it is the other way
    TRANSACTION_COORDINATOR_FENCED  a coordinator that was replaced still writes markers

Each raises KafkaError, and then nothing was appended (definite). UNKNOWN_PRODUCER_ID is not used any
more: who is not known may begin with any sequence. Called by state.py.
"""

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.producers.entries import NO_SEQUENCE, Entry, sequence_after
from dmq.machines.producers.fences import Fences
from dmq.records import BatchHeader

NOT_VERIFIED = 0
"""Nobody asked the coordinator about this transaction. Else: the version of the transaction."""
EPOCH_PER_TXN = 2
"""From this version on every transaction has an epoch of its own (KIP-890)."""


class SequenceError(KafkaError):
    """A batch is missing before this one."""

    def __init__(self, header: BatchHeader, missing: int) -> None:
        super().__init__(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence}, "
            f"{missing} is the next",
        )
        self.missing = missing


def check_epoch(header: BatchHeader, entry: Entry | None) -> None:
    if entry is not None and header.producer_epoch < entry.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} of epoch {header.producer_epoch} "
            f"was replaced by one of epoch {entry.epoch}",
        )


def check_transaction(header: BatchHeader, entry: Entry | None, verified: int) -> None:
    """A transaction's first batch needs the coordinator's word; the log vouches for the others."""
    is_open = entry is not None and entry.txn_start >= 0
    if not header.is_transactional:
        if is_open:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open here",
            )
        return
    is_same = is_open and entry is not None and entry.epoch == header.producer_epoch
    if not is_same and verified == NOT_VERIFIED:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"the transaction of producer {header.producer_id} is not known here",
        )


def check_sequence(header: BatchHeader, entry: Entry | None, verified: int, fences: Fences) -> None:
    sequence = header.base_sequence
    if entry is None:
        expected = _expected_first(header, verified, fences)
    elif entry.epoch != header.producer_epoch:
        expected = 0
    else:
        expected = sequence_after(entry.last_sequence, 1)
    if expected not in (sequence, NO_SEQUENCE):
        raise SequenceError(header, expected)


def _expected_first(header: BatchHeader, verified: int, fences: Fences) -> int:
    """Of a producer that is not known: any (-1), for it may have been forgotten. Not so if an
    earlier batch was seen to fail, nor at the start of a transaction that has its own epoch."""
    if header.is_transactional and verified >= EPOCH_PER_TXN:
        return 0
    return fences.expected(header.producer_id, header.producer_epoch, header.base_sequence)


def check_marker(
    entry: Entry, producer_id: int, epoch: int, coordinator_epoch: int, version: int
) -> None:
    """With an epoch per transaction a marker's is above that of its records. One that is equal,
    while nothing is open, is the same marker again: it may be written twice. An older one is late,
    and might end a transaction that it does not belong to."""
    is_late = epoch < entry.epoch
    if version >= EPOCH_PER_TXN and epoch == entry.epoch:
        is_late = entry.txn_start >= 0
    if is_late:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"marker of epoch {epoch} for producer {producer_id}, which is at {entry.epoch}",
        )
    if coordinator_epoch < entry.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"marker of coordinator epoch {coordinator_epoch}, "
            f"there was one of {entry.coordinator_epoch}",
        )
