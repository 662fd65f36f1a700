"""Raft for one group, without clock, disk or network: events in; writes, messages and facts out.

The core knows positions and epochs, never a record. The caller owns the log, the links and the time.

THE CONTRACT. Inputs are `start`, `step`, `tick`, `peer_changed`, `claimed`, `disclaimed`, `appended`,
`refused`, `unable`, `transfer`, `resign`, `set_target`, `request_log_start`, `allow_unclean`, `damaged`,
`repaired`, `part`, `hold`, `recover`, `bar`. Then:

 1. After EVERY input, stage `take_writes()` on the log, in order, before anything else happens to the
    log or the group. They are staged, not synced. A `Take` means the bytes that came with the append
    that was just stepped, after checking that each batch carries `append.epoch_at(its offset)`; a
    batch that does not is the peer's fault: don't step the append, close the link.
    If the log can't take the bytes, leave the rest of the writes and call `refused` at once.
 2. A leader's own records: check `can_append`, stamp them with `epoch`, append them to the log, call
    `appended(end offset)`; the position that it returns is what their producer waits for.
 3. A turn: let the log begin it (bytes are in the page cache; call `refused` if it took fewer), then,
    with no input in between, call `ready(now)`. For each `Want`, read whole batches from `start` up to
    `stop` at most, call `send(want, end offset of what was read, now)` and let the envelope leave. These
    messages, and only these, may leave BEFORE the turn's sync: they promise nothing of ours.
    `ready` gives at most one want per follower; `wants(now)` gives more at any time, also between turns.
 4. When the sync has returned (at once, if there was nothing to sync), call
    `durable(log's stable end, now)` and let the envelopes that it returns leave: requests for votes,
    votes, acks, refusals. Then go to 1: it is an input too. One turn at a time; inputs may come
    between `ready` and `durable`, and what they cause waits for the next turn.
 5. An envelope leaves in its `session` or never.
 6. After every input look at `commit`, `log_start`, `role`, `leader`, `epoch` if you care, and see that
    `tick` is called at `deadline`. An idle group has none. Early, late and repeated ticks do no harm.
 7. After a restart make a new core from what the log says: `is_recovering` if an async log's start was
    unclean, or a former log's was, `is_damaged` if it knows that bytes are bad. `remembered` is where
    former logs of this replica ended, which left the group, or could not be repaired: keep them, epoch
    and vote, until `is_recovering` is false.

Liveness comes from outside: the node keeps `Links` and tells `peer_changed` after a link came, went,
became suspect or was heard again; `claimed` when a peer's table says that it leads this group;
`disclaimed` when its digest says that it does not lead it, though we follow it, or does not follow us.

ROLES                  becomes          when
  FOLLOWER             PRE_CANDIDATE    no live leader, and the rank's wait is over; a majority is live
                       CANDIDATE        the leader hands over to us (TimeoutNow), or we are the only voter
  PRE_CANDIDATE        CANDIDATE        a majority would vote for us
                       FOLLOWER         refused by a majority; vote given; append or higher epoch seen
                       PRE_CANDIDATE    no answer in time, or a lease stood in the way: again
  CANDIDATE            LEADER           a majority of well voters voted for us, our own vote durable; or
                                        all voters, some without their tail (unclean)
                       FOLLOWER         refused by a majority; append of this epoch; higher epoch seen;
                                        the disk refused what the votes are asked for
                       PRE_CANDIDATE    no majority in time
  LEADER               FOLLOWER         higher epoch seen; no majority follows for check_quorum_ms; the
                                        disk refused what was sent already
  any                  CANDIDATE        an operator said so (`recover`): asks nobody, may lose records

RECOVERING replicas have not got all that they acknowledged. One that lost its tail does not know how much
that was: its vote is not a well voter's, and it is well when it has all that a leader had after its
restart. One with `remembered` knows: its vote is a well voter's for a log that ends there or later, it
gives none to any other, and it is well when its own log ends there or later, durably.

UNCLEAN elections (all voters, some without their tail; a majority of them after a long wait where the
topic allows it; an operator's order) may lose committed records. The epoch's first mark then has change 1
instead of 0, so that the log itself says so, and appends and resets carry the last such epoch: only a
replica whose commit is older than that may cut below it. `unclean_elections` and `losses` count them.

Damaged replicas are followers that do not stand, nor do learners and observers unless they are asked for
a vote by somebody who is behind them. These, and recovering ones, stand after the others, and need a
majority without their own vote (candidate.py). The numbers are in settings.py, the messages in
messages.py. Called by the broker's partition and by simulators.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from dmq.raft import candidate, changing, follower, leader, voting
from dmq.raft.facts import Facts
from dmq.raft.leader import Want
from dmq.raft.links import Links
from dmq.raft.marks import Marks
from dmq.raft.messages import (
    Ack,
    Append,
    Envelope,
    Message,
    Nack,
    PreVote,
    PreVoteReply,
    Refusal,
    Reset,
    TimeoutNow,
    Vote,
    VoteReply,
)
from dmq.raft.quorum import NOTHING
from dmq.raft.settings import Dice, RaftSettings
from dmq.raft.state import Role, State
from dmq.raft.view import LogView
from dmq.raft.writes import Write
from dmq.types import Position, Voter


class Ready(NamedTuple):
    """What a turn of this group consists of, beside what was staged; see the contract."""

    wants: list[Want]
    has_promises: bool
    """Whether messages wait for the sync of this turn."""


class RaftCore(Facts):
    """One replica of one group; see the module."""

    __slots__ = ()

    def __init__(
        self,
        links: Links,
        settings: RaftSettings,
        dice: Dice,
        *,
        marks: Marks,
        end_offset: int,
        log_start: int,
        epoch: int,
        vote: Voter | None,
        commit: Position = NOTHING,
        is_recovering: bool = False,
        is_damaged: bool = False,
        is_unclean_allowed: bool = False,
        remembered: Position = NOTHING,
    ) -> None:
        """A replica as its log remembers it; without marks, a new learner.

        `is_recovering`: it may have lost what it acknowledged. `remembered`: where the logs of its
        former stays ended; until it has as much, it is recovering too, but knows how far it went.
        """
        log = LogView(marks, end_offset, log_start, commit)
        self._state = s = State(links, settings, dice, log, epoch, vote)
        s.has_lost_tail = is_recovering
        s.is_damaged = is_damaged
        s.remembered = remembered
        s.is_unclean_allowed = is_unclean_allowed

    def __repr__(self) -> str:
        s = self._state
        return f"<RaftCore {s.role.value} epoch={s.epoch} end={tuple(s.log.end)}>"

    # ---- inputs

    def start(self, now: int, wait_ms: int = 0) -> None:
        """Begin; leave it to a leader that may exist to show itself for `wait_ms`."""
        if not self._state.is_leader_live:
            self._state.await_election(now, wait_ms)

    def step(self, sender: Voter, session: int, message: Message, now: int) -> None:
        """A message came. One of another session than the present one never counts."""
        s = self._state
        if not is_current(s, sender, session):
            return
        if message.epoch > s.epoch and type(message) in _REPLIES:
            s.follow(message.epoch, None, now, delay_ms=s.settings.rank_ms)
            return
        if message.epoch < s.epoch and type(message) in _STALE:
            _STALE[type(message)](s, sender, message)
            return
        handler = HANDLERS.get((s.role, type(message)))
        if handler is not None:
            handler(s, sender, message, now)

    def tick(self, now: int) -> None:
        """Time passed."""
        s = self._state
        if s.deadline is not None and s.deadline <= now:
            s.deadline = None
            _TICKS[s.role](s, now)

    def peer_changed(self, peer: Voter, now: int) -> None:
        """`Links` says something new about this peer."""
        s = self._state
        _PEERS[s.role](s, peer, now)

    def claimed(self, peer: Voter, epoch: int, now: int) -> None:
        """A peer says that it leads this group in `epoch`: as good as an append."""
        s = self._state
        if epoch > s.epoch or (epoch == s.epoch and s.leading is None):
            s.follow(epoch, peer, now)

    def disclaimed(self, peer: Voter, now: int) -> None:
        """A peer says that it neither leads this group nor follows us in it."""
        s = self._state
        if s.leading is not None:
            leader.disowned(s, peer, now)
        elif peer == s.leader and s.is_leader_live:
            s.lose_leader(now)

    def appended(self, end_offset: int) -> Position:
        """We, the leader, appended records up to here."""
        s = self._state
        assert s.leading is not None, self
        return s.log.appended(end_offset)

    def refused(self, marks: Marks, end_offset: int, log_start: int, now: int) -> None:
        """The disk did not take all that it was told; this is what the log is now."""
        s = self._state
        if (marks, end_offset, log_start) == (s.log.marks, s.log.end.offset, s.log.log_start):
            return
        s.log.refused(marks, end_offset, log_start)
        end = s.log.end
        s.verified = min(s.verified, end)
        if s.leading is not None:
            leader.refused(s, end, now)
        else:
            candidate.refused(s, now)
            self.unable()

    def unable(self) -> None:
        """The disk takes no records now: the leader need not wait for an answer to what it sent."""
        s = self._state
        if s.leading is None and s.leader is not None:
            s.send(s.leader, Nack(s.epoch, s.log.end, s.log.end, is_unable=True))

    def transfer(self, to: Voter, now: int) -> bool:
        """Hand the leadership over; False if that can't be begun."""
        s = self._state
        return s.leading is not None and changing.transfer(s, to, now)

    def resign(self, now: int) -> None:
        """Lead no more, without an heir."""
        if self._state.leading is not None:
            leader.resign(self._state, now)

    def set_target(
        self, voters: tuple[Voter, ...], now: int, observers: tuple[Voter, ...] = ()
    ) -> None:
        """The voters that the metadata want, in order of succession, and mere readers.

        Said to every replica; whoever leads takes one step after the other. Not yet voters: learners.
        """
        s = self._state
        s.target, s.observers = voters, observers
        if s.leading is not None:
            changing.set_target(s, now)

    def request_log_start(self, offset: int, now: int) -> None:
        """Let the log start here, or at the high watermark, once a mark that says so commits."""
        if self._state.leading is not None:
            changing.request_log_start(self._state, offset, now)

    def allow_unclean(self, is_allowed: bool, now: int) -> None:
        """The topic's `unclean.leader.election.enable` changed."""
        s = self._state
        s.is_unclean_allowed = is_allowed
        if s.leading is None and not s.is_leader_live:
            s.hasten_election(now)

    def damaged(self, now: int) -> None:
        """Bytes of the log turned out to be bad: lead and stand no more, take nothing more."""
        s = self._state
        s.is_damaged = True
        if s.leading is not None:
            leader.resign(s, now)
        elif s.standing is not None:
            s.follow(s.epoch, None, now)

    def repaired(self, now: int) -> None:
        """All bytes are good again."""
        s = self._state
        s.is_damaged = False
        s.parting = None
        if s.leading is None and not s.is_leader_live:
            s.hasten_election(now)

    def part(self) -> None:
        """All bytes below `parting` are good: what the leader has not got may go, unrepaired."""
        s = self._state
        assert s.is_damaged, self
        assert s.parting is not None, self
        (position, may_lose), s.parting = s.parting, None
        s.log.cut(position, may_lose=may_lose)
        s.verified = min(s.verified, position)

    def begin_again(self, remembered: Position) -> "RaftCore":
        """A core with an empty log in our place, for one that nobody can repair.

        It keeps what we promised, up to `remembered`, and were told: no vote for a log that ends
        before that, and none while a leader's lease may rest on us.
        """
        s = self._state
        again = RaftCore(
            s.links,
            s.settings,
            s.dice,
            marks=Marks(),
            end_offset=0,
            log_start=0,
            epoch=s.epoch,
            vote=s.vote,
            is_recovering=s.has_lost_tail,
            is_unclean_allowed=s.is_unclean_allowed,
            remembered=remembered,
        )
        state = again._state
        state.target, state.observers = s.target, s.observers
        state.barred_epoch, state.held_until = s.barred_epoch, s.held_until
        state.declined = s.declined
        if s.leader != s.me:
            state.leader, state.is_leader_live = s.leader, s.is_leader_live
        state.unclean_elections, state.log.losses = s.unclean_elections, s.log.losses
        return again

    def hold(self, until: int, now: int) -> None:
        """An operator is about to order who goes on with this group, by what we say now of our log.

        Until then, and no longer than `until`, we stand for nobody, vote for nobody, and
        acknowledge nothing to whoever led before, so that what is acknowledged meanwhile is not
        lost. Not while somebody leads, as far as we know. A restart forgets it.
        """
        s = self._state
        if not s.is_leader_live and not self.is_obeying:
            s.held_until = until
            s.follow(s.epoch + 1, None, now)

    def recover(self, epoch: int, now: int) -> None:
        """Lead in `epoch` as the only voter, by an operator's order; records may be lost.

        The metadata give the epoch out, once: greater than any that the lost voters can have used.
        All other replicas of the group are told with `bar`. One without a log begins an empty one.
        """
        s = self._state
        assert epoch > s.epoch, (epoch, s.epoch)
        s.held_until = 0
        candidate.obey(s, epoch, now)

    def bar(self, epoch: int, now: int) -> None:
        """By an operator's order another replica leads `epoch` as the only voter: ours is the past.

        Said to every other replica, after a restart too, for the metadata remember it. We vote for
        nobody whose log does not descend from that epoch and don't stand until ours does, so that
        those who were lost and come back together do not go on as the group that they were.
        """
        s = self._state
        s.barred_epoch = max(s.barred_epoch, epoch)
        if epoch > s.epoch:
            s.held_until = 0
            s.follow(epoch, None, now)

    # ---- outputs

    def take_writes(self) -> list[Write]:
        """What must be staged on the log now."""
        log = self._state.log
        if not log.writes:
            return []
        writes, log.writes = log.writes, []
        return writes

    def ready(self, now: int) -> Ready:
        """The log began a turn with all that it was told."""
        s = self._state
        assert not s.log.writes, s.log.writes
        s.begin_turn()
        return Ready(self.wants(now), s.has_promises)

    def wants(self, now: int) -> list[Want]:
        """What could be sent now; each want is used once, with `send`, or left."""
        s = self._state
        return leader.wants(s, now) if s.leading is not None else []

    def send(self, want: Want, stop: int, now: int) -> Envelope:
        """The message for a want, with records up to `stop`: it may leave at once."""
        return leader.send(self._state, want, stop, now)

    def durable(self, stable: Position, now: int) -> list[Envelope]:
        """The turn's sync returned and the log is durable up to `stable`; these may leave."""
        s = self._state
        envelopes = s.end_turn()
        before = s.log.durable
        has_moved = s.log.turn_ends(stable)
        s.settle_memory()
        candidate.hard_state_durable(s, now)
        if s.leading is None:
            envelopes += follower.durable(s, now)
        elif has_moved:
            leader.durable(s, before, now)
        return envelopes


