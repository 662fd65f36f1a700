"""What the replicas of a partition say of themselves before an operator's order, and what follows of it.

An order is the last resort: it is refused where anybody has a leader, and where those that can be asked
can elect one by themselves: they have what was acknowledged, and whoever would be ordered may not.

Values and bytes only; a broker asks and tells (electing.py).
"""

import struct
from typing import NamedTuple
from uuid import UUID

from dmq.broker.multiraft.replica import Replica
from dmq.errors import ErrorCode, KafkaError, ProtocolError
from dmq.machines.state import PartitionState
from dmq.raft.quorum import majority
from dmq.types import NO_LEADER, Position, Voter

NO_EPOCH = -1
"""Where the end of a log is that is not there."""
ELECTION_MS = 30_000
"""Who can elect a leader and has not done so for so long will not."""

_HEAD = struct.Struct(">i16siiiqiIB")
_COUNT = struct.Struct(">H")
_VOTER = struct.Struct(">i16s")
_GAP = struct.Struct(">qq")
_DAMAGED, _RECOVERING, _ABLE = 1, 2, 4
_LEADERLESS_MS_MAX = 2**32 - 1


class Account(NamedTuple):
    """One replica: who it is, how much it has, whom it follows."""

    me: Voter
    epoch: int
    end: Position
    voters: tuple[Voter, ...]
    leader: int = NO_LEADER
    """Itself, if it leads."""
    leaderless_ms: int = 0
    is_damaged: bool = False
    is_recovering: bool = False
    """It may have forgotten what it acknowledged: votes only if all do."""
    is_able: bool = True
    """May stand for election, as far as its own state tells."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Offsets that it gave up by an order, each from and to before."""


def account(replica: Replica, now: int) -> Account:
    """What a replica says of itself."""
    core = replica.core
    leader = replica.me if core.is_obeying else core.leader
    return Account(
        replica.me,
        core.epoch,
        core.end,
        core.voters,
        NO_LEADER if leader is None else leader.node,
        core.leaderless_ms(now),
        core.is_damaged,
        core.is_recovering,
        core.is_able,
        replica.log.gaps,
    )


def encode(one: Account) -> bytes:
    flags = one.is_damaged * _DAMAGED | one.is_recovering * _RECOVERING | one.is_able * _ABLE
    leaderless_ms = min(one.leaderless_ms, _LEADERLESS_MS_MAX)
    node, directory = one.me
    parts = [
        _HEAD.pack(node, directory.bytes, one.epoch, *one.end, one.leader, leaderless_ms, flags),
        _COUNT.pack(len(one.voters)),
        *(_VOTER.pack(node, directory.bytes) for node, directory in one.voters),
        *(_GAP.pack(*gap) for gap in one.gaps),
    ]
    return b"".join(parts)


def decode(said: bytes) -> Account:
    """Raises ProtocolError."""
    try:
        node, directory, epoch, *end, leader, leaderless_ms, flags = _HEAD.unpack_from(said)
        (count,) = _COUNT.unpack_from(said, _HEAD.size)
        at = _HEAD.size + _COUNT.size
        stop = at + count * _VOTER.size
        voters = [Voter(n, UUID(bytes=d)) for n, d in _VOTER.iter_unpack(said[at:stop])]
        gaps = [(start, until) for start, until in _GAP.iter_unpack(said[stop:])]
    except struct.error as error:
        raise ProtocolError(f"{len(said)} bytes are no account of a replica") from error
    return Account(
        Voter(node, UUID(bytes=directory)),
        epoch,
        Position(*end),
        tuple(voters),
        leader,
        leaderless_ms,
        bool(flags & _DAMAGED),
        bool(flags & _RECOVERING),
        bool(flags & _ABLE),
        tuple(gaps),
    )


def choose(accounts: list[Account], placed: PartitionState) -> Account:
    """Whoever has most; of several, one whose log is not damaged. One without a log only if all
    others are without one too: who can't be asked may have it.

    Raises KafkaError if no order may be given.
    """
    for one in accounts:
        if one.leader != NO_LEADER:
            raise KafkaError(
                ErrorCode.ELECTION_NOT_NEEDED,
                f"Broker {one.leader} leads it, as broker {one.me.node} says.",
            )
    if can_elect(accounts):
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Enough of its replicas are up to elect a leader without losing anything: wait for them.",
        )
    best = max(accounts, key=lambda one: (one.end, not one.is_damaged, one.me), default=None)
    if best is None or (best.end.epoch == NO_EPOCH and len(accounts) < len(placed.members)):
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "No replica that has a log of it can be reached.",
        )
    return best


def can_elect(accounts: list[Account]) -> bool:
    """Whether one of these may win an election among them, and it is not too late to hope for that."""
    by_voter = {one.me: one for one in accounts}
    for candidate in accounts:
        voters = candidate.voters
        if not candidate.is_able or candidate.me not in voters:
            continue
        if candidate.leaderless_ms >= ELECTION_MS:
            continue
        present = [by_voter[voter] for voter in voters if voter in by_voter]
        for_it = [one for one in present if one.end <= candidate.end]
        well = [one for one in for_it if not one.is_recovering]
        if len(well) >= majority(len(voters)) or len(for_it) == len(voters):
            return True
    return False


def epoch_seen(accounts: list[Account], placed: PartitionState) -> int:
    """The highest epoch that any of them, or an earlier order, has seen."""
    ordered = 0 if placed.order is None else placed.order.epoch
    return max(ordered, *(max(one.epoch, one.end.epoch) for one in accounts))
