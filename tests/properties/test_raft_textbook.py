"""Marks against the textbook: the same logs written out as lists of ordinary entries must agree.

Logs are grown as Raft grows them: a new epoch continues a prefix of some log; within it come records
and changes. Then every decision that the core takes by positions is taken by comparing lists.
"""

from dataclasses import dataclass
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios.raft_cluster import voter

from dmq.raft.marks import Marks
from dmq.raft.membership import ChangeVoters, HandOver, in_order, is_single_step, next_step
from dmq.raft.quorum import majority, majority_has, tally
from dmq.raft.view import LogView
from dmq.raft.writes import AddMark, CutTo, Take
from dmq.types import Mark, Position

VOTERS = tuple(voter(n) for n in range(5))
Entry = tuple[object, ...]


@dataclass(frozen=True)
class Textbook:
    """A log as a list: ("mark", Mark) or ("record", epoch, change)."""

    entries: tuple[Entry, ...]

    @property
    def marks(self) -> tuple[Mark, ...]:
        return tuple(e[1] for e in self.entries if e[0] == "mark")  # type: ignore[misc]

    @property
    def end_offset(self) -> int:
        return sum(e[0] == "record" for e in self.entries)

    def view(self) -> LogView:
        return LogView(Marks(self.marks), self.end_offset, 0)

    def positions(self) -> list[Position]:
        """After each entry."""
        found, epoch, change, offset = [], 0, 0, 0
        for entry in self.entries:
            if entry[0] == "mark":
                mark = entry[1]
                assert isinstance(mark, Mark)
                epoch, change = mark.epoch, mark.change
            else:
                offset += 1
            found.append(Position(epoch, change, offset))
        return found

    def last(self) -> tuple[int, int]:
        """(term of the last entry, number of entries): what the paper compares."""
        return self.marks[-1].epoch, len(self.entries)


ROOT = Textbook((("mark", Mark(0, 0, 0, VOTERS[:3], 0)),))


@st.composite
def histories(draw: st.DrawFn) -> list[Textbook]:
    """Logs that one group could hold at one time."""
    logs = [ROOT]
    for epoch in range(1, draw(st.integers(2, 6))):
        old = draw(st.sampled_from(logs))
        kept = old.entries[: draw(st.integers(1, len(old.entries)))]
        log = Textbook(kept)
        entries = [*kept, ("mark", Mark(epoch, 0, log.end_offset, VOTERS[:3], 0))]
        change, offset = 0, log.end_offset
        for is_record in draw(st.lists(st.booleans(), max_size=5)):
            if is_record:
                entries.append(("record", epoch, change))
                offset += 1
            else:
                change += 1
                entries.append(("mark", Mark(epoch, change, offset, VOTERS[:3], 0)))
        # Everybody may have any prefix of what this leader wrote.
        logs.append(Textbook(tuple(entries)))
        logs.append(Textbook(tuple(entries[: draw(st.integers(len(kept), len(entries)))])))
    return logs


@settings(max_examples=150, deadline=None)
@given(histories())
def test_positions_decide_as_lists_do(logs: list[Textbook]) -> None:
    for a in logs:
        for b in logs:
            view = b.view()
            assert (a.view().end >= view.end) == (a.last() >= b.last()), "VOTE"
            ours = set(b.positions())
            for count, p in enumerate(a.positions(), 1):
                has = b.entries[:count] == a.entries[:count]
                assert view.has(p) == has, "CONTAINS"
                below = [q for q in ours if q <= p]
                assert view.floor(p) == (max(below) if below else None), "FLOOR"