# --- which handler --------------------------------------------------------------------------------


def is_current(s: State, sender: Voter, session: int) -> bool:
    """Whether a message of this session may count."""
    return session != 0 and s.links.session(sender) == session


def _refuse_stale_append(s: State, sender: Voter, message: Append) -> None:
    s.send(sender, Nack(s.epoch, message.prev, None, is_unable=False))


def _refuse_stale_reset(s: State, sender: Voter, message: Reset) -> None:
    s.send(sender, Nack(s.epoch, message.position, None, is_unable=False))


def _refuse_stale_pre_vote(s: State, sender: Voter, message: PreVote) -> None:
    s.send(sender, PreVoteReply(s.epoch, message.epoch, Refusal.EPOCH, s.has_lost_tail))


def _refuse_stale_vote(s: State, sender: Voter, message: Vote) -> None:
    s.send(sender, VoteReply(s.epoch, message.epoch, Refusal.EPOCH, s.has_lost_tail))


_REPLIES = frozenset({PreVoteReply, VoteReply, Ack, Nack})
"""A greater epoch in one of these only says that we are late."""

_STALE: dict[type, Callable[[State, Voter, Any], None]] = {
    Append: _refuse_stale_append,
    Reset: _refuse_stale_reset,
    PreVote: _refuse_stale_pre_vote,
    Vote: _refuse_stale_vote,
}
"""Questions of an older epoch: whoever asks learns of ours."""

