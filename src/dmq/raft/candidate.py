"""Asking for votes: pre-vote first, then the vote itself.

    canvass   ask all voters whether they would vote for us in the next epoch; nothing is written
    stand     take the next epoch, vote for ourselves, ask for votes
    obey      take the epoch that an operator's order gives us, ask nobody

Our own vote counts when it is durable, like any other: a single voter would otherwise lead an epoch that
it forgets in a crash, and lead it again with another log. Votes of voters that lost their tail count only
if every voter gives its vote (then no greater position is left anywhere), or, where the topic allows
unclean elections, after a long wait.

Who stands need not have a vote of its own. What is left of a recovering replica's log is the beginning of
one that was, and so is a learner's: if a majority of well voters has nothing beyond its end, all that
was committed is in it. It may be the only one that can win, for a change of voters that is half
written makes the others refuse each other. A learner stands only if somebody who took it for a
voter asked it in vain, and hands over as soon as it leads (membership.py).

Called by core.py and follower.py.
"""

from dmq.raft import leader
from dmq.raft.messages import PreVote, PreVoteReply, Refusal, TimeoutNow, Vote, VoteReply
from dmq.raft.quorum import Tally, majority, tally
from dmq.raft.state import Role, State
from dmq.raft.voting import election_end
from dmq.types import Voter

LEASE_ATTEMPTS = 10
"""So often a refusal for a lease is asked about again soon. Whose leader lives on for the others, because
only our own link to it is down, asks at the usual pace from then on: there may be thousands of groups."""


class Standing:
    """What a candidate or pre-candidate knows."""

    __slots__ = ("grants", "is_ordered", "is_transfer", "refusals")

    def __init__(self, *, is_transfer: bool = False, is_ordered: bool = False) -> None:
        self.grants: dict[Voter, bool] = {}
        """Who gave its vote, and whether it is well."""
        self.refusals: dict[Voter, Refusal] = {}
        self.is_transfer = is_transfer
        self.is_ordered = is_ordered
        """An operator wants us to be the only voter."""


def canvass(s: State, now: int) -> None:
    """Ask whether we could win (Raft thesis 9.6)."""
    s.role = Role.PRE_CANDIDATE
    s.attempts += 1
    s.standing = Standing()
    s.standing.grants[s.me] = is_own_vote_good(s)
    for voter in s.voters:
        if voter != s.me:
            _ask(s, voter)
    s.deadline = now + s.retry_delay()
    _count_pre_votes(s, now)


def stand(s: State, now: int, *, is_transfer: bool = False) -> None:
    """Begin an election in the next epoch."""
    assert s.voters, s.me
    s.leading = None
    s.set_hard(s.epoch + 1, s.me)
    s.role = Role.CANDIDATE
    s.standing = Standing(is_transfer=is_transfer)
    if s.leaderless_since is None:
        s.leaderless_since = now
    for voter in s.voters:
        if voter != s.me:
            _ask(s, voter)
    s.deadline = now + s.retry_delay()


def obey(s: State, epoch: int, now: int) -> None:
    """Lead this epoch as the only voter, by order; as soon as that can't be forgotten."""
    s.follow(epoch, None, now)
    s.set_hard(epoch, s.me)
    s.role = Role.CANDIDATE
    s.standing = Standing(is_ordered=True)
    s.deadline = None


def refused(s: State, now: int) -> None:
    """The disk did not take all of the log whose end we show: whoever votes for that elects another
    one. What others committed may be what we lost, so we don't lead what is left in this epoch."""
    if s.standing is None or s.standing.is_ordered:
        return
    s.take_back(PreVote, Vote)
    s.follow(s.epoch, None, now)


def hard_state_durable(s: State, now: int) -> None:
    """A sync returned; our own vote counts if it is the one that was synced."""
    if s.role is not Role.CANDIDATE or s.hard_durable != (s.epoch, s.me):
        return
    assert s.standing is not None
    if s.standing.is_ordered:
        leader.lead(s, (s.me,), now, is_unclean=True)
        return
    s.standing.grants[s.me] = is_own_vote_good(s)
    _count_votes(s, now)


