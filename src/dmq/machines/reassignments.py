"""Moving partitions to other brokers: what is allowed, and the records that say so.

A record says where a partition shall be; its leader then moves the voters there one by one (raft
decides when that is safe) and tells `ReassignmentDone`. Until then `previous` is where it returns to if
the move is called off, and `removing` are the brokers that may still have a replica besides. Changing
the target once more keeps both: a broker that was wanted for a while is removed like any other. Reads
the cluster's state, changes nothing; codes are Kafka's. Called by `cluster.py`.
"""

import dataclasses
from collections import Counter
from uuid import UUID

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.commands import (
    AlterReassignments,
    Done,
    Reassigned,
    Reassignment,
    ReassignmentDone,
    RecoverPartition,
)
from dmq.machines.machine import Outcome, Record
from dmq.machines.records import Order, PartitionRecord, encode
from dmq.machines.state import ClusterState, PartitionState
from dmq.machines.topics import check_replicas


def alter_reassignments(
    state: ClusterState, command: AlterReassignments
) -> Outcome[list[Reassigned]]:
    """Every partition by itself; one that fails leaves the others alone."""
    asked = Counter((change.topic, change.partition) for change in command.changes)
    results: dict[tuple[str, int], Reassigned] = {}
    records: list[Record] = []
    for change in command.changes:
        key = (change.topic, change.partition)
        if key in results:
            continue
        error = None
        try:
            if asked[key] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "The partition is named twice in one request."
                )
            records += _records(state, change, command.allow_replication_factor_change)
        except KafkaError as refused:
            error = refused
        results[key] = Reassigned(change.topic, change.partition, error)
    return Outcome(list(results.values()), records)


def _records(state: ClusterState, change: Reassignment, may_resize: bool) -> list[Record]:
    """The records of one change. Raises KafkaError."""
    topic = state.topics.get(change.topic)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{change.topic}'."
        )
    if not 0 <= change.partition < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Topic '{change.topic}' has no partition {change.partition}.",
        )
    placed = topic.partitions[change.partition]
    target = _checked_target(state, placed, change.replicas, may_resize)
    changed = moved(placed, target)
    if changed == placed:
        return []
    return [encode(_record(topic.topic_id, change.partition, changed))]


def _checked_target(
    state: ClusterState,
    placed: PartitionState,
    replicas: tuple[int, ...] | None,
    may_resize: bool,
) -> tuple[int, ...]:
    if replicas is None:
        if not placed.is_moving or sorted(placed.replicas) == sorted(placed.previous):
            raise KafkaError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "The partition is not being moved."
            )
        return placed.previous
    check_replicas(state, replicas)
    size = len(placed.replicas)  # What it is on the way to, as in Kafka.
    if not may_resize and len(replicas) != size:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The partition has {size} replica(s), and the assignment {len(replicas)}; "
            "the request does not allow that.",
        )
    return replicas


def moved(placed: PartitionState, target: tuple[int, ...]) -> PartitionState:
    """What is known of a partition once it is wanted elsewhere."""
    if not placed.is_moving and sorted(target) == sorted(placed.replicas):
        return PartitionState(target, placed.founders, order=placed.order)
    before = dict.fromkeys((*placed.members, *placed.previous))
    return PartitionState(
        replicas=target,
        founders=placed.founders,
        previous=placed.previous or placed.replicas,
        removing=tuple([node for node in before if node not in target]),
        order=placed.order,
    )


def reassignment_done(state: ClusterState, command: ReassignmentDone) -> Outcome[Done]:
    """The voters are the target: nothing more to move, unless the target is another one by now."""
    placed = state.partition(command.topic_id, command.partition)
    if (
        placed is None
        or not placed.is_moving
        or sorted(placed.replicas) != sorted(command.replicas)
    ):
        return Outcome(Done(), [])
    settled = PartitionState(placed.replicas, placed.founders, order=placed.order)
    return Outcome(Done(), [encode(_record(command.topic_id, command.partition, settled))])


def _record(topic_id: UUID, index: int, placed: PartitionState) -> PartitionRecord:
    return PartitionRecord(
        topic_id,
        index,
        placed.replicas,
        placed.founders,
        placed.previous,
        placed.removing,
        placed.order,
    )


def recover_partition(state: ClusterState, command: RecoverPartition) -> Outcome[Done]:
    """Remember an operator's order. Raises KafkaError."""
    placed = state.partition(command.topic_id, command.partition)
    if placed is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")
    if command.leader.node not in placed.members:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Broker {command.leader.node} has no replica of this partition.",
        )
    if placed.order is not None and command.epoch <= placed.order.epoch:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"An order for epoch {placed.order.epoch} was given before; {command.epoch} is not later.",
        )
    ordered = dataclasses.replace(placed, order=Order(command.leader, command.epoch))
    return Outcome(Done(), [encode(_record(command.topic_id, command.partition, ordered))])
