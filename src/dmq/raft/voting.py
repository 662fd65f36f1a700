"""How a voter answers, whatever its role: the rule VOTE.

A voter answers whoever asks; it does not look into its own voter list. Nothing is written for a
pre-vote. A vote is hard state, and its reply leaves when that is durable. While the link to its leader
lives and the leader claims the group, a voter gives neither, unless the leader itself asked for the
election: so a cut-off broker that comes back disturbs nobody, and a leader's lease can be relied on.
Nor does one that is held for an operator's order.

Who left the group and is back, or began again, compares with the end of its former log too, as if it
still had it: whatever of that was committed is in any log that ends there or later. Epoch and vote it
kept. So its vote is as good as any.

Who lost its tail may have lost marks with it, and then names voters that are long gone. A candidate whose
marks go further judges for both whether all are there, for it counts such a vote only if all of its
voters give theirs; but only if its list leaves nobody out. A mark that takes a voter away and is not
known to be committed may: with that voter, and us, another leader may have gone on.

Called by core.py's table; candidates' side is in candidate.py.
"""

from dmq.raft.messages import PreVote, PreVoteReply, Refusal, Vote, VoteReply
from dmq.raft.state import Role, State
from dmq.raft.view import LogView
from dmq.types import Position, Voter


def election_end(log: LogView) -> Position:
    """The position that a voter compares and a candidate shows: the end, marks included."""
    return log.end


def is_up_to_date(candidate_end: Position, own_end: Position) -> bool:
    """Raft §5.4.1 in one comparison: tuple order is log order."""
    return candidate_end >= own_end


def on_pre_vote(s: State, sender: Voter, message: PreVote, now: int) -> None:
    if sender == s.leader and message.epoch > s.epoch:
        s.lose_leader(now)  # It would not ask if it still led.
    refusal = _refusal(s, sender, message, now)
    if s.has_lease(sender) or now < s.held_until:
        refusal = Refusal.LEASE
    s.send(sender, PreVoteReply(s.epoch, message.epoch, refusal, s.has_lost_tail))
    if refusal is Refusal.LOG:
        _stand_instead(s, sender, now)


def on_vote(s: State, sender: Voter, message: Vote, now: int) -> None:
    is_led = s.has_lease(sender) and not message.is_transfer and message.epoch > s.epoch
    if is_led or now < s.held_until:
        s.send(sender, VoteReply(s.epoch, message.epoch, Refusal.LEASE, s.has_lost_tail))
        return
    if message.epoch > s.epoch:
        s.follow(message.epoch, None, now)
    refusal = _refusal(s, sender, message, now)
    if refusal is None:
        if s.vote is None:
            s.set_hard(s.epoch, sender)
        _let_it_try(s, now)
    s.send(sender, VoteReply(s.epoch, message.epoch, refusal, s.has_lost_tail))
    if refusal is Refusal.LOG:
        _stand_instead(s, sender, now)


def _refusal(s: State, sender: Voter, message: PreVote | Vote, now: int) -> Refusal | None:
    epoch, end = message.epoch, message.end
    if epoch < s.epoch:
        return Refusal.EPOCH
    if epoch == s.epoch and s.vote not in (None, sender):
        return Refusal.VOTED
    if s.is_barred and end.epoch < s.barred_epoch:
        return Refusal.BARRED
    if not is_up_to_date(end, election_end(s.log)):
        return Refusal.LOG
    if not is_well_enough(s, end, message.is_settled, now):
        return Refusal.RECOVERING
    return None


def is_well_enough(s: State, end: Position, is_settled: bool, now: int) -> bool:
    """Who may have lost what it acknowledged gives no vote, unless all voters are there (§3); who left
    and is back gives none to a log that ends before its former one did."""
    return s.is_good_vote(end) or s.may_recovering_vote(end, now, is_settled=is_settled)


def _let_it_try(s: State, now: int) -> None:
    """It has our vote: do not stand against it for a while."""
    if s.role is Role.PRE_CANDIDATE:
        s.role = Role.FOLLOWER
        s.standing = None
    if s.role is Role.FOLLOWER and not s.is_leader_live:
        s.deadline = now + s.retry_delay()


def _stand_instead(s: State, sender: Voter, now: int) -> None:
    """The one who asks can't win against our log; do not let the group wait for it."""
    if s.role is Role.FOLLOWER and not s.is_leader_live:
        s.is_needed = True
        s.hasten_election(now, without=sender)