@settings(max_examples=150, deadline=None)
@given(histories(), st.data())
def test_an_append_leaves_what_the_textbook_leaves(
    logs: list[Textbook], data: st.DataObject
) -> None:
    sender, receiver = data.draw(st.sampled_from(logs)), data.draw(st.sampled_from(logs))
    stop = data.draw(st.integers(1, len(sender.entries)))
    common = max(n for n in range(stop + 1) if sender.entries[:n] == receiver.entries[:n])
    first = data.draw(st.integers(1, max(1, common)))
    positions = sender.positions()
    prev, end = positions[first - 1], positions[stop - 1]
    if stop < first or not receiver.view().has(prev):
        return
    marks = tuple(e[1] for e in sender.entries[first:stop] if e[0] == "mark")
    view = receiver.view()
    view.join(prev, marks, end)  # type: ignore[arg-type]
    if sender.entries[:stop] == receiver.entries[:stop]:
        expected = receiver.entries
    else:
        expected = sender.entries[:stop]
    assert perform(receiver, view, sender) == expected


def perform(receiver: Textbook, view: LogView, sender: Textbook) -> tuple[Entry, ...]:
    """Do what the view wants done to the list, with records of the sender's list."""
    entries = list(receiver.entries)
    records = [entry for entry in sender.entries if entry[0] == "record"]
    for write in view.writes:
        if isinstance(write, CutTo):
            entries = entries[: Textbook(tuple(entries)).positions().index(write.position) + 1]
        elif isinstance(write, AddMark):
            entries.append(("mark", write.mark))
        else:
            assert isinstance(write, Take)
            entries += records[write.start : write.stop]
    return tuple(entries)


positions = st.builds(Position, st.integers(0, 3), st.integers(0, 2), st.integers(0, 4))


@given(st.lists(positions, min_size=1, max_size=7))
def test_what_a_majority_has_by_brute_force(ends: list[Position]) -> None:
    groups = combinations(ends, majority(len(ends)))
    assert majority_has(ends) == max(min(group) for group in groups)


@given(st.integers(1, 9))
def test_two_majorities_share_a_voter_and_smaller_groups_need_not(voters_count: int) -> None:
    assert 2 * majority(voters_count) > voters_count
    assert 2 * (majority(voters_count) - 1) <= voters_count


@given(
    st.lists(st.sampled_from(VOTERS), unique=True, min_size=1),
    st.dictionaries(st.sampled_from(VOTERS), st.booleans()),
    st.sets(st.sampled_from(VOTERS)),
)
def test_votes_are_counted_of_voters_only(voters: list, grants: dict, refusals: set) -> None:
    votes = tally(voters, grants, sorted(refusals))
    well = {v for v in grants if grants[v]} & set(voters)
    assert votes.is_won == (len(well) > len(voters) / 2)
    assert votes.is_unanimous == (set(voters) <= set(grants))
    assert votes.is_lost == (2 * (len(voters) - len(refusals & set(voters))) <= len(voters))


sets = st.lists(st.sampled_from(VOTERS), unique=True, min_size=1).map(tuple)


@settings(max_examples=300)
@given(sets, sets, st.data())
def test_memberships_get_there_by_single_steps(
    old: tuple, target: tuple, data: st.DataObject
) -> None:
    """Whoever leads, all newcomers ready: at the target, in its order, after a few steps."""
    voters, me = old, data.draw(st.sampled_from(old))
    dead = data.draw(st.sampled_from([None, *old]))
    has_quorum = 2 * sum(v != dead for v in old) > len(old)
    if dead == me or not has_quorum or dead in target:
        dead = None
    for _ in range(3 * len(VOTERS)):
        step = next_step(me, voters, target, lambda v: True, lambda v: v != dead)
        if step is None:
            break
        if isinstance(step, HandOver):
            assert me not in target
            me = data.draw(st.sampled_from(step.to))
            assert me in voters
            continue
        assert isinstance(step, ChangeVoters)
        assert is_single_step(voters, step.voters)
        assert me in step.voters
        live = sum(v != dead for v in step.voters)
        assert 2 * live > len(step.voters), "the change could not be committed"
        voters = step.voters
    assert voters == target


@given(sets, sets)
def test_the_order_of_succession_is_the_targets(voters: tuple, target: tuple) -> None:
    ordered = in_order(voters, target)
    assert sorted(ordered) == sorted(voters)
    assert [v for v in ordered if v in target] == [v for v in target if v in voters]
