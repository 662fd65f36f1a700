"""Marks in the middle of an epoch: voters and log start change; the leadership is handed over.

One change at a time (the rule CHANGE), one voter more or less with each, and never the leader itself:
it hands over first. membership.py says which step comes next; this module writes it down when it is
allowed. Called by leader.py when something was committed, a peer changed or time passed.
"""

from dmq.raft import membership
from dmq.raft.leading import (
    Handover,
    check_quorum,
    durable_end,
    leading_of,
    reschedule,
    set_followers,
)
from dmq.raft.membership import ChangeVoters, HandOver
from dmq.raft.messages import TimeoutNow
from dmq.raft.state import State
from dmq.raft.view import position_of
from dmq.types import Mark, Voter

HANDOVER_REST = 10
"""An heir that did not take over is not chosen again for so many times `transfer_ms`: one that can't
stand must not keep producers waiting for ever."""


def may_change(s: State) -> bool:
    """CHANGE: our own mark is committed, and so is every change (Ongaro's erratum of 2015)."""
    return s.log.commit.epoch == s.epoch and position_of(s.log.marks.last) <= s.log.commit


def take_next_step(s: State, now: int) -> None:
    """Move the log start or the membership on by one mark, if one is wanted and allowed."""
    leading = leading_of(s)
    is_member = s.me in s.voters
    has_voters = is_member and (not s.target or s.target == s.voters)
    if leading.wanted_start <= s.log.log_start and has_voters:
        return
    if not may_change(s) or leading.handover is not None:
        return
    if leading.wanted_start > s.log.log_start and is_member:
        _add_change(s, s.voters, leading.wanted_start, now)
    else:
        _step_to_target(s, now)


def _step_to_target(s: State, now: int) -> None:
    step = membership.next_step(
        s.me, s.voters, s.target, lambda v: _is_ready(s, v, now), s.links.is_live
    )
    if isinstance(step, ChangeVoters):
        change_voters(s, step.voters, now)
    elif isinstance(step, HandOver):
        heirs = [v for v in step.to if not has_failed(s, v, now)]
        if heirs:
            transfer(s, max(heirs, key=lambda v: durable_end(s, v)), now)


def _is_ready(s: State, learner: Voter, now: int) -> bool:
    """Whether it may vote. Who was silent is asked first what it has, and its answer makes the step."""
    progress, settings = leading_of(s).followers.get(learner), s.settings
    if progress is None or not progress.is_ready_to_vote(now, settings.promote_ms):
        return False
    if progress.has_spoken(now, settings.turn_ms):
        return True
    if not progress.is_owed:
        progress.retry(now)
    return False


def change_voters(s: State, voters: tuple[Voter, ...], now: int) -> None:
    assert may_change(s), (s.log.commit, s.log.marks.last)
    assert membership.is_single_step(s.voters, voters), (s.voters, voters)
    assert s.me in voters, "a leader hands over before it removes itself"
    _add_change(s, voters, s.log.marks.last.log_start, now)


def _add_change(s: State, voters: tuple[Voter, ...], log_start: int, now: int) -> None:
    end = s.log.end
    s.log.add_mark(Mark(s.epoch, end.change + 1, end.offset, voters, log_start))
    set_followers(s, s.log.begun, now)
    check_quorum(s, now)


def set_target(s: State, now: int) -> None:
    set_followers(s, s.log.begun, now)
    take_next_step(s, now)


def request_log_start(s: State, offset: int, now: int) -> None:
    leading = leading_of(s)
    leading.wanted_start = max(leading.wanted_start, min(offset, s.log.commit.offset))
    take_next_step(s, now)


def transfer(s: State, to: Voter, now: int) -> bool:
    """Hand the leadership to a live voter: it catches up, then stands at once (thesis 3.10).

    Producers go on until it has what is committed: one that was just started, of which nothing is
    known yet, would keep them waiting.
    """
    leading = leading_of(s)
    if leading.handover is not None or to == s.me or to not in s.voters:
        return False
    if not s.links.is_live(to):
        return False
    leading.handover = Handover(to, now + s.settings.transfer_ms)
    reschedule(s, now)
    hand_over(s, now)
    return True


def expire_handover(s: State, now: int) -> None:
    handover = leading_of(s).handover
    if handover is not None and handover.until <= now:
        _give_up(s, handover.to, now)


def on_handed_back(s: State, sender: Voter, message: TimeoutNow, now: int) -> None:
    """The heir can't stand (bad disk, damage, recovering): serve again at once, with our lease.

    Only its own word counts, and only in the session in which it was told: then this is all that became
    of what we said.
    """
    leading = leading_of(s)
    if message.epoch != s.epoch or message.number not in leading.told:
        return
    if leading.told[message.number] != (sender, s.links.session(sender)):
        return
    del leading.told[message.number]
    if leading.handover is not None and leading.handover.number == message.number:
        _give_up(s, sender, now)
        take_next_step(s, now)
        reschedule(s, now)


def _give_up(s: State, heir: Voter, now: int) -> None:
    leading = leading_of(s)
    leading.failed_heirs[heir] = now + HANDOVER_REST * s.settings.transfer_ms
    _end_handover(s)


def _end_handover(s: State) -> None:
    """Serve again. What only waits for our sync is not said any more: the heir would stand now."""
    leading = leading_of(s)
    leading.handover = None
    for unsaid in s.take_back(TimeoutNow):
        if isinstance(unsaid, TimeoutNow) and unsaid.epoch == s.epoch:
            leading.told.pop(unsaid.number, None)


def has_failed(s: State, heir: Voter, now: int) -> bool:
    """Whether it did not take over lately: who has a choice chooses another, or none."""
    return leading_of(s).failed_heirs.get(heir, now) > now


def heir_changed(s: State, peer: Voter) -> None:
    """An heir that can't be heard any more inherits nothing."""
    handover = leading_of(s).handover
    if handover is not None and handover.to == peer and not s.links.is_live(peer):
        _end_handover(s)


def hand_over(s: State, now: int) -> None:
    leading = leading_of(s)
    handover = leading.handover
    if handover is None or handover.is_sent:
        return
    heir_end = durable_end(s, handover.to)
    if heir_end >= s.log.commit:
        leading.handover = handover = handover._replace(is_closed=True)
    if handover.is_closed and heir_end == s.log.end:
        leading.told_count = number = leading.told_count + 1
        leading.handover = handover._replace(number=number)
        leading.told[number] = (handover.to, s.links.session(handover.to))
        s.send(handover.to, TimeoutNow(s.epoch, number))
