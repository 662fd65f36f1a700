"""A broker whose fellow voters on the metadata are lost for ever: what an operator's word allows.

Where most of the metadata's voters are gone nobody can elect a leader of them, and without one nothing
can be ordered, not even who goes on with a partition. Above the metadata there is nobody who remembers
an order, so it must be true: a voter that was named as lost and comes back with its old disk follows
if it finds this broker, and goes on as the cluster that was if it finds another one of those first.

The word names the lost directories. Who comes in their places has other ones, so that the same
word, left in a command, says nothing about a later loss. Called by the runtime at its start.
"""

import logging
from collections.abc import Callable
from uuid import UUID

from dmq.broker.multiraft.replica import Replica
from dmq.machines.records import EPOCH_LEAP
from dmq.raft.quorum import majority
from dmq.types import Voter

log = logging.getLogger("dmq.broker")


def outlive(
    metadata: Replica, lost: frozenset[UUID], is_linked: Callable[[Voter], bool], now: int
) -> bool:
    """After a while without a leader of the metadata: begin to lead them as their only voter, if all
    others were named as lost and none of them is up; False: not yet, or not at all."""
    core = metadata.core
    others = [voter for voter in core.voters if voter != metadata.me]
    up = [voter for voter in others if is_linked(voter)]
    is_hopeful = core.leader is not None or len(up) + 1 >= majority(len(core.voters))
    if metadata.me not in core.voters or is_hopeful:
        return False
    if up or not {voter.directory for voter in others} <= lost:
        _tell(others, up)
        return False
    log.warning(
        "the metadata go on with what this broker has of them, up to %s, without the voters %s",
        core.end,
        [voter.node for voter in others],
    )
    return metadata.ordered(metadata.me, core.epoch + EPOCH_LEAP, now)


def _tell(others: list[Voter], up: list[Voter]) -> None:
    log.warning(
        "nobody leads the cluster's metadata: of the other voters %s are up, and too few. Start the "
        "others: then nothing is lost. If the disks of all others are lost for ever, stop what is up "
        "of them and start this broker with --accept-lost %s: the cluster goes on with the metadata "
        "that it has here",
        [voter.node for voter in up] or "none",
        ",".join(f"{voter.directory}" for voter in others),
    )
