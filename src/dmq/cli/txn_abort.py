"""The two ways to end a transaction from outside: through its coordinator, and past it.

Owns the requests of `dmq txn abort` (InitProducerId, WriteTxnMarkers) and the check that a marker is
written only for a transaction which no coordinator would end. Never prints, never asks a person.
"""

import time
from dataclasses import dataclass
from typing import Any

from dmq.cli.cluster_wire import error_name
from dmq.cli.exits import CommandError, not_found
from dmq.cli.group_wire import (
    INIT_PRODUCER_ID,
    PATIENCE_S,
    PAUSE_S,
    TRANSACTION,
    WRITE_TXN_MARKERS,
    CoordinatorWire,
    Node,
)
from dmq.cli.txn_facts import OPEN, Producing, Transaction, Where, list_transactions, producers
from dmq.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Hanging:
    """A transaction that is open in a partition, as the partition's leader sees it."""

    topic: str
    partition: int
    leader: Node
    producer: Producing

    def as_json(self) -> dict[str, Any]:
        """The stable schema of `dmq txn abort --partition … --json`."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.producer_epoch,
            "start_offset": self.producer.start_offset,
            "aborted": True,
        }


def fence(wire: CoordinatorWire, transaction: Transaction) -> None:
    """Take the id's next epoch, which aborts what is open; returns once the abort is complete."""
    from dmq.wire.messages.k22_init_producer_id import InitProducerIdRequest

    name = transaction.transactional_id
    # The id keeps the timeout that its own producer asked for.
    request = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=transaction.timeout_ms or 60_000
    )
    deadline = time.monotonic() + PATIENCE_S
    while True:
        _, response = wire.ask_coordinator(
            TRANSACTION, name, INIT_PRODUCER_ID, request, lambda answer: int(answer.error_code)
        )
        if not response.error_code:
            return
        if response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            raise CommandError(f"Aborting {name!r} failed: {error_name(response.error_code)}")
        if time.monotonic() > deadline:
            raise CommandError(
                f"The abort of {name!r} has begun, but is not complete after {PATIENCE_S:.0f} s",
                hint="A partition may have no leader: see `dmq txn describe`, `dmq cluster status`.",
            )
        time.sleep(PAUSE_S)


def hanging(
    wire: CoordinatorWire,
    where: Where,
    start_offset: int | None,
    producer_id: int | None,
    *,
    force: bool,
) -> Hanging:
    """The open transaction that is meant. Raises CommandError if there is none such."""
    leader, known = producers(wire, *where)
    opened = [each for each in known if each.start_offset is not None]
    place = f"{where[0]}:{where[1]}"
    for each in opened:
        if start_offset in (None, each.start_offset) and producer_id in (None, each.producer_id):
            if not force:
                _refuse_if_known(wire, where, each)
            return Hanging(*where, leader, each)
    some = ", ".join(f"offset {e.start_offset} (producer {e.producer_id})" for e in opened[:5])
    raise not_found(
        f"No transaction of {place} began there",
        f"Open there: {some}." if opened else f"None is open in {place}.",
    )


def _refuse_if_known(wire: CoordinatorWire, where: Where, producer: Producing) -> None:
    """A transaction that its coordinator knows is ended by it, in all partitions alike."""
    found, problems = list_transactions(wire, producer_ids=[producer.producer_id])
    for each in found:
        if each.state in OPEN and where in each.partitions:
            raise CommandError(
                f"This transaction does not hang: {each.transactional_id!r} has it open"
                f" ({each.state})",
                hint=f"Abort it with `dmq txn abort {each.transactional_id}`;"
                " --force writes the marker into this one partition all the same.",
            )
    if problems:
        raise CommandError(
            f"Whether a coordinator still knows this transaction can't be told: {problems[0]}",
            hint="Wait for that broker, or add --force.",
        )


def write_abort(wire: CoordinatorWire, found: Hanging) -> None:
    """Write the abort marker at the partition's leader."""
    from dmq.wire.messages.k27_write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    producer = found.producer
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(found.topic, [found.partition])],
        # A producer whose markers this partition never saw has none: the first epoch will do.
        coordinator_epoch=max(0, producer.coordinator_epoch),
    )
    response = wire.ask_node(found.leader, WRITE_TXN_MARKERS, WriteTxnMarkersRequest([marker]))
    code = response.markers[0].topics[0].partitions[0].error_code
    if code:
        hint = ""
        if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED):
            hint = "The producer or its coordinator was quicker: look again with `dmq txn list`."
        raise CommandError(
            f"Writing the marker into {found.topic}:{found.partition} failed: {error_name(code)}",
            hint=hint,
        )
