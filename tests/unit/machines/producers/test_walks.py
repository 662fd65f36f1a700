"""Producer state against the rules read from the whole log; and broken rules, each of them caught."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.machines.producers.walk import Walk

from dmq.machines.producers import entries, rules, state
from dmq.machines.producers.aborted import AbortIndex
from dmq.machines.producers.entries import Entry
from dmq.machines.producers.state import ProducerState

STEPS = 60


@settings(max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False))
def test_every_answer_is_that_of_the_whole_log(dice: Random) -> None:
    Walk(dice).run(STEPS)


def test_the_walks_are_not_tame() -> None:
    reached: set[str] = set()
    for seed in range(40):
        walk = Walk(Random(seed))
        walk.run(STEPS)
        reached |= walk.reached
    assert reached >= {
        "NoneType", "int", "45", "47", "48", "marker", "marker may be cut", "not overtaken",
        "restarted", "restarted from a snapshot",
    }  # fmt: skip


# --- mutants ------------------------------------------------------------------------------------


def _no_cut(self: ProducerState, position: object) -> None:
    self._uncommitted.clear()


def _cut_forgets_the_epoch_before(self: ProducerState, position: object) -> None:
    while self._uncommitted and self._uncommitted[-1].position > position:
        batch = self._uncommitted.pop()
        self._newest.pop(batch.producer_id, None)


def _stable_at_the_newest(self: ProducerState, high_watermark: int) -> int:
    starts = [e.txn_start for e in (dict(self._committed) | self._newest).values()]
    return min([high_watermark, *(start for start in starts if start >= 0)])


def _index_scans_too_short(self: AbortIndex, start: int, end: int) -> list[object]:
    found = []
    for index in range(self._first_from(start), len(self)):
        aborted = self._at(index)
        if aborted.first_offset >= end:
            break
        found.append(aborted)
    return found


def _always_next(header: object, entry: object, *rest: object) -> None:
    return None


def _window_kept(kept: Callable[..., Entry]) -> Callable[..., Entry]:
    def after(entry: Entry | None, *rest: object) -> Entry:
        made = kept(entry, *rest)
        if entry is not None and entry.epoch != made.epoch:
            made = made._replace(window=entry.window[-96:] + made.window)
        return made

    return after


def _restored_twice(self: ProducerState, snapshot: object) -> None:
    _restore(self, snapshot)  # type: ignore[arg-type]
    self._restored = None


_restore = ProducerState.restore

MUTANTS: list[tuple[str, object, str, object]] = [
    ("a cut only forgets the queue", ProducerState, "cut", _no_cut),
    ("a cut goes back too far", ProducerState, "cut", _cut_forgets_the_epoch_before),
    ("a marker counts before its commit", ProducerState, "last_stable_offset", _stable_at_the_newest),
    ("the abort index stops too early", AbortIndex, "overlapping", _index_scans_too_short),
    ("sequences are not checked", state, "check_sequence", _always_next),
    ("epochs are not checked", state, "check_epoch", _always_next),
    ("nobody asks the coordinator", state, "check_transaction", _always_next),
    ("a late marker is taken", rules, "EPOCH_PER_TXN", 3),
    ("an old epoch's batches are duplicates", state, "after_batch", _window_kept(entries.after_batch)),
    ("the window is too short", entries, "_KEPT_BYTES", entries.BATCH_BYTES * 3),
    ("the window is too long", entries, "_KEPT_BYTES", entries.BATCH_BYTES * 5),
    ("sequences do not wrap", state, "sequence_after", lambda sequence, count: sequence + count),
    ("what the snapshot has is told twice", ProducerState, "restore", _restored_twice),
]  # fmt: skip


@pytest.mark.parametrize(
    ("owner", "name", "broken"), [m[1:] for m in MUTANTS], ids=[m[0] for m in MUTANTS]
)
def test_broken_rules_are_caught(
    owner: object, name: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, broken)
    for seed in range(100):
        try:
            Walk(Random(seed)).run(STEPS)
        except Exception:  # noqa: BLE001 (any failure is what we want to see)
            return
    pytest.fail("100 walks saw nothing")
