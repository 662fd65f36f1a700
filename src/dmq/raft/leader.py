"""Leading: sending the log to each follower, committing what a majority has, staying honest.

Owns the rules WRITE, PROBE, COMMIT, CHANGE and RESET on the leader's side, check-quorum, transfers
and the leader's part of membership. Sends nothing by itself: the caller asks what each follower wants,
reads the bytes, and takes the message. Called by core.py; a leader never cuts its own log.
"""

from typing import NamedTuple

from dmq.raft import membership
from dmq.raft.membership import ChangeVoters, HandOver
from dmq.raft.messages import Ack, Append, Envelope, Nack, Reset, TimeoutNow
from dmq.raft.progress import Pace, Progress
from dmq.raft.quorum import NOTHING, majority, majority_has
from dmq.raft.state import Role, State
from dmq.raft.view import position_of
from dmq.types import Mark, Position, Voter


class Want(NamedTuple):
    """Something can be sent to this follower: records from `start` up to `stop`, if any."""

    to: Voter
    start: int
    stop: int
    is_reset: bool


class Handover(NamedTuple):
    """A leadership transfer under way."""

    to: Voter
    until: int
    is_sent: bool


class Leading:
    """What only a leader knows."""

    __slots__ = ("followers", "handover", "mark", "quorum_lost_at", "retry_at", "wanted_start")

    def __init__(self, mark: Mark) -> None:
        self.mark = mark
        """The one that began this epoch."""
        self.followers: dict[Voter, Progress] = {}
        self.quorum_lost_at: int | None = None
        self.retry_at: int | None = None
        """When to look for followers that owe an answer."""
        self.handover: Handover | None = None
        self.wanted_start = 0
        """Where the log shall start as soon as a mark may say so."""

    @property
    def is_handing_over(self) -> bool:
        """The heir was told to stand: our lease is void."""
        return self.handover is not None and self.handover.is_sent


# --- becoming and ceasing -------------------------------------------------------------------------


def lead(s: State, now: int, *, is_unclean: bool = False) -> None:
    """Won: the first act is the epoch's mark (WRITE)."""
    begin(s, s.voters, now)
    if is_unclean:
        s.unclean_elections += 1


def begin(s: State, voters: tuple[Voter, ...], now: int) -> None:
    s.role = Role.LEADER
    s.standing = None
    s.leader, s.is_leader_live = s.me, True
    s.leaderless_since = None
    # Our log is what the group has from now on, so there is nothing left to recover.
    s.is_recovering, s.heal_goal = False, None
    start = s.log.end
    last = s.log.marks.last
    mark = Mark(s.epoch, 0, start.offset, voters, last.log_start)
    s.leading = Leading(mark)
    s.log.add_mark(mark)
    _set_followers(s, start, now)
    check_quorum(s, now)


def resign(s: State, now: int) -> None:
    """Lead no more; the epoch stays, and nobody else can lead it."""
    s.follow(s.epoch, None, now, delay_ms=s.settings.rank_ms)


def _set_followers(s: State, start: Position, now: int) -> None:
    """Progress for every voter, learner and observer; those known keep theirs."""
    leading = _leading(s)
    voters = s.voters
    replicas = dict.fromkeys((*voters, *s.target, *s.observers))
    replicas.pop(s.me, None)
    known = leading.followers
    leading.followers = {}
    for replica in replicas:
        progress = known.get(replica)
        if progress is None:
            session = s.links.session(replica)
            progress = Progress(start, session, now, is_learner=replica not in voters)
        progress.is_learner = replica not in voters
        leading.followers[replica] = progress
    reschedule(s, now)


# --- sending --------------------------------------------------------------------------------------


def wants(s: State, now: int) -> list[Want]:
    """What can be sent now, of what the log has begun to write."""
    leading, log, window = _leading(s), s.log, s.settings.window
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
    leading = _leading(s)
    progress = leading.followers[want.to]
    message = _reset(s, progress, now) if want.is_reset else _append(s, progress, stop, now)
    if leading.retry_at is None and progress.is_owed:
        leading.retry_at = now + s.settings.retry_ms
        reschedule(s, now)
    return Envelope(want.to, progress.session, message)


def _reset(s: State, progress: Progress, now: int) -> Reset:
    log = s.log
    message = Reset(s.epoch, log.marks.base, log.log_start, log.begun)
    progress.begin_reset(now)
    progress.sent_reset(message.position, now)
    return message


