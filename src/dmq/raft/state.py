"""The state of one replica of one group, and the few ways in which its role changes.

What every role has lies here; what only a candidate or a leader has lies in `Standing` and
`Leading`, which exist as long as the role does. Roles' modules act on it; nobody else writes to it.
Not to be confused with the journal's STATE item.
"""

from enum import Enum
from typing import TYPE_CHECKING

from dmq.raft.links import Links
from dmq.raft.messages import Envelope, Message
from dmq.raft.quorum import NOTHING, majority
from dmq.raft.settings import Dice, RaftSettings
from dmq.raft.view import LogView
from dmq.raft.writes import SetHard
from dmq.types import Position, Voter

if TYPE_CHECKING:
    from dmq.raft.candidate import Standing
    from dmq.raft.leading import Leading


class Role(Enum):
    """See the table in core.py."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


ATTEMPTS_ALIKE = 3
"""So many attempts are made at the first pace: most elections that fail are won at once then."""
DOUBLINGS_MAX = 2
UNFIT_ELECTIONS = 2
"""How many elections others may hold before a broker with a bad disk stands."""


class State:
    """See the module."""

    __slots__ = (
        "_hard_in_turn",
        "_held",
        "_is_in_turn",
        "ack_is_due",
        "acked",
        "attempts",
        "barred_epoch",
        "deadline",
        "declined",
        "dice",
        "epoch",
        "hard_durable",
        "has_lost_tail",
        "heal_goal",
        "held_until",
        "is_damaged",
        "is_leader_live",
        "is_needed",
        "is_unclean_allowed",
        "leader",
        "leaderless_since",
        "leading",
        "links",
        "log",
        "me",
        "observers",
        "outbox",
        "parting",
        "remembered",
        "role",
        "settings",
        "standing",
        "target",
        "told_commit",
        "unclean_elections",
        "verified",
        "vote",
        "waiting_since",
    )

    def __init__(
        self,
        links: Links,
        settings: RaftSettings,
        dice: Dice,
        log: LogView,
        epoch: int,
        vote: Voter | None,
    ) -> None:
        self.links = links
        self.me = links.me
        self.settings = settings
        self.dice = dice
        self.log = log
        self.epoch = max(epoch, log.end.epoch, 0)
        self.vote = vote if self.epoch == epoch else None
        self.role = Role.FOLLOWER
        self.leader: Voter | None = None
        """Whom we follow in this epoch; ourselves if we lead."""
        self.is_leader_live = False
        """Whether its link lives and it claims the group: then nobody gets our pre-vote."""
        self.is_needed = False
        """Somebody without a leader takes us for a voter, and we know more than it does."""
        self.leaderless_since: int | None = None
        self.attempts = 0
        """How often we asked for votes in vain since there was a leader."""
        self.waiting_since = 0
        """When the present wait for an election began."""
        self.deadline: int | None = None
        """When `tick` must be called; None: nothing is awaited."""
        self.standing: Standing | None = None
        self.leading: Leading | None = None
        self.verified = NOTHING
        """Up to here our log is the leader's, as far as it told us in this epoch and session."""
        self.acked = NOTHING
        self.told_commit = NOTHING
        """The leader's commit point, as far as it told us and sent us the log."""
        self.ack_is_due = False
        """An answer was asked for, be it news or not."""
        self.declined = (-1, 0)
        """Epoch and number of the last word to stand that we did not follow, and never will."""
        self.has_lost_tail = False
        """We may have acknowledged more than we have, and don't know how much."""
        self.heal_goal: tuple[int, Position] | None = None
        """(epoch, the leader's end) that makes a replica well again which lost its tail."""
        self.remembered = NOTHING
        """Where the logs of former stays here ended, until ours has as much: the records are gone, what
        they promised stands."""
        self.is_damaged = False
        self.parting: tuple[Position, bool] | None = None
        """Where a damaged log parts from the leader's, and whether it may lose what it committed."""
        self.barred_epoch = -1
        """The last epoch that an operator's order gave to another replica."""
        self.held_until = 0
        """Until then we wait for an operator's order, and promise nobody anything; see core.py."""
        self.is_unclean_allowed = False
        self.unclean_elections = 0
        self.target: tuple[Voter, ...] = ()
        self.observers: tuple[Voter, ...] = ()
        self.outbox: list[Envelope] = []
        """Messages that promise something: they wait for the next turn's sync."""
        self.hard_durable: tuple[int, Voter | None] = (self.epoch, self.vote)
        self._hard_in_turn = self.hard_durable
        self._held: list[Envelope] = []
        self._is_in_turn = False

    # ---- looking

    @property
    def voters(self) -> tuple[Voter, ...]:
        return self.log.voters

    def has_lease(self, asker: Voter) -> bool:
        """Whether the present leader's claim forbids a vote for `asker` (leader stickiness).

        A leader that asks for votes itself leads no more.
        """
        if self.leading is not None:
            return not self.leading.is_handing_over
        return self.leader is not None and self.is_leader_live and self.leader != asker

    def live_voters(self) -> list[Voter]:
        return [voter for voter in self.voters if self.links.is_live(voter)]

    @property
    def is_recovering(self) -> bool:
        """Whether we acknowledged more than we have, or may have."""
        return self.has_lost_tail or self.remembered != NOTHING

    def is_good_vote(self, end: Position) -> bool:
        """Whether a vote of ours for a log that ends here counts like any other, by what we know of all
        that we ever acknowledged.

        What a former stay had is gone, but not how far it went: for whoever has as much, our vote is
        what it would be if we still had it.
        """
        return not self.has_lost_tail and end >= self.remembered

    def may_recovering_vote(self, end: Position, now: int, *, is_settled: bool = False) -> bool:
        """Whether too much may be lost already for one that lost its tail to keep silent (SPEC §3).

        Never for a log that ends before what a former stay of ours had: it tells of the group as it
        was, and the voters that it names may long have been replaced. So may ours: whether all are
        there is for a log to say whose marks are newer and leave nobody out (`is_settled`).
        """
        if end < self.remembered:
            return False
        if is_settled and end[:2] > self.log.end[:2]:
            return True
        if self.voters and len(self.live_voters()) == len(self.voters):
            return True
        since = self.leaderless_since
        waited = since is not None and now - since >= self.settings.unclean_wait_ms
        return self.is_unclean_allowed and waited

    @property
    def is_barred(self) -> bool:
        """Whether an order made another log the group's, and ours does not descend from it yet."""
        return self.log.end.epoch < self.barred_epoch

    @property
    def is_vote_good(self) -> bool:
        """Whether our own vote counts: we are a voter by our last mark, and have all that we
        acknowledged."""
        return self.me in self.voters and self.is_good_vote(self.log.end)

    def may_stand(self, now: int) -> bool:
        """Well voters with an undamaged log; others only if they could win without their own vote."""
        if self.is_damaged or self.is_barred or now < self.held_until:
            return False
        if self.links.is_leaving and self.voters != (self.me,):
            return False  # A single voter has nobody else.
        if self.me not in self.voters and not self.is_needed:
            return False
        return self.is_vote_good or self._may_stand_by_others(now)

    def _may_stand_by_others(self, now: int) -> bool:
        """Whether enough others may be well that our own vote is not needed; or all take part."""
        if not self.voters or self.log.end < self.remembered:
            return False
        others = [voter for voter in self.live_voters() if voter != self.me]
        if len(others) >= majority(len(self.voters)):
            return True
        return self.me in self.voters and self.may_recovering_vote(self.log.end, now)

    def rank(self, without: Voter | None = None) -> int:
        """How many live voters come before us in the order of succession."""
        live = [voter for voter in self.live_voters() if voter != without or voter == self.me]
        return live.index(self.me) if self.me in live else len(live)

    @property
    def has_promises(self) -> bool:
        """Whether something waits for the sync of the turn under way."""
        return bool(self._held) or self.ack_is_due or self.verified > self.acked

    # ---- sending

    def send(self, to: Voter, message: Message) -> None:
        """Hold a message until the next sync; without a session there is nobody to send it to."""
        session = self.links.session(to)
        if session:
            self.outbox.append(Envelope(to, session, message))

    def take_back(self, *kinds: type[Message]) -> list[Message]:
        """Say nothing of these kinds that has not left yet; returns what that was."""
        unsaid = [e.message for e in (*self.outbox, *self._held) if isinstance(e.message, kinds)]
        if unsaid:
            self.outbox = [e for e in self.outbox if not isinstance(e.message, kinds)]
            self._held = [e for e in self._held if not isinstance(e.message, kinds)]
        return unsaid

    # ---- changing

    def set_hard(self, epoch: int, vote: Voter | None) -> None:
        assert (epoch, vote is not None) > (self.epoch, self.vote is not None), (epoch, vote)
        if epoch > self.epoch:
            # The old epoch's leader is nobody's any more.
            self._forget_leader()
        self.epoch, self.vote = epoch, vote
        writes = self.log.writes
        if writes and isinstance(writes[-1], SetHard):
            writes.pop()  # A new epoch and the vote in it are one item.
        writes.append(SetHard(epoch, vote))

    def follow(self, epoch: int, leader: Voter | None, now: int, delay_ms: int = 0) -> None:
        """Become a follower in this epoch, of a leader or of nobody yet.

        `delay_ms`: how long to leave it to the others to stand.
        """
        if epoch > self.epoch:
            self.set_hard(epoch, None)
        self.role = Role.FOLLOWER
        self.leading = self.standing = None
        if leader is None:
            self._forget_leader()
            self.await_election(now, delay_ms)
            return
        if leader != self.leader:
            assert self.leader is None, ("two leaders in one epoch", epoch, self.leader, leader)
            self._forget_leader()
            self.leader = leader
        self.is_leader_live = True
        self.is_needed = False
        self.leaderless_since = None
        self.attempts = 0
        self.deadline = None

    def lose_leader(self, now: int) -> None:
        """The leader's link is dead or it does not claim the group; it may come back."""
        self.is_leader_live = False
        self.await_election(now)

    def _forget_leader(self) -> None:
        self.leader = None
        self.is_leader_live = False
        self.verified = self.acked = self.told_commit = NOTHING
        self.parting = None
        self.ack_is_due = False

    # ---- waiting for an election

    def await_election(self, now: int, delay_ms: int = 0, without: Voter | None = None) -> None:
        """Stand when those before us in the order had their chance; never without a majority.

        `without`: a voter that can't win because its log is behind ours. Not for one who stands: its
        timer is its own, and one who obeys an order has none.
        """
        if self.role is not Role.FOLLOWER:
            return
        if self.leaderless_since is None:
            self.leaderless_since = now
        self.waiting_since = now
        self.deadline = None
        if now < self.held_until:
            self.deadline = self.held_until
            return
        if not self.may_stand(now):
            unclean_at = self.leaderless_since + self.settings.unclean_wait_ms
            if self.has_lost_tail and self.is_unclean_allowed and unclean_at > now:
                self.deadline = unclean_at
            return
        if len(self.live_voters()) < majority(len(self.voters)):
            return  # Nobody to ask; `peer_changed` comes when there is.
        if not self.is_vote_good and len(self.voters) > 1:
            delay_ms += self.settings.election_ms  # Those who can vote for themselves first.
        if not self.links.is_fit and len(self.voters) > 1:
            # Those with better disks first; but they may lack what was committed, or not vote here.
            delay_ms += UNFIT_ELECTIONS * self.settings.election_ms
        rank = self.rank(without)
        if rank:
            delay_ms += rank * self.settings.rank_ms + self._jitter()
        self.deadline = now + delay_ms

    def hasten_election(self, now: int, without: Voter | None = None) -> None:
        """Somebody can't win, or we may stand now: no reason to wait longer than before."""
        before = self.deadline
        self.await_election(now, without=without)
        if before is not None and self.deadline is not None:
            self.deadline = min(before, self.deadline)

    def rank_anew(self, now: int) -> None:
        """A voter came or went: the wait that is under way becomes that of our new rank."""
        since, was_waiting = self.waiting_since, self.deadline is not None
        self.await_election(now)
        if was_waiting and self.deadline is not None:
            self.deadline = max(now, self.deadline - (now - since))
            self.waiting_since = since

    def retry_delay(self) -> int:
        """How long to wait before standing again: longer after each attempt, up to a bound, so that
        thousands of groups which ask at once let each other's questions be answered."""
        settings = self.settings
        times = 1 << min(self.attempts // ATTEMPTS_ALIKE, DOUBLINGS_MAX)
        return settings.election_ms * times + self.rank() * settings.rank_ms + self._jitter()

    def _jitter(self) -> int:
        return self.dice.randrange(self.settings.jitter_ms + 1)

    # ---- the turn

    def settle_memory(self) -> None:
        """Forget how far former stays went, if our log durably went as far."""
        if self.log.durable >= self.remembered:
            self.remembered = NOTHING

    def begin_turn(self) -> None:
        assert not self._is_in_turn, "one turn at a time"
        self._is_in_turn = True
        self.log.turn_begins()
        self._hard_in_turn = (self.epoch, self.vote)
        self._held, self.outbox = self.outbox, []

    def end_turn(self) -> list[Envelope]:
        """The hard state of the turn is durable: the messages that waited for it may leave."""
        if not self._is_in_turn:
            return []
        self._is_in_turn = False
        self.hard_durable = self._hard_in_turn
        held, self._held = self._held, []
        return held
