"""What a replica says of itself: read-only, for whoever holds it.

The half of `RaftCore` that changes nothing, so that the other half fits on a few screens. Nothing here is
kept: every fact is read from the state when it is asked for.
"""

from dmq.raft import changing, leader
from dmq.raft.leading import durable_end
from dmq.raft.marks import Marks
from dmq.raft.state import Role, State
from dmq.types import Position, Voter


class Facts:
    """See the module."""

    __slots__ = ("_state",)

    _state: State

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def is_leader(self) -> bool:
        return self._state.leading is not None

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def vote(self) -> Voter | None:
        return self._state.vote

    @property
    def leader(self) -> Voter | None:
        """Whom to send clients to; None if it is unknown or can't be heard."""
        s = self._state
        return s.leader if s.is_leader_live else None

    @property
    def marks(self) -> Marks:
        return self._state.log.marks

    @property
    def end(self) -> Position:
        return self._state.log.end

    @property
    def durable_end(self) -> Position:
        return self._state.log.durable

    @property
    def commit(self) -> Position:
        return self._state.log.commit

    @property
    def high_watermark(self) -> int:
        return self._state.log.commit.offset

    @property
    def log_start(self) -> int:
        return self._state.log.log_start

    @property
    def voters(self) -> tuple[Voter, ...]:
        return self._state.voters

    @property
    def deadline(self) -> int | None:
        return self._state.deadline

    @property
    def has_messages(self) -> bool:
        """Whether messages wait for a turn."""
        return bool(self._state.outbox)

    @property
    def can_append(self) -> bool:
        """Whether records may be appended here: as soon as elected (SERVE), not at a handover's end."""
        leading = self._state.leading
        return leading is not None and (leading.handover is None or not leading.handover.is_closed)

    @property
    def heir(self) -> Voter | None:
        """To whom the leadership is being handed over."""
        leading = self._state.leading
        return None if leading is None or leading.handover is None else leading.handover.to

    @property
    def knows_latest(self) -> bool:
        """Whether the high watermark reached our own mark, so that it may be told (KIP-207)."""
        leading = self._state.leading
        return leading is not None and self.high_watermark >= leading.mark.offset

    @property
    def may_lease(self) -> bool:
        """Whether answers may rest on a lease; void while an heir that was told to stand may do so."""
        leading = self._state.leading
        return leading is not None and not leading.told

    @property
    def is_obeying(self) -> bool:
        """Whether an order to lead alone is being carried out (`RaftCore.recover`)."""
        standing = self._state.standing
        return standing is not None and standing.is_ordered

    @property
    def is_able(self) -> bool:
        """Whether we may stand, if enough others can be asked and nothing keeps us for a while."""
        s = self._state
        return s.me in s.voters and not (s.links.is_leaving or s.is_damaged or s.is_barred)

    def leaderless_ms(self, now: int) -> int:
        """How long nobody has led, as far as we know."""
        since = self._state.leaderless_since
        return 0 if since is None else max(now - since, 0)

    @property
    def is_recovering(self) -> bool:
        return self._state.is_recovering

    @property
    def is_damaged(self) -> bool:
        return self._state.is_damaged

    @property
    def parting(self) -> Position | None:
        """Where our damaged log parts from the leader's: beyond it nothing needs to be repaired."""
        found = self._state.parting
        return found[0] if found is not None else None

    @property
    def unclean_elections(self) -> int:
        """Elections that this replica won with votes of replicas that may have lost records."""
        return self._state.unclean_elections

    @property
    def losses(self) -> int:
        """How often this replica gave up committed positions after an unclean election.

        Only then does its commit go back.
        """
        return self._state.log.losses

    def has(self, p: Position) -> bool:
        """Whether `p` is a position of this log; false for a position that was cut."""
        return self._state.log.has(p)

    def floor(self, p: Position) -> Position | None:
        """The greatest position of this log that is not beyond `p`; None if that was let go."""
        return self._state.log.floor(p)

    def in_sync(self, now: int, lag_ms: int) -> tuple[Voter, ...]:
        """The ISR as the leader sees it, in replica order; () if we don't lead."""
        s = self._state
        return leader.in_sync(s, now, lag_ms) if s.leading is not None else ()

    def has_failed(self, heir: Voter, now: int) -> bool:
        """Whether this voter was to lead lately and could not; known to the leader only."""
        s = self._state
        return s.leading is not None and changing.has_failed(s, heir, now)

    def durable_count(self, p: Position) -> int:
        """How many voters have `p` durably, as the leader knows (min.insync.replicas)."""
        s = self._state
        if s.leading is None:
            return 0
        return sum(durable_end(s, voter) >= p for voter in s.voters)

    def matches(self) -> dict[Voter, Position]:
        """What each follower, learner and observer has durably, as the leader knows."""
        leading = self._state.leading
        return {v: p.match for v, p in leading.followers.items()} if leading is not None else {}