def _append(s: State, progress: Progress, stop: int, now: int) -> Append:
    log, prev = s.log, progress.next
    assert prev.offset <= stop <= log.begun.offset, (prev, stop, log.begun)
    marks = tuple(m for m in log.marks if prev[:2] < m[:2] <= log.begun[:2] and m.offset <= stop)
    generation = marks[-1] if marks else prev
    end = Position(generation.epoch, generation.change, stop)
    wants_ack = progress.sent(end, log.commit, now)
    return Append(s.epoch, prev, marks, end, log.begun, log.commit, wants_ack)


# --- answers --------------------------------------------------------------------------------------


def on_ack(s: State, sender: Voter, message: Ack, now: int) -> None:
    progress = _leading(s).followers.get(sender)
    if progress is None or message.epoch != s.epoch:
        return
    assert message.end <= s.log.end, (message, s.log.end)
    if progress.acked(message.end, now):
        progress.note_caught_up(s.log.durable, now)
        advance_commit(s, now)
    if progress.is_learner:
        progress.measure_round(s.log.end, now, s.settings.turn_ms)
        reschedule(s, now)
    _hand_over(s, now)


def on_nack(s: State, sender: Voter, message: Nack, now: int) -> None:
    """Probe where both logs may agree; below our first position, only a reset helps (PROBE)."""
    progress = _leading(s).followers.get(sender)
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
    for progress in _leading(s).followers.values():
        progress.note_caught_up(before, now)
    advance_commit(s, now)


def refused(s: State, end: Position, now: int) -> None:
    """Our disk did not take what we appended beyond `end`.

    If a follower was sent some of it, these positions must not be used again in this epoch.
    """
    if any(progress.next > end for progress in _leading(s).followers.values()):
        resign(s, now)


# --- committing -----------------------------------------------------------------------------------


def advance_commit(s: State, now: int) -> None:
    """Commit what a majority has durably (COMMIT), then take the steps that waited for it."""
    end = majority_has([durable_end(s, voter) for voter in s.voters])
    if may_commit(s, end) and s.log.commit_to(end):
        take_next_step(s, now)


def may_commit(s: State, end: Position) -> bool:
    """Only a position of our own epoch: an older one may yet be overwritten (Raft §5.4.2)."""
    return end.epoch == s.epoch


def durable_end(s: State, voter: Voter) -> Position:
    """What a voter has durably, as far as we know."""
    if voter == s.me:
        return s.log.durable
    progress = _leading(s).followers.get(voter)
    return progress.match if progress is not None else NOTHING


def in_sync(s: State, now: int, lag_ms: int) -> tuple[Voter, ...]:
    """The ISR (SPEC §4): us, and voters that can be heard and were at our durable end lately."""
    return tuple(voter for voter in s.voters if voter == s.me or _is_in_sync(s, voter, now, lag_ms))


def _is_in_sync(s: State, voter: Voter, now: int, lag_ms: int) -> bool:
    progress = _leading(s).followers.get(voter)
    if progress is None or not s.links.is_live(voter):
        return False
    return progress.is_in_sync(s.log.durable, now, lag_ms)


# --- voters and log start -------------------------------------------------------------------------


def may_change(s: State) -> bool:
    """CHANGE: our own mark is committed, and so is every change (Ongaro's erratum of 2015)."""
    return s.log.commit.epoch == s.epoch and position_of(s.log.marks.last) <= s.log.commit


def take_next_step(s: State, now: int) -> None:
    """Move the log start or the membership on by one mark, if one is wanted and allowed."""
    leading = _leading(s)
    if not may_change(s) or leading.handover is not None:
        return
    if leading.wanted_start > s.log.log_start:
        _add_change(s, s.voters, leading.wanted_start, now)
    elif s.target:
        _step_to_target(s, now)


def _step_to_target(s: State, now: int) -> None:
    followers, promote_ms = _leading(s).followers, s.settings.promote_ms
    step = membership.next_step(
        s.me,
        s.voters,
        s.target,
        lambda v: v in followers and followers[v].is_ready_to_vote(now, promote_ms),
        s.links.is_live,
    )
    if isinstance(step, ChangeVoters):
        change_voters(s, step.voters, now)
    elif isinstance(step, HandOver):
        transfer(s, max(step.to, key=lambda v: durable_end(s, v)), now)


def change_voters(s: State, voters: tuple[Voter, ...], now: int) -> None:
    assert may_change(s), (s.log.commit, s.log.marks.last)
    assert membership.is_single_step(s.voters, voters), (s.voters, voters)
    assert s.me in voters, "a leader hands over before it removes itself"
    _add_change(s, voters, s.log.marks.last.log_start, now)


def _add_change(s: State, voters: tuple[Voter, ...], log_start: int, now: int) -> None:
    end = s.log.end
    s.log.add_mark(Mark(s.epoch, end.change + 1, end.offset, voters, log_start))
    _set_followers(s, end, now)
    check_quorum(s, now)


