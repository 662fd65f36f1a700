"""The end of a transaction, written to a partition that this broker leads.

A marker is a control batch in the producer's name (Kafka's format). It is judged by what the partition
knows of the producer, takes back every leave to write that is still out, and counts when it is
committed.
"""

import struct

from dmq.broker.answer import Answer
from dmq.broker.partition import Partition
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.producers.entries import Marker
from dmq.machines.transactions.commands import TxnMarker
from dmq.records import CONTROL, TRANSACTIONAL, Record, build_batch, read_header

_KEY = struct.Struct(">hh")  # version, type: 0 abort, 1 commit
_VALUE = struct.Struct(">hi")  # version, coordinator epoch


def write_marker(partition: Partition, marker: TxnMarker, now: int, wall: int) -> Answer[None]:
    """Append it; done when it is committed. Raises KafkaError or StorageError."""
    partition.check_leads()
    book = partition.book
    assert book is not None
    book.state.check_marker(
        marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.version
    )
    offset = partition.log_end_offset
    record = Record(
        offset, wall, _KEY.pack(0, int(marker.is_commit)), _VALUE.pack(0, marker.coordinator_epoch)
    )
    batch = build_batch(
        [record],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )
    answer: Answer[None] = Answer()

    def settled(code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            answer.resolve(None)
        else:
            answer.fail(KafkaError(code))

    position = partition.replica.propose(batch, now, settled)
    header = read_header(batch)._replace(base_offset=offset)
    book.appended(header, position, Marker(marker.is_commit, marker.coordinator_epoch))
    book.guards.revoke(marker.producer_id)
    return answer