def on_pre_vote_reply(s: State, sender: Voter, message: PreVoteReply, now: int) -> None:
    if message.asked_epoch == s.epoch + 1 and _note(s, sender, message, now):
        _count_pre_votes(s, now)


def on_vote_reply(s: State, sender: Voter, message: VoteReply, now: int) -> None:
    if message.asked_epoch == s.epoch and _note(s, sender, message, now):
        _count_votes(s, now)


def on_timeout_now(s: State, sender: Voter, message: TimeoutNow, now: int) -> None:
    """The leader hands over to us: no pre-vote, its lease does not count. If we can't, it is told, and
    relies on it: whatever comes twice, we don't stand for this any more."""
    if s.epoch != message.epoch or s.leader != sender or message <= s.declined:
        return
    if s.may_stand(now) and s.is_vote_good and s.links.is_fit:
        stand(s, now, is_transfer=True)
    else:
        s.declined = message
        s.send(sender, message)


def peer_changed(s: State, peer: Voter, now: int) -> None:
    """A voter that came (back) is asked; its answer to our first question is void."""
    assert s.standing is not None
    if s.standing.is_ordered:
        return
    if peer in s.voters and s.links.is_live(peer) and peer not in s.standing.grants:
        s.standing.refusals.pop(peer, None)
        _ask(s, peer)


def tick(s: State, now: int) -> None:
    """Nobody won in time, or a lease may have run out since: begin again."""
    begin(s, now)


def begin(s: State, now: int) -> None:
    """Canvass if we may stand and a majority can hear us; a single voter need not ask itself."""
    if not s.may_stand(now) or len(s.live_voters()) < majority(len(s.voters)):
        s.role = Role.FOLLOWER
        s.standing = None
        s.await_election(now)
    elif s.voters == (s.me,):
        stand(s, now)
    else:
        canvass(s, now)


def is_own_vote_good(s: State) -> bool:
    """Whether it counts towards a majority of those who forgot nothing."""
    return s.is_vote_good


def _ask(s: State, voter: Voter) -> None:
    assert s.standing is not None
    end, is_settled = election_end(s.log), s.log.are_voters_settled
    if s.role is Role.PRE_CANDIDATE:
        s.send(voter, PreVote(s.epoch + 1, end, is_settled))
    else:
        s.send(voter, Vote(s.epoch, end, s.standing.is_transfer, is_settled))


def _note(s: State, sender: Voter, reply: PreVoteReply | VoteReply, now: int) -> bool:
    """Write an answer down; False if the election is over for us."""
    assert s.standing is not None
    if reply.refusal is None:
        s.standing.grants[sender] = not reply.is_recovering
        return True
    s.standing.refusals[sender] = reply.refusal
    if reply.refusal is Refusal.LEASE and s.role is Role.PRE_CANDIDATE:
        if s.attempts <= LEASE_ATTEMPTS:
            retry_at = now + s.settings.lease_retry_ms
            s.deadline = retry_at if s.deadline is None else min(s.deadline, retry_at)
        return True
    if _tally(s).is_lost:
        s.role = Role.FOLLOWER
        s.standing = None
        s.deadline = now + s.retry_delay()
        return False
    return True


def _count_pre_votes(s: State, now: int) -> None:
    if _is_elected(s, now):
        stand(s, now)


def _count_votes(s: State, now: int) -> None:
    assert s.standing is not None
    if s.me in s.standing.grants and _is_elected(s, now):
        leader.lead(s, s.voters, now, is_unclean=not _tally(s).is_won)


def _is_elected(s: State, now: int) -> bool:
    votes = _tally(s)
    if votes.is_won or votes.is_unanimous:
        return True
    return votes.has_majority and s.is_unclean_allowed and _waited_long(s, now)


def _waited_long(s: State, now: int) -> bool:
    since = s.leaderless_since
    return since is not None and now - since >= s.settings.unclean_wait_ms


def _tally(s: State) -> Tally:
    assert s.standing is not None
    return tally(s.voters, s.standing.grants, s.standing.refusals)
