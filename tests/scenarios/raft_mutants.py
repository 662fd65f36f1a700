"""The core with one rule broken at a time: each must be noticed, or the walk is too tame.

A mutant is a set of patches and a profile that makes its kind of trouble likely. The names are those
of the rules that they break (SPEC: Raft positions; recovering voters).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from scenarios import raft_attacks
from scenarios.raft_walk import CHANCES, SAFE, Profile, narrow

from dmq.raft import candidate, changing, core, follower, leader, voting
from dmq.raft.marks import Marks
from dmq.raft.progress import Progress
from dmq.raft.state import State
from dmq.raft.view import LogView
from dmq.types import Position

Patch = tuple[object, str, Callable[..., Any]]


@dataclass(frozen=True)
class Mutant:
    """What is broken, and what notices it: walks in a world of this kind, or a script."""

    breaks: str
    patches: tuple[Patch, ...]
    profile: Profile = SAFE
    attack: Callable[[], None] | None = None


def _vote_by_record(log: LogView) -> Position:
    marks = [m for m in log.marks if m.offset < log.end.offset]
    return Position(marks[-1].epoch if marks else -1, 0, log.end.offset)


def _has_by_offset(self: LogView, p: Position) -> bool:
    return bool(self.marks.items) and p.offset <= self.end.offset


def _cut_keeps_marks(self: Marks, p: Position) -> Marks:
    return Marks(tuple(m for m in self.items if m.offset <= p.offset))


def _cut_drops_marks(self: Marks, p: Position) -> Marks:
    return Marks(tuple(m for m in self.items if m.offset < p.offset) or self.items[:1])


def _cut_keeps_voters(self: Marks, p: Position) -> Marks:
    kept = [m for m in self.items if m[:2] <= p[:2]]
    return Marks((*kept[:-1], kept[-1]._replace(voters=self.last.voters)))


def _trim_to_uncommitted(self: Marks, log_start: int, commit: Position) -> Marks:
    base = max(i for i, m in enumerate(self.items) if m.offset <= log_start)
    return Marks(self.items[base:])


def _may_change_with_own_mark_open(s: State) -> bool:
    return s.log.end.epoch == s.epoch


def _may_change_twice(s: State) -> bool:
    return s.log.commit.epoch == s.epoch


def _always_cut(self: LogView, prev: Position, marks: Any, end: Position, unclean: int) -> bool:
    if self.has(end) and self.commit <= end < self.end:
        self.cut(end)
    return _JOIN(self, prev, marks, end, unclean)


def _durable_without_second_look(self: LogView, stable: Position) -> bool:
    before, self.durable = self.durable, max(self.durable, min(stable, self.end))
    return self.durable > before


def _own_vote_at_once(s: State, now: int, *, is_transfer: bool = False) -> None:
    _STAND(s, now, is_transfer=is_transfer)
    s.hard_durable = (s.epoch, s.me)
    candidate.hard_state_durable(s, now)


def _heal_to_commit(leader_end: Position, s: State) -> Position:
    return s.log.commit


def _forget_nothing(self: Progress, session: int, start: Position, now: int) -> None:
    self.session = session
    self.probe(start, now)


def _vote_twice(s: State, sender: Any, message: Any, now: int) -> Any:
    refusal = _REFUSAL(s, sender, message, now)
    return None if refusal is voting.Refusal.VOTED else refusal


_JOIN = LogView.join
_STAND = candidate.stand
_REFUSAL = voting._refusal

_FEW = Profile(
    weights=narrow(
        deliver=45, turn=12, half_turn=5, produce=7, stand=5, crash=1, restart=3, reconnect=1
    )
)
_MEMBERS = Profile(
    weights=narrow(deliver=45, turn=12, produce=4, stand=5, change=4, crash=0.5, restart=3)
)
_POWER = {"deliver": 45.0, "turn": 12.0, "produce": 8.0, "stand": 3.0, "crash": 2.0, "restart": 5.0}
_UNSYNCED = Profile(is_async=True, learners_max=0, begins_led=True, weights=narrow(**_POWER))

MUTANTS: dict[str, Mutant] = {
    "vote_by_offset": Mutant(
        "VOTE compares offsets only",
        ((voting, "is_up_to_date", lambda theirs, own: theirs.offset >= own.offset),),
        _FEW,
    ),
    "vote_by_record": Mutant(
        "VOTE looks at the last record's epoch and ignores marks",
        ((voting, "election_end", _vote_by_record), (candidate, "election_end", _vote_by_record)),
        _FEW,
    ),
    "commit_old_epoch": Mutant(
        "COMMIT of a position of an older epoch",
        ((leader, "may_commit", lambda s, end: True),),
        attack=raft_attacks.figure_8,
    ),
    "ack_by_offset": Mutant(
        "ACK names an offset in the leader's epoch",
        ((follower, "ack_position", lambda end, s: Position(s.epoch, 0, end.offset)),),
        _FEW,
    ),
    "match_by_offset": Mutant("CONTAINS by offset", ((LogView, "has", _has_by_offset),), _FEW),
    "cut_keeps_marks": Mutant(
        "CUT leaves all marks at its offset", ((Marks, "cut", _cut_keeps_marks),), _FEW
    ),
    "cut_drops_marks": Mutant(
        "CUT drops all marks at its offset", ((Marks, "cut", _cut_drops_marks),), _FEW
    ),
    "always_cut": Mutant("APPEND cuts for an old message", ((LogView, "join", _always_cut),), _FEW),
    "ack_unchecked": Mutant(
        "ACK is not checked again when the sync returns",
        ((LogView, "turn_ends", _durable_without_second_look),),
        _FEW,
    ),
    "vote_twice": Mutant(
        "VOTE given twice in an epoch", ((voting, "_refusal", _vote_twice),), _FEW
    ),
    "own_vote_at_once": Mutant(
        "an only voter leads before its vote is durable",
        ((candidate, "stand", _own_vote_at_once),),
        attack=raft_attacks.the_only_voter_forgets,
    ),
    "mark_not_synced": Mutant(
        "WRITE: an acknowledged mark is lost in a crash", (), replace(_FEW, loses_marks=True)
    ),
    "change_before_own_commit": Mutant(
        "CHANGE before the leader's own mark is committed",
        ((changing, "may_change", _may_change_with_own_mark_open),),
        _MEMBERS,
    ),
    "two_changes": Mutant(
        "CHANGE while another one is not committed",
        ((changing, "may_change", _may_change_twice),),
        _MEMBERS,
    ),
    "no_rollback": Mutant(
        "CUT of a change leaves its voters", ((Marks, "cut", _cut_keeps_voters),), _MEMBERS
    ),
    "trim_uncommitted_mark": Mutant(
        "TRIM makes an uncommitted mark the base",
        ((Marks, "trim", _trim_to_uncommitted),),
        attack=raft_attacks.trim_at_an_uncommitted_mark,
    ),
    "wiped_keeps_name": Mutant(
        "an empty disk votes under its old name",
        (),
        Profile(keeps_name=True, chances={**CHANCES, "wipe": 1.0}),
    ),
    "recovering_votes": Mutant(
        "a recovering replica votes",
        (),
        replace(_UNSYNCED, forgets_loss=True),
    ),
    "recovering_elects_itself": Mutant(
        "a recovering candidate's own vote counts",
        ((candidate, "is_own_vote_good", lambda s: True),),
        _UNSYNCED,
    ),
    "unsettled_voters": Mutant(
        "a recovering replica votes for a list that may yet be taken back",
        ((LogView, "are_voters_settled", True),),
        attack=raft_attacks.a_voter_was_to_go,
    ),
    "recover_to_commit": Mutant(
        "a recovering replica is well when it has the commit",
        ((follower, "healing_end", _heal_to_commit),),
        attack=raft_attacks.healed_too_soon,
    ),
    "recover_any_session": Mutant(
        "messages and acks of an old session count",
        (
            (core, "is_current", lambda s, sender, session: s.links.session(sender) > 0),
            (Progress, "begin_session", _forget_nothing),
        ),
        attack=raft_attacks.a_former_life_heals,
    ),
    "vote_for_what_was_refused": Mutant(
        "votes are asked for a log that the disk refuses",
        ((candidate, "refused", lambda s, now: None),),
        attack=raft_attacks.an_heirs_disk_refuses,
    ),
}
