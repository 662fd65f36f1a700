"""What a leader knows of its group, and when it must look at it again.

Progress of every follower, learner and observer, the handover under way, the countdown of a leader that
nobody follows. An idle leader with a quorum has no deadline at all. Not to be confused with leader.py,
which acts on this; changing.py does too.
"""

from typing import NamedTuple

from dmq.raft.progress import Progress
from dmq.raft.quorum import NOTHING, majority
from dmq.raft.state import State
from dmq.types import Mark, Position, Voter


class Handover(NamedTuple):
    """A leadership transfer under way."""

    to: Voter
    until: int
    is_closed: bool = False
    """Nothing more is appended: the heir has all that is committed, and soon the rest."""
    number: int = 0
    """Of what the heir was told; 0: nothing yet."""

    @property
    def is_sent(self) -> bool:
        return self.number > 0


class Leading:
    """What only a leader knows."""

    __slots__ = (
        "failed_heirs",
        "followers",
        "handover",
        "mark",
        "quorum_lost_at",
        "retry_at",
        "sent_end",
        "told",
        "told_count",
        "wanted_start",
    )

    def __init__(self, mark: Mark) -> None:
        self.mark = mark
        """The one that began this epoch."""
        self.followers: dict[Voter, Progress] = {}
        self.quorum_lost_at: int | None = None
        self.retry_at: int | None = None
        """When to look for followers that owe an answer."""
        self.handover: Handover | None = None
        self.told: dict[int, tuple[Voter, int]] = {}
        """Who was told to stand, by number, and in which session. It may do so whenever it hears of it,
        and be voted for in spite of our lease: there is none any more in this epoch, however the
        handover ended for us, unless the heir itself says that it won't, or the word never left."""
        self.told_count = 0
        self.failed_heirs: dict[Voter, int] = {}
        """Who did not take over, and until when we don't choose it again by ourselves."""
        self.sent_end = NOTHING
        """The greatest position that anybody was sent in this epoch."""
        self.wanted_start = 0
        """Where the log shall start as soon as a mark may say so."""

    @property
    def is_handing_over(self) -> bool:
        """The heir was told to stand, and we wait for it."""
        return self.handover is not None and self.handover.is_sent


def leading_of(s: State) -> Leading:
    assert s.leading is not None, s.role
    return s.leading


def set_followers(s: State, start: Position, now: int) -> None:
    """Progress for every voter, learner and observer; those known keep theirs."""
    leading = leading_of(s)
    voters = s.voters
    replicas = dict.fromkeys((*voters, *s.target, *s.observers))
    replicas.pop(s.me, None)
    known = leading.followers
    leading.followers = {}
    for replica in replicas:
        progress = known.get(replica)
        if progress is None:
            session = s.links.session(replica)
            progress = Progress(start, session, now)
            if not s.links.is_live(replica):
                progress.caught_up_at = None
        progress.is_learner = replica not in voters
        leading.followers[replica] = progress
    reschedule(s, now)


def durable_end(s: State, voter: Voter) -> Position:
    """What a voter has durably, as far as we know."""
    if voter == s.me:
        return s.log.durable
    progress = leading_of(s).followers.get(voter)
    return progress.match if progress is not None else NOTHING


def check_quorum(s: State, now: int) -> None:
    """Begin or end the countdown of a leader that a majority does not follow."""
    leading = leading_of(s)
    heard = sum(voter == s.me or _follows(s, voter) for voter in s.voters)
    if heard >= majority(len(s.voters)):
        leading.quorum_lost_at = None
    elif leading.quorum_lost_at is None:
        leading.quorum_lost_at = now
    reschedule(s, now)


def _follows(s: State, voter: Voter) -> bool:
    progress = leading_of(s).followers.get(voter)
    return progress is not None and progress.follows and s.links.is_live(voter)


def reschedule(s: State, now: int) -> None:
    """The next moment that needs a look; an idle leader with a quorum needs none."""
    leading, settings = leading_of(s), s.settings
    moments = []
    if leading.quorum_lost_at is not None:
        moments.append(leading.quorum_lost_at + settings.check_quorum_ms)
    if leading.handover is not None:
        moments.append(leading.handover.until)
    if s.me not in s.voters or (s.target and s.me not in s.target):
        moments += [until for until in leading.failed_heirs.values() if until > now]
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
