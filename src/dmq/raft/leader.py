"""Leading: sending the log to each follower, committing what a majority has, staying honest.

Owns the rules WRITE, PROBE, COMMIT and RESET on the leader's side, and check-quorum. Sends nothing by
itself: the caller asks what each follower wants, reads the bytes, and takes the message. A leader never
cuts its own log. Called by core.py; changes of voters and handovers are in changing.py.
"""

from typing import NamedTuple

from dmq.raft import changing
from dmq.raft.leading import (
    Leading,
    check_quorum,
    durable_end,
    leading_of,
    reschedule,
    set_followers,
)
from dmq.raft.messages import Ack, Append, Envelope, Nack, Reset
from dmq.raft.progress import Pace, Progress
from dmq.raft.quorum import NOTHING, majority_has
from dmq.raft.state import Role, State
from dmq.raft.view import LogView, position_of
from dmq.types import Mark, Position, Voter


class Want(NamedTuple):
    """Something can be sent to this follower: records from `start` up to `stop`, if any."""

    to: Voter
    start: int
    stop: int
    is_reset: bool


# --- becoming and ceasing -------------------------------------------------------------------------


def lead(s: State, voters: tuple[Voter, ...], now: int, *, is_unclean: bool) -> None:
    """Won: the first act is the epoch's mark (WRITE).

    `is_unclean`: voters that may have lost acknowledged records took part, or an operator's order.
    """
    s.role = Role.LEADER
    s.standing = None
    s.leader, s.is_leader_live = s.me, True
    s.leaderless_since = None
    s.attempts = 0
    # Our log is what the group has from now on, so there is nothing left to recover.
    s.has_lost_tail, s.heal_goal = False, None
    s.unclean_elections += is_unclean
    start = s.log.end
    log_start = s.log.marks.last.log_start if s.log.marks.items else 0
    # An epoch that may have lost something begins with change 1, and is known by that for ever.
    mark = Mark(s.epoch, int(is_unclean), start.offset, voters, log_start)
    s.leading = Leading(mark)
    s.log.add_mark(mark)
    set_followers(s, start, now)
    check_quorum(s, now)


def resign(s: State, now: int) -> None:
    """Lead no more; the epoch stays, and nobody else can lead it."""
    s.follow(s.epoch, None, now, delay_ms=s.settings.rank_ms)


# --- sending --------------------------------------------------------------------------------------


def wants(s: State, now: int) -> list[Want]:
    """What can be sent now, of what the log has begun to write."""
    leading, log, window = leading_of(s), s.log, s.settings.window
    found = []
    for replica, progress in leading.followers.items():
        if not progress.may_send(window, now) or not progress.wants(log.begun, log.commit):
            continue
        if log.begun < position_of(leading.mark):
            continue  # Our own mark goes first.
        if log.is_below_start(progress.next) or progress.pace is Pace.RESET:
            found.append(Want(replica, log.log_start, log.log_start, is_reset=True))
        else:
            found.append(Want(replica, progress.next.offset, log.begun.offset, is_reset=False))
    return found


def send(s: State, want: Want, stop: int, now: int) -> Envelope:
    """The message for a want; `stop`: how far the caller could read whole batches."""
    leading = leading_of(s)
    progress = leading.followers[want.to]
    message = _reset(s, progress, now) if want.is_reset else _append(s, progress, stop, now)
    if leading.retry_at is None and progress.is_owed:
        leading.retry_at = now + s.settings.retry_ms
        reschedule(s, now)
    return Envelope(want.to, progress.session, message)


def _reset(s: State, progress: Progress, now: int) -> Reset:
    log = s.log
    message = Reset(s.epoch, log.marks.base, log.log_start, log.begun, log.unclean_epoch)
    progress.begin_reset(now)
    progress.sent_reset(message.position, now)
    return message


def _append(s: State, progress: Progress, stop: int, now: int) -> Append:
    log, prev = s.log, progress.next
    assert prev.offset <= stop <= log.begun.offset, (prev, stop, log.begun)
    marks = _marks_between(log, prev, stop)
    last = marks[-1] if marks else prev
    end = Position(last.epoch, last.change, stop)
    wants_ack = progress.sent(end, log.commit, now)
    leading_of(s).sent_end = max(leading_of(s).sent_end, end)
    return Append(s.epoch, prev, marks, end, log.begun, log.commit, wants_ack, log.unclean_epoch)


def _marks_between(log: LogView, prev: Position, stop: int) -> tuple[Mark, ...]:
    """The marks after `prev` that an append up to `stop` carries."""
    first, last = prev[:2], log.begun[:2]
    if first == last:
        return ()
    return tuple(m for m in log.marks if first < m[:2] <= last and m.offset <= stop)


# --- answers --------------------------------------------------------------------------------------


