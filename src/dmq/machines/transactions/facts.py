"""What one record of `__transaction_state` says: a transactional id, and where it stands.

Keyed by the id; the last one counts, a tombstone forgets it. The bytes are Kafka's; a `Codec` makes
them, because `wire` lies beside the machines and not below them.

Who may ask again: a producer whose answer was lost comes with the id and epoch that it had before.
`previous_producer_id` says so: if it is our producer id, the one with the epoch before may still
learn the new one; if it is another, the one that used up all of that id's epochs may. It is -1
where nobody may, because another producer took the name over. So this outlives the coordinator;
Kafka keeps the last epoch in memory only.
"""

import dataclasses
import enum
from typing import NamedTuple, Protocol

from dmq.machines.machine import Record
from dmq.types import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1

EPOCH_MAX = 2**15 - 1
EPOCH_LAST = EPOCH_MAX - 1
"""The last epoch that a producer gets. The largest is kept, so that it can always be fenced."""

EPOCH_PER_TXN = 2
"""The transaction version from which on each transaction has its own epoch (KIP-890)."""


class TxnState(enum.IntEnum):
    """Where a transaction is; numbers and names as Kafka stores and shows them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
    """Never stored: Kafka's name for an abort that takes a producer's place away."""

    @property
    def label(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED = frozenset((TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT))
AT_REST = frozenset((TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT))
BY_LABEL = {state.label: state for state in TxnState}


@dataclasses.dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id's producer and its transaction."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TxnState = TxnState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    last_update_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """Set while the last transaction of an id without further epochs ends: who comes after it."""
    client_version: int = 0
    """The transaction version that its client speaks."""

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_LAST

    @property
    def is_commit(self) -> bool:
        return self.state in (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)

    @property
    def known_as(self) -> tuple[int, int]:
        """The producer id and epoch that its client uses from now on."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def was_known_as(self, producer_id: int, epoch: int) -> bool:
        """Whether this is the same producer, asking again since our answer was lost."""
        if producer_id != self.previous_producer_id or producer_id == NO_PRODUCER_ID:
            return False
        if producer_id == self.producer_id:
            return epoch == self.producer_epoch - 1
        return epoch >= EPOCH_LAST and self.producer_epoch == 0


class TransactionFact(NamedTuple):
    """One record; None: the id is forgotten."""

    transactional_id: str
    transaction: Transaction | None


class Codec(Protocol):
    """Facts as records and back."""

    def encode(self, fact: TransactionFact) -> Record: ...

    def decode(self, record: Record) -> TransactionFact:
        """Raises DmqError for bytes that can't be read."""
        ...
