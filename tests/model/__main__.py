"""`python -m model good N [FIRST]`: N seeds; `python -m model mutants N`: each mutant, N seeds."""

import sys
import time
from collections import Counter

from model import mutants
from model.world import FINDINGS, run


def good(count: int, first: int) -> int:
    started = time.monotonic()
    reached: Counter[str] = Counter()
    appended = 0
    for seed in range(first, first + count):
        try:
            world = run(seed)
        except FINDINGS as error:
            print(f"seed {seed}: {error!r:.3000}")
            return 1
        reached.update(world.reached)
        appended += world.appended
    seconds = time.monotonic() - started
    print(f"{count} runs x 6 crashes, {appended} batches, {seconds:.1f} s: no finding")
    print(dict(reached))
    return 0


def all_mutants(count: int) -> int:
    missed = 0
    for name in mutants.MUTANTS:
        hit = mutants.caught_after(name, count)
        said = f"caught after {hit[0]} runs: {hit[1]:.160}" if hit else f"NOT CAUGHT in {count}"
        print(f"{name:24} {said}")
        missed += hit is None
    return 1 if missed else 0


if __name__ == "__main__":
    amount = int(sys.argv[2])
    offset = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    sys.exit(good(amount, offset) if sys.argv[1] == "good" else all_mutants(amount))
