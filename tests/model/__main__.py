"""`python -m tests.model --runs N`: N seeds; with `--mutants`, every mutant on up to N seeds."""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from model import mutants
from model.world import CRASHES, FINDINGS, run

PROGRESS_EVERY = 1000


def good(count: int, first: int) -> int:
    started = time.monotonic()
    reached: Counter[str] = Counter()
    appended = 0
    for done, seed in enumerate(range(first, first + count), start=1):
        try:
            world = run(seed)
        except FINDINGS as error:
            print(f"seed {seed}: {error!r:.3000}")
            return 1
        reached.update(world.reached)
        appended += world.appended
        if done % PROGRESS_EVERY == 0:
            print(f"{done} runs, {time.monotonic() - started:.0f} s", flush=True)
    seconds = time.monotonic() - started
    print(f"{count} runs x {CRASHES} crashes, {appended} batches, {seconds:.1f} s: no finding")
    print(", ".join(f"{name} {times}" for name, times in sorted(reached.items())))
    return 0


def all_mutants(count: int) -> int:
    missed = 0
    for name in mutants.MUTANTS:
        hit = mutants.caught_after(name, count)
        said = f"caught after {hit[0]} runs: {hit[1]:.160}" if hit else f"NOT CAUGHT in {count}"
        print(f"{name:24} {said}", flush=True)
        missed += hit is None
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--mutants", action="store_true")
    asked = parser.parse_args()
    sys.exit(all_mutants(asked.runs) if asked.mutants else good(asked.runs, asked.first))
