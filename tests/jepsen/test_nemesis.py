"""The nemesis keeps its own promises: what happens while brokers come, go and lose their disks."""

import contextlib
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from dmq.testing.probe import PartitionView, View
from tests.jepsen.changes import ChangingCluster
from tests.jepsen.history import Recorder
from tests.jepsen.nemesis import Nemesis

CHANGES = ("add", "remove", "rolling-restart", "wipe-disk")
ROUNDS = 40


@dataclass
class Member:
    """A broker that is ready at once."""

    node: int
    is_running: bool = True
    exit_code: int | None = None

    def wait_for_ready_line(self) -> None:
        self.is_running = True


class Paper:
    """A cluster on paper: knows who suffers, and looks at each change whether that may be."""

    calls_again = 0

    def __init__(self, brokers: int, dice: random.Random) -> None:
        self.members = {node: Member(node) for node in range(1, brokers + 1)}
        self.dice = dice
        self.suffering: set[int] = set()
        self.wiped: set[int] = set()
        self.cuts: list[set[int]] = []
        self.worst = 0
        self.groups = [self._group() for _ in range(3)]

    def _group(self) -> tuple[int, ...]:
        return tuple(self.dice.sample(sorted(self.members), 3))

    def _hit(self, node: int) -> None:
        assert node in self.members, "nobody hits one that joins"
        self.suffering.add(node)
        affected = self.suffering | self.wiped
        count = sum(node > 0 for node in self.members)
        voters = 3 if count < 5 else 5
        assert len(affected) <= (voters - 1) // 2, "the metadata has no majority"
        if self.wiped:
            for group in self.groups:
                assert len(affected.intersection(group)) <= 1, f"{group} may lose its majority"
        self.worst = max(self.worst, len(affected))

    # --- as the nemesis calls it

    @property
    def brokers(self) -> list[int]:
        return sorted(self.members)

    @property
    def running(self) -> list[int]:
        return [node for node in self.brokers if self.members[node].is_running]

    def member(self, node: int) -> Member:
        return self.members[node]

    def views(self, topics: list[str] | None = None) -> dict[int, View]:
        parts = tuple(
            PartitionView("t", number, group[0], 1, group, group)
            for number, group in enumerate(self.groups)
        )
        return {1: View(frozenset(self.members), 1, parts)}

    def kill(self, node: int) -> None:
        self.members[node].is_running = False
        self._hit(node)

    pause = isolate = _hit

    def cut(self, source: int, target: int) -> None:
        """Of a one-way cut only; who suffers is the one that is in all pairs."""
        self.cuts.append({source, target})
        shared = set.intersection(*self.cuts)
        assert shared, "one is cut off, not two"

    def resume(self, node: int) -> None:
        self.suffering.discard(node)

    def heal(self, node: int | None = None) -> None:
        if self.cuts:
            assert node is not None
            assert node in set.intersection(*self.cuts)
            self.cuts.clear()
            self._hit(node)  # It is over, but who it was is known by now.
        self.suffering = set() if node is None else self.suffering - {node}

    def restart(self, node: int, *, wiped: bool = False, wait: bool = True) -> None:
        is_orderly = self.members[node].is_running
        if wiped:
            assert not self.suffering - {node}, "others suffer"
            self.wiped.add(node)
        if is_orderly and not wait:
            self._hit(node)  # Down, until somebody waits for it.
            self.members[node].wait_for_ready_line = lambda: self.resume(node)  # type: ignore[method-assign]
        else:
            self.members[node].is_running = True
            self.suffering.discard(node)

    def wait_ready(self, within_s: float, *, in_sync: bool = False) -> None:
        assert in_sync
        self.suffering.clear()
        self.wiped.clear()

    @contextlib.contextmanager
    def adding(self) -> Iterator[Member]:
        member = Member(0)
        self.members[-9] = member
        yield member
        del self.members[-9]
        member.node = max(self.members) + 1
        self.members[member.node] = member

    @contextlib.contextmanager
    def removing(self, node: int) -> Iterator[None]:
        yield
        assert node not in self.suffering, "it was to be another one"
        self.remove(node)

    def remove(self, node: int) -> None:
        del self.members[node]
        self.groups = [self._group() for _ in self.groups]


class NoTime(threading.Event):
    """All waits are over at once."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


@pytest.mark.parametrize("brokers", [3, 4, 5, 7])
@pytest.mark.parametrize("seed", range(5))
def test_no_majority_is_lost_by_what_happens_inside(
    tmp_path: Path, brokers: int, seed: int
) -> None:
    dice = random.Random(seed)
    paper = Paper(brokers, dice)
    with contextlib.closing(Recorder(tmp_path / "nemesis.jsonl")) as recorder:
        nemesis = Nemesis(
            cast(ChangingCluster, cast(Any, paper)),
            {},
            dice,
            recorder,
            lambda line: None,
            topic="t",
            deck=CHANGES,
            hold_s=(0.0, 0.0),
        )
        nemesis._stop = NoTime()
        for number in range(ROUNDS):
            nemesis._do(CHANGES[number % len(CHANGES)])
            nemesis._look_for_the_dead()
    assert nemesis.findings == []
    outer = {name.rpartition(" in ")[2] for name in nemesis.inside}
    assert outer == set(CHANGES), "something happens inside of each"
    assert paper.worst == (1 if brokers < 5 else 2)
