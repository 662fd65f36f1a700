"""What the metadata want of Raft groups: which replicas shall vote, and who may merely read along.

Pure functions of the cluster's state, asked by the broker when the state, a link or a group's voters
changed. Whoever leads a group moves its voters towards the target, one safe step after the other
(raft/membership.py); nothing here is written down, so every broker may ask at any time.

The metadata log itself: one voter with one or two brokers, three with three or four, five with five or
more; all others observe. A voter that is registered with its present disk stays while so many are
wanted, also when it is down: who is down for good is unregistered. Only live brokers become voters, and
an odd number of them: two voters are no better than one, four no better than three. Only while one that
leaves goes, those that stay may be two or four.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from dmq.machines.commands import ReassignmentDone
from dmq.machines.state import ClusterState
from dmq.types import NO_LEADER, Voter


class MetadataTarget(NamedTuple):
    """Who shall vote on the metadata, in order of succession; and who shall have them besides."""

    voters: tuple[Voter, ...]
    observers: tuple[Voter, ...]


def group_target(state: ClusterState, topic_id: UUID, partition: int) -> tuple[Voter, ...]:
    """The voters that a partition shall have, in order of preference; () if it is not there."""
    placed = state.partition(topic_id, partition)
    if placed is None:
        return ()
    brokers = state.brokers
    return tuple(
        [Voter(node, brokers[node].directory) for node in placed.replicas if node in brokers]
    )


def finished(
    state: ClusterState, topic_id: UUID, partition: int, voters: Collection[Voter]
) -> ReassignmentDone | None:
    """What a leader tells the cluster when these are its (committed) voters; None: nothing."""
    placed = state.partition(topic_id, partition)
    if placed is None or not placed.is_moving:
        return None
    if sorted(voters) != sorted(group_target(state, topic_id, partition)):
        return None
    return ReassignmentDone(topic_id, partition, placed.replicas)


def may_leave(state: ClusterState, voters: Collection[int]) -> tuple[int, ...]:
    """Brokers that were asked to leave and do not vote on the metadata any more: the metadata leader
    gives `UnregisterBroker` for them."""
    return tuple(
        [
            node
            for node, broker in sorted(state.brokers.items())
            if broker.is_leaving and node not in voters
        ]
    )


def metadata_voters(
    state: ClusterState,
    current: Sequence[Voter],
    live: Collection[int],
    leader: int = NO_LEADER,
) -> MetadataTarget:
    """Who shall vote on the metadata, given who does, and which brokers are alive.

    Without anybody registered, everything stays as it is: the log has only begun.
    """
    registered = {
        node: Voter(node, broker.directory) for node, broker in sorted(state.brokers.items())
    }
    staying = [voter for node, voter in registered.items() if not state.brokers[node].is_leaving]
    if not staying:
        return MetadataTarget(tuple(current), ())
    wanted = voters_wanted(len(staying))
    chosen = [voter for voter in current if voter in staying]
    if len(chosen) > wanted and not _leaves_first(current, chosen, {leader, *live}, registered):
        chosen = _best(state, chosen, live, leader)[:wanted]
        chosen = [voter for voter in current if voter in chosen]
    elif len(chosen) <= wanted:
        named = {voter.node for voter in current}
        fresh = [voter for voter in staying if voter not in chosen and voter.node in live]
        # A voter that changed its name follows itself, before anybody else.
        fresh.sort(key=lambda voter: (voter.node not in named, voter.node))
        count = min(wanted, len(chosen) + len(fresh))
        if count % 2 == 0 and count > len(chosen):
            count -= 1
        _fill(state, chosen, fresh, count)
    if not chosen:  # None of the voters is left, and nobody who could follow is there.
        return MetadataTarget(tuple(current), tuple(registered.values()))
    observers = tuple([voter for voter in registered.values() if voter not in chosen])
    return MetadataTarget(tuple(chosen), observers)


def _leaves_first(
    current: Sequence[Voter],
    chosen: Sequence[Voter],
    live: Collection[int],
    registered: Mapping[int, Voter],
) -> bool:
    """Whether a voter that is leaving shall go before there are fewer of those that stay. Else one of
    these could go first, and one that ends, or ended a moment ago, would be one of the two that are
    left. Not while another one is down: then that one goes first."""
    is_leaving = any(
        registered.get(voter.node) == voter for voter in current if voter not in chosen
    )
    return is_leaving and all(voter.node in live for voter in chosen)


def voters_wanted(brokers: int) -> int:
    """How many of so many brokers vote on the metadata."""
    return 1 if brokers < 3 else 3 if brokers < 5 else 5


def _best(
    state: ClusterState, voters: Sequence[Voter], live: Collection[int], leader: int
) -> list[Voter]:
    """The same voters, those first that should stay: the leader, the live, one of each rack."""
    left, best = list(voters), list[Voter]()
    while left:
        racks = _racks(state, best)
        left.sort(  # Stable: else the order of succession decides.
            key=lambda voter: (
                voter.node != leader,
                voter.node not in live,
                racks[state.brokers[voter.node].rack],
            )
        )
        best.append(left.pop(0))
    return best


def _fill(state: ClusterState, chosen: list[Voter], fresh: list[Voter], count: int) -> None:
    """Add voters up to `count`, each from a rack that has the fewest of them."""
    left = list(fresh)
    while len(chosen) < count:
        racks = _racks(state, chosen)
        voter = min(left, key=lambda voter: racks[state.brokers[voter.node].rack])
        left.remove(voter)
        chosen.append(voter)


def _racks(state: ClusterState, voters: Sequence[Voter]) -> Counter[str | None]:
    return Counter(state.brokers[voter.node].rack for voter in voters)
