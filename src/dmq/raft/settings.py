"""The numbers of the Raft core, all of them, each with its meaning and what is wrong with other values.

One frozen object is shared by all groups of a broker. Times are counted in the caller's milliseconds;
the core has no clock and only compares the `now` that it is given.
"""

from dataclasses import dataclass
from typing import Protocol


class Dice(Protocol):
    """What the core needs of a `random.Random`; seeded by the caller, so that runs repeat."""

    def randrange(self, stop: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """See the module."""

    rank_ms: int = 150
    """How long a voter lets each live voter before it in the mark's order try first. Too low: two
    stand at once and split the votes; too high: each dead successor delays the election."""
    election_ms: int = 500
    """How long a candidate waits for votes before it begins again, with rank and jitter on top. Too
    low: slow disks never finish an election; too high: a lost message costs that much."""
    jitter_ms: int = 75
    """Up to this much is added to every wait but the first voter's. 0 would let voters that once
    collided collide again."""
    lease_retry_ms: int = 100
    """A pre-vote that was refused for a lease is repeated after this: others saw the leader die a
    heartbeat later than we did. Too low: useless questions."""
    check_quorum_ms: int = 1000
    """A leader that lacks live followers for a majority resigns after this. Too low: a hiccup ends
    leaderships; too high: clients of a cut-off leader wait in vain."""
    transfer_ms: int = 1000
    """A handover that did not end after this is given up and the leader serves again. Appends wait
    meanwhile."""
    retry_ms: int = 1000
    """A follower that owes an answer for so long is probed again. Sessions lose nothing, so this is
    for those who could not answer (full disk, repair). Too low: data is sent twice."""
    window: int = 8
    """Appends under way to one follower. Too low: the link idles for a round trip; too high: more
    memory at a slow follower. The caller bounds the bytes of each."""
    turn_ms: int = 500
    """A learner is at the end of the log if it catches up with what the end was within this: a round
    trip and a sync, or an election's time (Raft thesis 4.2.1). Too low: on a slow disk no learner ever
    becomes a voter; too high: one that holds up commits may."""
    promote_ms: int = 1000
    """A learner that stayed at the end for this long becomes a voter. Too low: one that is about to
    fall behind would hold up commits."""
    unclean_wait_ms: int = 30_000
    """With unclean elections allowed, recovering voters of a mere majority may elect after so long
    without a leader; otherwise all voters must be there."""

    def __post_init__(self) -> None:
        assert self.rank_ms > 0
        assert self.jitter_ms >= 0
        assert self.lease_retry_ms > 0
        assert self.election_ms > self.lease_retry_ms
        assert self.window > 0
        assert self.retry_ms > 0
        assert self.transfer_ms > 0
        assert self.check_quorum_ms > 0
        assert 0 < self.turn_ms <= self.promote_ms
