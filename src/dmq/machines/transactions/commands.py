"""What a transaction coordinator can be asked, and its answers.

Refusals are raised as KafkaError. An answer that has `markers` sets them going: the caller writes
each to its partition's leader, as often as it takes, and then says `MarkersWritten`.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.machine import Command
from dmq.types import TopicPartition

NO_PRODUCER_ID = -1


class NeedsProducerIdError(KafkaError):
    """Ask again with a producer id that nobody had: `spare_producer_id`."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "a new producer id is needed")


class TxnMarker(NamedTuple):
    """The end of a transaction, for one of its partitions."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    version: int
    """Of the transaction: from 2 on the epoch is above that of its records."""


class Ending(NamedTuple):
    """A transaction that is decided, and the markers that its partitions lack."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    markers: tuple[TxnMarker, ...]


class Initialised(NamedTuple):
    """An id and epoch; or CONCURRENT_TRANSACTIONS, with the end of the transaction in the way."""

    code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    ending: Ending | None = None


class Ended(NamedTuple):
    """It is decided; the id and epoch of the producer's next transaction."""

    producer_id: int
    producer_epoch: int
    ending: Ending | None = None


class TransactionView(NamedTuple):
    """A transactional id as people see it."""

    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class InitProducerId(Command[Initialised]):
    """Make the sender the one producer with this transactional id.

    `producer_id` and `producer_epoch`: what it had, if it goes on after an error (KIP-360).
    """

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    spare_producer_id: int = NO_PRODUCER_ID
    """One that nobody had, if we were told that it is needed."""


@dataclasses.dataclass(frozen=True, slots=True)
class AddPartitions(Command[None]):
    """Records will be written to these partitions in the producer's transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    version: int = 1
    """Of the transaction: 2 if a partition's leader asks for its client."""


@dataclasses.dataclass(frozen=True, slots=True)
class VerifyPartitions(Command[dict[TopicPartition, ErrorCode]]):
    """Are these in the producer's transaction? Changes nothing."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


@dataclasses.dataclass(frozen=True, slots=True)
class EndTransaction(Command[Ended]):
    """Commit, or abort. Asked again, it gives the same answer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    version: int = 1
    spare_producer_id: int = NO_PRODUCER_ID


@dataclasses.dataclass(frozen=True, slots=True)
class MarkersWritten(Command[bool]):
    """Every partition has its marker, and has committed it. False: that was known, or is stale."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class ResumeEndings(Command[list[Ending]]):
    """What is decided and not finished: a new coordinator's first question to itself."""


@dataclasses.dataclass(frozen=True, slots=True)
class AbortTimedOut(Command[list[Ending]]):
    """Abort transactions that are open for too long."""

    leading_since_ms: int
    """No transaction times out earlier than its timeout after this: a new coordinator's clock and
    the pause before it are not the producers' fault."""


@dataclasses.dataclass(frozen=True, slots=True)
class ForgetIdle(Command[int]):
    """Forget transactional ids that nobody used for long, some at a time; how many."""


@dataclasses.dataclass(frozen=True, slots=True)
class DescribeTransaction(Command[TransactionView]):
    """Where one id stands."""

    transactional_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class ListTransactions(Command[list[TransactionView]]):
    """Ids that pass all filters; an empty filter passes everybody."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1
    matches: Callable[[str], bool] | None = None