def set_target(s: State, now: int) -> None:
    _set_followers(s, s.log.end, now)
    take_next_step(s, now)


def request_log_start(s: State, offset: int, now: int) -> None:
    leading = _leading(s)
    leading.wanted_start = max(leading.wanted_start, min(offset, s.log.commit.offset))
    take_next_step(s, now)


# --- handing over ---------------------------------------------------------------------------------


def transfer(s: State, to: Voter, now: int) -> bool:
    """Hand the leadership to a live voter: it catches up, then stands at once (thesis 3.10)."""
    leading = _leading(s)
    if leading.handover is not None or to == s.me or to not in s.voters:
        return False
    if not s.links.is_live(to):
        return False
    leading.handover = Handover(to, now + s.settings.transfer_ms, is_sent=False)
    reschedule(s, now)
    _hand_over(s, now)
    return True


def _hand_over(s: State, now: int) -> None:
    leading = _leading(s)
    handover = leading.handover
    if handover is None or handover.is_sent:
        return
    if durable_end(s, handover.to) == s.log.end:
        leading.handover = handover._replace(is_sent=True)
        s.send(handover.to, TimeoutNow(s.epoch))


# --- peers and time -------------------------------------------------------------------------------


def peer_changed(s: State, peer: Voter, now: int) -> None:
    progress = _leading(s).followers.get(peer)
    if progress is None:
        return
    session = s.links.session(peer)
    if not session:
        progress.end_session(now)
    elif session != progress.session:
        progress.begin_session(session, s.log.end, now)
    handover = _leading(s).handover
    if handover is not None and handover.to == peer and not s.links.is_live(peer):
        _leading(s).handover = None
    check_quorum(s, now)
    take_next_step(s, now)


def disowned(s: State, peer: Voter, now: int) -> None:
    """A live follower does not know us: remind it, and don't count it until it answers."""
    progress = _leading(s).followers.get(peer)
    if progress is not None:
        progress.follows = False
        progress.probe(s.log.end if progress.match == NOTHING else progress.match, now)
        check_quorum(s, now)


def check_quorum(s: State, now: int) -> None:
    """Begin or end the countdown of a leader that a majority does not follow."""
    leading = _leading(s)
    heard = sum(voter == s.me or _follows(s, voter) for voter in s.voters)
    if heard >= majority(len(s.voters)):
        leading.quorum_lost_at = None
    elif leading.quorum_lost_at is None:
        leading.quorum_lost_at = now
    reschedule(s, now)


def _follows(s: State, voter: Voter) -> bool:
    progress = _leading(s).followers.get(voter)
    return progress is not None and progress.follows and s.links.is_live(voter)


def tick(s: State, now: int) -> None:
    leading, settings = _leading(s), s.settings
    check_quorum(s, now)
    lost_at = leading.quorum_lost_at
    if lost_at is not None and now - lost_at >= settings.check_quorum_ms:
        resign(s, now)
        return
    if leading.handover is not None and leading.handover.until <= now:
        leading.handover = None
    _retry_owed(s, now)
    for progress in leading.followers.values():
        if progress.is_learner:
            progress.measure_round(s.log.end, now, settings.turn_ms)
    take_next_step(s, now)
    reschedule(s, now)


def _retry_owed(s: State, now: int) -> None:
    leading, retry_ms = _leading(s), s.settings.retry_ms
    leading.retry_at = None
    for progress in leading.followers.values():
        if progress.is_owed and now - progress.owed_since >= retry_ms:
            progress.retry(now)
        if progress.is_owed:
            at = progress.owed_since + retry_ms
            leading.retry_at = at if leading.retry_at is None else min(at, leading.retry_at)


def reschedule(s: State, now: int) -> None:
    """The next moment that needs a look; an idle leader with a quorum needs none."""
    leading, settings = _leading(s), s.settings
    moments = []
    if leading.quorum_lost_at is not None:
        moments.append(leading.quorum_lost_at + settings.check_quorum_ms)
    if leading.handover is not None:
        moments.append(leading.handover.until)
    if leading.retry_at is not None:
        moments.append(leading.retry_at)
    for replica, progress in leading.followers.items():
        if progress.wait_until > now:
            moments.append(progress.wait_until)
        if progress.is_learner and progress.at_end_since is not None and replica in s.target:
            ready_at = progress.at_end_since + settings.promote_ms
            if ready_at > now:  # Else its step waits for something else than time.
                moments.append(ready_at)
    s.deadline = min(moments) if moments else None


def _leading(s: State) -> Leading:
    assert s.leading is not None, s.role
    return s.leading
