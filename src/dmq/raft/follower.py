"""Following: taking the leader's log, answering for it when it is durable, noticing that nobody leads.

Owns the rules APPEND, RESET and ACK on the follower's side, and when a replica that lost its tail is well
again. An answer to an append is made when the sync returns, from what is true then: the log may have
been cut meanwhile. A learner and an observer are followers without a vote. Called by core.py's table.
"""

from dmq.raft import candidate
from dmq.raft.messages import Ack, Append, Envelope, Nack, Reset
from dmq.raft.quorum import NOTHING
from dmq.raft.state import State
from dmq.types import Position, Voter


def on_append(s: State, sender: Voter, message: Append, now: int) -> None:
    s.follow(message.epoch, sender, now)
    log = s.log
    if not log.has(message.prev):
        floor = log.floor(message.prev)
        if floor is None and log.marks.items:
            floor = log.commit  # Nothing of ours lies in between; this much is common.
        s.send(sender, Nack(s.epoch, message.prev, floor, is_unable=False))
        return
    if s.is_damaged:
        _look_only(s, sender, message)
        return
    if not log.join(message.prev, message.marks, message.end, message.unclean_epoch):
        s.send(sender, Nack(s.epoch, message.prev, None, is_unable=False))
        return
    _verify(s, message.end, message.leader_end, is_ack_due=message.wants_ack)
    s.told_commit = max(s.told_commit, min(message.commit, message.end))
    _commit_told(s)


def _look_only(s: State, sender: Voter, message: Append) -> None:
    """We know our positions but not all of their bytes: nothing is taken or promised.

    What the leader has not got is not worth repairing: remember where our log parts from it.
    """
    log, prev, unclean_epoch = s.log, message.prev, message.unclean_epoch
    if log.is_only_reset_left(prev, message.end, unclean_epoch):
        s.send(sender, Nack(s.epoch, prev, None, is_unable=False))
        return
    parting = log.parting(prev, message.marks, message.end)
    if parting is not None:
        s.parting = (parting, log.is_lost_to(unclean_epoch))
    s.send(sender, Nack(s.epoch, prev, prev, is_unable=True))


def on_reset(s: State, sender: Voter, message: Reset, now: int) -> None:
    """Only for a log that is behind the leader's first position in all that it has committed."""
    s.follow(message.epoch, sender, now)
    log, start = s.log, message.position
    is_lost = log.is_lost_to(message.unclean_epoch) and bool(log.marks.items)
    if log.marks.items and log.commit >= start and not is_lost:
        s.send(sender, Nack(s.epoch, start, log.commit, is_unable=False))
        return
    has_mark = any(m[:2] == start[:2] for m in log.marks)
    if not (has_mark and log.log_start <= start.offset and log.has(start)):
        log.losses += is_lost
        log.reset(message.base, message.log_start)
        s.is_damaged = False
        s.parting = None
        s.verified = s.acked = NOTHING
    _verify(s, start, message.leader_end, is_ack_due=True)


def _verify(s: State, end: Position, leader_end: Position, *, is_ack_due: bool) -> None:
    """Our log is the leader's up to `end`: to be acknowledged when it is durable."""
    s.verified = max(s.verified, end)
    s.ack_is_due = s.ack_is_due or is_ack_due
    if s.has_lost_tail and (s.heal_goal is None or s.heal_goal[0] != s.epoch):
        s.heal_goal = (s.epoch, healing_end(leader_end, s))


def healing_end(leader_end: Position, s: State) -> Position:
    """What one that lost its tail must reach: all that it can ever have acknowledged (SPEC §3)."""
    return leader_end


def _commit_told(s: State) -> None:
    """Commit what the leader has, as far as our disk has it: what it may yet refuse is not shown."""
    s.log.commit_to(min(s.told_commit, s.log.durable))


def durable(s: State, now: int) -> list[Envelope]:
    """A sync returned: acknowledge what is durable AND still the leader's (ACK)."""
    _heal(s)
    _commit_told(s)
    leader = s.leader
    if leader is None or leader == s.me:
        return []
    end = min(s.verified, s.log.durable)
    is_complete = end == s.verified
    if end <= s.acked and not (s.ack_is_due and is_complete):
        return []
    s.acked = end
    s.ack_is_due = s.ack_is_due and not is_complete
    session = s.links.session(leader)
    return [Envelope(leader, session, Ack(s.epoch, ack_position(end, s)))] if session else []


def ack_position(end: Position, s: State) -> Position:
    """A position, not an offset: two marks at one offset are two promises."""
    return end


def _heal(s: State) -> None:
    """Well again: the log has durably what the leader's had after our restart."""
    if s.has_lost_tail and s.heal_goal is not None:
        epoch, goal = s.heal_goal
        if epoch == s.epoch and s.log.durable >= goal and s.log.has(goal):
            s.has_lost_tail = False
            s.heal_goal = None


def peer_changed(s: State, peer: Voter, now: int) -> None:
    if peer == s.leader:
        _leader_link_changed(s, now)
    elif not s.is_leader_live and not _somebody_tries(s):
        s.rank_anew(now)


def _somebody_tries(s: State) -> bool:
    """Whether a live candidate has our vote, and we wait for it to win."""
    if s.deadline is None or s.vote is None or s.vote == s.me:
        return False
    return s.leader is None and s.links.is_live(s.vote)


def _leader_link_changed(s: State, now: int) -> None:
    assert s.leader is not None
    is_live = s.links.is_live(s.leader)
    if is_live and not s.is_leader_live:
        s.follow(s.epoch, s.leader, now)  # Unless it disclaims the group, it goes on leading it.
    elif s.is_leader_live and not is_live:
        s.lose_leader(now)


def tick(s: State, now: int) -> None:
    if not s.is_leader_live:
        candidate.begin(s, now)
