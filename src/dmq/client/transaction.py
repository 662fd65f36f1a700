"""A transaction as a block: all of it or nothing.

    with producer.transaction() as transaction:
        producer.send("output", value=...)
        transaction.send_offsets(consumer)

    begin → commit          the block came to its end
          → abort           it raised: the error goes on, nothing of the block is visible
          → abort           the commit was refused: TransactionAbortedError, to be run again
          → not known       no answer in time: TimedOutError; the next transaction waits for the end
          → nothing         fenced: FencedError; the broker has ended the transaction already

Knows nothing of threads or loops; `AsyncProducer` has its own block on the same rules.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import TopicPartition as RawPartition

from dmq.client.consumer import Consumer
from dmq.client.errors import ClientError, TransactionAbortedError
from dmq.client.sending import Sending, log


class Transaction:
    """One transaction of a producer; use it once, in a `with`."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending

    def __enter__(self) -> Self:
        self._sending.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            commit(self._sending)
        else:
            give_up(self._sending, error)

    def send_offsets(
        self, consumer: Consumer, offsets: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        """Commit what the consumer has handed out (or these offsets) with the transaction."""
        send_offsets(self._sending, consumer, offsets)


def commit(sending: Sending) -> None:
    """Commit; when that is refused, abort. Raises TransactionAbortedError, FencedError."""
    try:
        sending.commit()
    except TransactionAbortedError:
        sending.abort()
        raise


def give_up(sending: Sending, error: BaseException) -> None:
    """Abort because of an error, which is the one that the caller should see."""
    if isinstance(error, ClientError) and error.fatal:
        return  # The broker has ended it already, and takes nothing more from this producer.
    try:
        sending.abort()
    except ClientError as second:
        error.add_note(f"The transaction could not be aborted either: {second}")
        log.warning("a transaction was left to its timeout: %s", second)


def send_offsets(
    sending: Sending, consumer: Consumer, offsets: Mapping[tuple[str, int], int] | None
) -> None:
    positions = consumer.handed() if offsets is None else offsets
    if positions:
        raw = [RawPartition(topic, number, offset) for (topic, number), offset in positions.items()]
        sending.send_offsets(raw, consumer.group_metadata())
