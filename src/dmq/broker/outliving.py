"""A broker whose fellow voters on the metadata are lost for ever: what an operator's word allows.

Where most of the metadata's voters are gone nobody can elect a leader of them, and without one nothing
can be ordered, not even who goes on with a partition. Above the metadata there is nobody who remembers
an order, so it must be true: a voter that was named as lost and comes back with its old disk follows
if it finds this broker, and goes on as the cluster that was if it finds another one of those first.

The word names the lost directories. Who comes in their places has other ones, so that the same
word, left in a command, says nothing about a later loss. Called by the runtime: `outlive` at its start,
`Watch.tick` while it runs, for a broker that outlives the others tells the ids that the word takes.
"""

import logging
from collections.abc import Callable
from uuid import UUID

from dmq.broker.multiraft.replica import Replica
from dmq.machines.records import EPOCH_LEAP
from dmq.raft.quorum import majority
from dmq.types import Voter

log = logging.getLogger("dmq.broker")

TELL_MS = 30_000
"""Without a leader of the metadata for so long, a running broker says so: elections take a second, and
restarts of the others a few."""
TELL_AGAIN_MS = 600_000

IsLinked = Callable[[Voter], bool]


def outlive(metadata: Replica, lost: frozenset[UUID], is_linked: IsLinked, now: int) -> bool:
    """After a while without a leader of the metadata: begin to lead them as their only voter, if all
    others were named as lost and none of them is up; False: not yet, or not at all."""
    core = metadata.core
    if not _is_hopeless(metadata, is_linked):
        return False
    others = _others(metadata)
    if any(map(is_linked, others)) or not {voter.directory for voter in others} <= lost:
        _tell(others, is_linked, lost)
        return False
    log.warning(
        "the metadata go on with what this broker has of them, up to offset %d of epoch %d, without the "
        "voters %s",
        core.end.offset,
        core.end.epoch,
        _numbers(others),
    )
    return metadata.ordered(metadata.me, core.epoch + EPOCH_LEAP, now)


class Watch:
    """Of a broker that runs: tells when nobody has led the metadata for a while, and nobody can."""

    def __init__(self, metadata: Replica, is_linked: IsLinked) -> None:
        self._metadata = metadata
        self._is_linked = is_linked
        self._tell_at: int | None = None
        """None: there is hope."""

    def tick(self, now: int) -> None:
        """Called now and then."""
        if not _is_hopeless(self._metadata, self._is_linked):
            self._tell_at = None
        elif self._tell_at is None:
            self._tell_at = now + TELL_MS
        elif now >= self._tell_at:
            self._tell_at = now + TELL_AGAIN_MS
            _tell(_others(self._metadata), self._is_linked)


def _is_hopeless(metadata: Replica, is_linked: IsLinked) -> bool:
    """Whether this broker votes, nobody leads, and too few voters are up to elect anybody."""
    core = metadata.core
    if core.leader is not None or metadata.me not in core.voters:
        return False
    up = sum(map(is_linked, _others(metadata)))
    return up + 1 < majority(len(core.voters))


def _others(metadata: Replica) -> list[Voter]:
    return [voter for voter in metadata.core.voters if voter != metadata.me]


def _tell(others: list[Voter], is_linked: IsLinked, lost: frozenset[UUID] = frozenset()) -> None:
    missing = [voter for voter in others if voter.directory not in lost]
    if lost and missing:
        lacking = ", ".join(f"{voter.directory} (broker {voter.node})" for voter in missing)
        log.warning("--accept-lost does not name all of the other voters: it lacks %s", lacking)
    log.warning(
        "nobody leads the cluster's metadata, and too few of their voters are up to elect anybody: "
        "besides this broker %s of %s. Start the others: then nothing is lost. If the disks of all "
        "others are lost for ever, the cluster can go on with the metadata that this broker has: stop "
        "what is up of the others, and start this one with --accept-lost %s",
        _numbers(list(filter(is_linked, others))) or "none",
        _numbers(others),
        ",".join(str(voter.directory) for voter in others),
    )


def _numbers(voters: list[Voter]) -> str:
    return ", ".join(str(voter.node) for voter in voters)
