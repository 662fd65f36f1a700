"""Which replica a consumer should read from: one in its own rack, if there is one (KIP-392).

Owns the choice alone, which is Kafka's RackAwareReplicaSelector. Asked by the leader for each fetch
of a consumer that says where it is; pure, so that the rules can be read in its tests.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Candidate(NamedTuple):
    """A replica in sync, as far as the leader knows it."""

    node: int
    rack: str | None
    log_end_offset: int
    log_start_offset: int = 0


def nearest(rack: str, leader: int, offset: int, candidates: Iterable[Candidate]) -> int:
    """The node to read `offset` from: the leader if it is in the rack or nobody is, else the replica
    in the rack that has most, of equals the one with the lowest number. One that lacks the offset
    is none."""
    best: Candidate | None = None
    for candidate in candidates:
        if not rack or candidate.rack != rack:
            continue
        if candidate.node == leader:
            return leader
        if not candidate.log_start_offset <= offset <= candidate.log_end_offset:
            continue
        if best is None or _order(candidate) < _order(best):
            best = candidate
    return leader if best is None else best.node


def _order(candidate: Candidate) -> tuple[int, int]:
    return (-candidate.log_end_offset, candidate.node)
