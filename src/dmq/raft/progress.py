"""One follower (or learner) as its leader sees it.

    PROBE      we don't know what it has: one append at a time, from `next`
    REPLICATE  it has `match`: appends follow each other without waiting, up to the window
    RESET      it lacks the beginning of our log: one reset at a time

    begin, new session, refusal   -> PROBE       ack                    -> REPLICATE
    nothing to begin with         -> RESET       no answer for retry_ms -> PROBE

    match <= next always. `match` is forgotten with the session: the follower may have restarted, and
    an async one may have lost what it acknowledged.

Numbers only; knows no log. Used by leader.py, which turns refusals into positions of its own log.
"""

from collections import deque
from enum import Enum

from dmq.raft.quorum import NOTHING
from dmq.types import Position


class Pace(Enum):
    """How a follower is served; see the module."""

    PROBE = "probe"
    REPLICATE = "replicate"
    RESET = "reset"


class Progress:
    """See the module."""

    __slots__ = (
        "acked_at",
        "asked",
        "at_end_since",
        "caught_up_at",
        "commit_told",
        "flying",
        "follows",
        "is_learner",
        "match",
        "next",
        "owed_since",
        "pace",
        "round_began",
        "round_goal",
        "session",
        "wait_until",
    )

    def __init__(self, start: Position, session: int, now: int) -> None:
        self.session = session
        self.is_learner = False
        self.pace = Pace.PROBE
        self.match = NOTHING
        """What it has durably, as acknowledged in this session."""
        self.next = start
        """Where the next append begins."""
        self.asked: Position | None = None
        """The place that a probe or reset under way asks about."""
        self.flying: deque[Position] = deque()
        """Ends of the appends under way, oldest first."""
        self.commit_told = NOTHING
        self.follows = True
        """Whether it takes us for its leader, as far as we know."""
        self.owed_since = now
        """Since when an answer is due, if one is due."""
        self.wait_until = 0
        """It can't take anything before this."""
        self.caught_up_at: int | None = now
        """When it last had all that was durable here; at first we believe it of whom we hear."""
        self.acked_at: int | None = None
        """When it last said what it has."""
        self.at_end_since: int | None = None
        self.round_goal = start
        self.round_began = now

    def __repr__(self) -> str:
        return f"<{self.pace.value} match={tuple(self.match)} next={tuple(self.next)}>"

    @property
    def is_owed(self) -> bool:
        """Whether it owes us an answer."""
        return self.asked is not None or bool(self.flying)

    # ---- changes of pace

    def begin_session(self, session: int, start: Position, now: int) -> None:
        """Forget what it had: its present life may know less."""
        self.session = session
        self.match = NOTHING
        self.follows = True
        self.wait_until = 0
        self.at_end_since = None
        self.probe(start, now)

    def end_session(self, now: int) -> None:
        """It can't be reached; what it acknowledged stands until it comes back."""
        self.session = 0
        self._nothing_under_way(now)

    def probe(self, start: Position, now: int) -> None:
        self.pace = Pace.PROBE
        self.next = start
        self.commit_told = NOTHING
        self._nothing_under_way(now)

    def begin_reset(self, now: int) -> None:
        """It lacks our beginning, so it lost whatever it once acknowledged."""
        self.pace = Pace.RESET
        self.match = NOTHING
        self.at_end_since = None
        self._nothing_under_way(now)

    def retry(self, now: int) -> None:
        """No answer came: ask again from what is certain."""
        if self.pace is Pace.REPLICATE:
            self.probe(self.match, now)
        self._nothing_under_way(now)

    def pause(self, until: int, now: int) -> None:
        """It said that it can't take anything now."""
        self.wait_until = until
        self.retry(now)

    def _nothing_under_way(self, now: int) -> None:
        self.asked = None
        self.flying.clear()
        self.owed_since = now

    # ---- sending

    def may_send(self, window: int, now: int) -> bool:
        if now < self.wait_until or not self.session:
            return False
        if self.pace is Pace.REPLICATE:
            return len(self.flying) < window
        return self.asked is None

    def wants(self, end: Position, commit: Position) -> bool:
        """Whether there is something to tell it; a probe always is."""
        return self.pace is not Pace.REPLICATE or self.next < end or self.commit_told < commit

    def sent(self, end: Position, commit: Position, now: int) -> bool:
        """An append up to `end` leaves; whether an answer is due for it."""
        if not self.is_owed:
            self.owed_since = now
        self.commit_told = max(self.commit_told, min(commit, end))
        if self.pace is Pace.PROBE:
            self.asked = self.next
            return True
        if end == self.next:
            return False
        self.flying.append(end)
        self.next = end
        return True

    def sent_reset(self, to: Position, now: int) -> None:
        self.owed_since = now
        self.asked = to

    # ---- answers

    def acked(self, end: Position, now: int) -> bool:
        """It has all up to `end`; whether that is news."""
        self.follows = True
        self.acked_at = self.owed_since = now
        flying = self.flying
        while flying and flying[0] <= end:
            flying.popleft()
        if self.pace is not Pace.REPLICATE and (self.asked is None or end >= self.asked):
            self.pace = Pace.REPLICATE
            self.asked = None
            self.next = end
        self.next = max(self.next, end)
        if end <= self.match:
            return False
        self.match = end
        return True

    def expects_nack(self, prev: Position) -> bool:
        """Whether a refusal of `prev` answers what we asked, and not something long settled."""
        if self.pace is Pace.REPLICATE:
            return prev >= self.match
        return prev == self.asked

    # ---- how far behind

    def note_caught_up(self, durable: Position, now: int) -> None:
        """Called before our own durable end moves on: who had all of it was in sync until now."""
        if self.match >= durable:
            self.caught_up_at = now

    def is_in_sync(self, durable: Position, now: int, lag_ms: int) -> bool:
        if self.match >= durable:
            return True
        return self.caught_up_at is not None and now - self.caught_up_at <= lag_ms

    def measure_round(self, end: Position, now: int, turn_ms: int) -> None:
        """A learner's rounds (Raft thesis 4.2.1): how long it takes to reach what the end was, or is, if
        the disk refused some of that."""
        if self.match < min(self.round_goal, end):
            if now - self.round_began > turn_ms:
                self.at_end_since = None
            return
        if self.match < end and now - self.round_began > turn_ms:
            self.at_end_since = None
        elif self.at_end_since is None:
            self.at_end_since = now
        self.round_goal = end
        self.round_began = now

    def is_ready_to_vote(self, now: int, promote_ms: int) -> bool:
        """Whether it kept up with the end long enough to count in majorities."""
        return self.at_end_since is not None and now - self.at_end_since >= promote_ms

    def has_spoken(self, now: int, turn_ms: int) -> bool:
        """Whether what we know of it is new. Where nothing is written, or while we stood still, it may
        have been taken out of the group and into it again, with an empty log and in the same session."""
        return self.acked_at is not None and now - self.acked_at <= turn_ms