Handler = Callable[[State, Voter, Any, int], None]

_ALL: dict[type, Handler] = {PreVote: voting.on_pre_vote, Vote: voting.on_vote}
_FOLLOW: dict[type, Handler] = {
    **_ALL,
    Append: follower.on_append,
    Reset: follower.on_reset,
    TimeoutNow: candidate.on_timeout_now,
}
_BY_ROLE: dict[Role, dict[type, Handler]] = {
    Role.FOLLOWER: _FOLLOW,
    Role.PRE_CANDIDATE: {**_FOLLOW, PreVoteReply: candidate.on_pre_vote_reply},
    Role.CANDIDATE: {**_FOLLOW, VoteReply: candidate.on_vote_reply},
    Role.LEADER: {
        **_ALL,
        Append: follower.on_append,  # Of a greater epoch; of our own it is a broken promise.
        Reset: follower.on_reset,
        Ack: leader.on_ack,
        Nack: leader.on_nack,
        TimeoutNow: changing.on_handed_back,
    },
}
HANDLERS: dict[tuple[Role, type], Handler] = {
    (role, kind): handler for role, own in _BY_ROLE.items() for kind, handler in own.items()
}
"""What is not in here is ignored: an answer to a question that we no longer ask."""

_TICKS: dict[Role, Callable[[State, int], None]] = {
    Role.FOLLOWER: follower.tick,
    Role.PRE_CANDIDATE: candidate.tick,
    Role.CANDIDATE: candidate.tick,
    Role.LEADER: leader.tick,
}
_PEERS: dict[Role, Callable[[State, Voter, int], None]] = {
    Role.FOLLOWER: follower.peer_changed,
    Role.PRE_CANDIDATE: candidate.peer_changed,
    Role.CANDIDATE: candidate.peer_changed,
    Role.LEADER: leader.peer_changed,
}
