"""`python -m tests.sim --seed N`: one run, one line per event. `--many N`: many, with figures.

`--kind coordinators` runs groups and transactions, `--kind clusters` whole brokers with their metadata.
`--from` begins elsewhere, `--jobs` uses more cores, `--mutants` breaks the code on purpose. The exit code
is 1 if a promise was broken, if a seed had too few operations or faults to say anything, or if so many
seeds did not visit every rare state that they should.
"""

import argparse
import logging
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sim import mutants
from sim.cluster import mutants as cluster_mutants
from sim.coordination import mutants as coordinator_mutants
from sim.outcome import KINDS, Outcome, run_seed, unreached

PROGRESS_S = 10
_MUTANTS: dict[str, Mapping[str, mutants.Mutant]] = {
    "replicas": mutants.MUTANTS,
    "coordinators": coordinator_mutants.MUTANTS,
    "clusters": cluster_mutants.MUTANTS,
}


@dataclass
class Total:
    """Figures of many runs."""

    started: float = field(default_factory=time.monotonic)
    seeds: int = 0
    sums: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    pairs: dict[tuple[str, str], None] = field(default_factory=dict)
    failures: list[Outcome] = field(default_factory=list)
    weak: list[int] = field(default_factory=list)
    """Seeds with fewer operations or faults than a seed should have."""

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.sums.update(outcome.figures)
        self.reached.update(outcome.reached)
        self.pairs.update(dict.fromkeys(outcome.pairs))
        if outcome.is_weak:
            self.weak.append(outcome.seed)
        if outcome.failure:
            self.failures.append(outcome)
            print(f"seed {outcome.seed}: {outcome.failure:.600}", flush=True)

    def line(self) -> str:
        seconds = time.monotonic() - self.started
        sums = ", ".join(f"{count} {name}" for name, count in self.sums.items())
        return (
            f"{self.seeds} seeds, {len(self.failures)} findings, {seconds:.0f} s, "
            f"{self.seeds / seconds:.2f} seeds/s, {sums}, {len(self.pairs)} role/fault pairs"
        )


def one(seed: int, kind: str) -> int:
    world = KINDS[kind](seed, is_replay=True)
    world.on_line = print
    try:
        world.run()
    except Exception:  # noqa: BLE001
        traceback.print_exc()
        print(f"seed {seed} FAILED at {world.clock.now} ms")
        return 1
    print(f"seed {seed}: no finding, {world.operations} operations, {world.faults.count} faults")
    return 0


def many(count: int, first: int, jobs: int, kind: str) -> int:
    logging.disable(logging.CRITICAL)  # What brokers complain of is what was done to them.
    total, shown = Total(), time.monotonic()
    seeds, run = range(first, first + count), partial(run_seed, kind=kind)
    with ExitStack() as stack:
        if jobs > 1:
            pool = stack.enter_context(multiprocessing.Pool(jobs))
            outcomes: Iterable[Outcome] = pool.imap_unordered(run, seeds)
        else:
            outcomes = map(run, seeds)
        for outcome in outcomes:
            total.add(outcome)
            if time.monotonic() - shown > PROGRESS_S:
                shown = time.monotonic()
                print(total.line(), flush=True)
    print(total.line())
    print("reached:", ", ".join(f"{name} {n}" for name, n in sorted(total.reached.items())))
    tame = unreached(total.reached, count, kind)
    if tame:
        print("NEVER REACHED:", ", ".join(tame))
    if total.weak:
        print("TOO FEW OPERATIONS OR FAULTS:", *sorted(total.weak))
    if total.failures:
        print("FAILED:", *sorted(outcome.seed for outcome in total.failures))
        print(f"replay one with: python -m tests.sim --kind {kind} --seed SEED")
    return 1 if total.failures or total.weak or tame else 0


def all_mutants(only: str | None, kind: str) -> int:
    missed = 0
    known: Mapping[str, mutants.Mutant]
    known = _MUTANTS[kind]
    for name, mutant in known.items():
        if only and only != name:
            continue
        if isinstance(
            mutant, coordinator_mutants.CoordinatorMutant | cluster_mutants.ClusterMutant
        ):
            hit = mutants.caught_after(mutant, mutant.run)
        else:
            hit = mutants.caught_after(mutant)
        said = f"after {hit[0]} seeds: {hit[1]:.140}" if hit else f"NOT CAUGHT in {mutant.within}"
        print(f"{name:28} {said}", flush=True)
        missed += hit is None
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one seed")
    parser.add_argument("--many", type=int, metavar="N", help="run so many seeds")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, default="replicas")
    parser.add_argument("--mutants", nargs="?", const="", metavar="NAME")
    asked = parser.parse_args()
    if asked.mutants is not None:
        sys.exit(all_mutants(asked.mutants, asked.kind))
    if asked.many:
        sys.exit(many(asked.many, asked.first, asked.jobs, asked.kind))
    sys.exit(one(asked.seed or 0, asked.kind))
