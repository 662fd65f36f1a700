"""A member's way to its target: first it gives up, then it takes what others have given up.

    Stable                  it has its target; a newer target sends it on its way
    UnrevokedPartitions     it must give partitions up, and stays in its epoch until it says it has;
                            then perhaps others, if there is a newer target
    UnreleasedPartitions    it is in the target's epoch and waits for partitions that others have

A pure function: called with every heartbeat of a member that is not there yet.
"""

from collections.abc import Callable, Iterable
from uuid import UUID

from dmq.machines.groups.assignors import Partition, unpack
from dmq.machines.groups.consumer_group import MemberState
from dmq.machines.groups.facts import CurrentAssignment, Held, Partitions

Epochs = dict[Partition, int]
"""Partitions, and since which epoch a member has each."""


def hold(partitions: Epochs) -> Held:
    """Partitions as they are recorded."""
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(index)
    return tuple(
        (topic_id, tuple(indexes), tuple(partitions[topic_id, index] for index in indexes))
        for topic_id, indexes in by_topic.items()
    )


def held(found: Held) -> Epochs:
    """Recorded partitions, and since which epoch."""
    return {
        (topic_id, index): epoch
        for topic_id, indexes, epochs in found
        for index, epoch in zip(indexes, epochs, strict=True)
    }


def partitions_of(found: Held) -> Partitions:
    """Recorded partitions without their epochs."""
    return tuple((topic_id, indexes) for topic_id, indexes, _ in found)


def reconcile(
    current: CurrentAssignment,
    target_epoch: int,
    target: Partitions,
    is_free: Callable[[Partition], bool],
    owned: Iterable[Partition] | None,
) -> CurrentAssignment:
    """What a member has next. `owned` is what it says it has; None if it does not say."""
    if current.state == MemberState.STABLE and current.member_epoch == target_epoch:
        return current
    reported = None if owned is None else frozenset(owned)
    is_revoking = current.state == MemberState.UNREVOKED_PARTITIONS
    if is_revoking and _still_has(current.pending_revocation, reported):
        return current
    had, wanted = held(current.assigned), dict.fromkeys(unpack(target))
    kept = {partition: since for partition, since in had.items() if partition in wanted}
    to_revoke = {partition: since for partition, since in had.items() if partition not in wanted}
    if to_revoke and _still_has(hold(to_revoke), reported):
        return CurrentAssignment(
            current.member_epoch,
            current.member_epoch,
            MemberState.UNREVOKED_PARTITIONS,
            hold(kept),
            hold(to_revoke),
        )
    missing = [partition for partition in wanted if partition not in kept]
    taken = {partition: target_epoch for partition in missing if is_free(partition)}
    is_whole = len(taken) == len(missing)
    return CurrentAssignment(
        target_epoch,
        current.member_epoch,
        MemberState.STABLE if is_whole else MemberState.UNRELEASED_PARTITIONS,
        hold(kept | taken),
    )


def _still_has(partitions: Held, reported: frozenset[Partition] | None) -> bool:
    """Whether a member has not said that it gave these up."""
    return reported is None or any(partition in reported for partition in held(partitions))