def on_ack(s: State, sender: Voter, message: Ack, now: int) -> None:
    progress = leading_of(s).followers.get(sender)
    if progress is None or message.epoch != s.epoch:
        return
    assert message.end <= s.log.end, (message, s.log.end)
    if progress.acked(message.end, now):
        progress.note_caught_up(s.log.durable, now)
        if message.end > s.log.commit:
            advance_commit(s, now)
    if progress.is_learner:
        progress.measure_round(s.log.end, now, s.settings.turn_ms)
        changing.take_next_step(s, now)
        reschedule(s, now)
    changing.hand_over(s, now)


def on_nack(s: State, sender: Voter, message: Nack, now: int) -> None:
    """Probe where both logs may agree; below our first position, only a reset helps (PROBE)."""
    progress = leading_of(s).followers.get(sender)
    if progress is None or message.epoch != s.epoch:
        return
    progress.follows = True
    if message.is_unable:
        progress.pause(now + s.settings.retry_ms, now)
        reschedule(s, now)
        return
    if not progress.expects_nack(message.prev):
        return
    floor = s.log.floor(message.floor) if message.floor is not None else None
    if floor is None or s.log.is_below_start(floor):
        progress.begin_reset(now)
    else:
        progress.probe(floor, now)


def durable(s: State, before: Position, now: int) -> None:
    """Our own durable end moved on from `before`; it counts like any voter's."""
    for progress in leading_of(s).followers.values():
        progress.note_caught_up(before, now)
    advance_commit(s, now)


def refused(s: State, end: Position, now: int) -> None:
    """Our disk did not take what we appended beyond `end`, and the log has dropped it.

    If our own mark is gone, or a follower was sent some of it, these positions must not be used
    again in this epoch.
    """
    leading = leading_of(s)
    if end < position_of(leading.mark) or end < leading.sent_end:
        resign(s, now)
        return
    for progress in leading.followers.values():
        if progress.next > end:
            progress.probe(s.log.begun, now)
    set_followers(s, s.log.begun, now)  # A change of voters may be among what was dropped.
    check_quorum(s, now)
    changing.hand_over(s, now)  # The heir may have all that is left.


# --- committing -----------------------------------------------------------------------------------


def advance_commit(s: State, now: int) -> None:
    """Commit what a majority has durably (COMMIT), then take the steps that waited for it."""
    end = majority_has([durable_end(s, voter) for voter in s.voters])
    if may_commit(s, end) and s.log.commit_to(end):
        changing.take_next_step(s, now)


def may_commit(s: State, end: Position) -> bool:
    """Only a position of our own epoch: an older one may yet be overwritten (Raft §5.4.2)."""
    return end.epoch == s.epoch


def in_sync(s: State, now: int, lag_ms: int) -> tuple[Voter, ...]:
    """The ISR (SPEC §4): us, and voters that can be heard and were at our durable end lately."""
    return tuple(voter for voter in s.voters if voter == s.me or _is_in_sync(s, voter, now, lag_ms))


def _is_in_sync(s: State, voter: Voter, now: int, lag_ms: int) -> bool:
    progress = leading_of(s).followers.get(voter)
    if progress is None or not s.links.is_live(voter):
        return False
    return progress.is_in_sync(s.log.durable, now, lag_ms)


# --- peers and time -------------------------------------------------------------------------------


def peer_changed(s: State, peer: Voter, now: int) -> None:
    progress = leading_of(s).followers.get(peer)
    if progress is None:
        return
    session = s.links.session(peer)
    if not session:
        progress.end_session(now)
    elif session != progress.session:
        progress.begin_session(session, s.log.begun, now)
    changing.heir_changed(s, peer)
    check_quorum(s, now)
    changing.take_next_step(s, now)


def disowned(s: State, peer: Voter, now: int) -> None:
    """A live follower does not know us: remind it, and don't count it until it answers."""
    progress = leading_of(s).followers.get(peer)
    if progress is not None:
        progress.follows = False
        progress.probe(s.log.begun if progress.match == NOTHING else progress.match, now)
        check_quorum(s, now)


def tick(s: State, now: int) -> None:
    leading, settings = leading_of(s), s.settings
    check_quorum(s, now)
    lost_at = leading.quorum_lost_at
    if lost_at is not None and now - lost_at >= settings.check_quorum_ms:
        resign(s, now)
        return
    changing.expire_handover(s, now)
    _retry_owed(s, now)
    for progress in leading.followers.values():
        if progress.is_learner:
            progress.measure_round(s.log.end, now, settings.turn_ms)
    changing.take_next_step(s, now)
    reschedule(s, now)


def _retry_owed(s: State, now: int) -> None:
    leading, retry_ms = leading_of(s), s.settings.retry_ms
    leading.retry_at = None
    for progress in leading.followers.values():
        if progress.is_owed and now - progress.owed_since >= retry_ms:
            progress.retry(now)
        if progress.is_owed:
            at = progress.owed_since + retry_ms
            leading.retry_at = at if leading.retry_at is None else min(at, leading.retry_at)
