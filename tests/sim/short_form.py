"""What `make test` asks of every kind of world: some seeds, those that once failed, one told twice."""

import multiprocessing
from collections import Counter
from functools import partial
from itertools import zip_longest
from pathlib import Path

from sim.outcome import KINDS, run_seed, unreached

JOBS = 2


def known_seeds(folder: str = "") -> list[int]:
    """Seeds that failed once."""
    lines = (Path(__file__).parent / folder / "seeds.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def check_seeds(kind: str, count: int, chunk: int) -> None:
    """No seed breaks a promise or has too little in it, and together they visit every rare state."""
    # Spawned, not forked: the test's own process has threads.
    with multiprocessing.get_context("spawn").Pool(JOBS) as pool:
        outcomes = pool.map(partial(run_seed, kind=kind), range(count), chunksize=chunk)
    failures = [f"seed {o.seed}: {o.failure}" for o in outcomes if o.failure is not None]
    assert not failures, "\n".join(failures)
    weak = [o.seed for o in outcomes if o.is_weak]
    assert not weak, f"too few operations or faults: {weak}"
    reached: Counter[str] = Counter()
    for outcome in outcomes:
        reached.update(outcome.reached)
    missing = unreached(reached, count, kind)
    assert not missing, f"never visited: {missing}"


def check_same_story(kind: str, seed: int) -> None:
    """A seed told twice is told alike, and goes the same way when nobody listens."""
    first, second = (KINDS[kind](seed, is_replay=True) for _ in range(2))
    first.run()
    second.run()
    assert first.lines, "nothing was told"
    pairs = zip_longest(first.lines, second.lines or ())
    parting = next((pair for pair in pairs if pair[0] != pair[1]), None)
    assert parting is None, f"they part at {parting}"
    quiet = KINDS[kind](seed)
    quiet.run()
    assert quiet.clock.events == first.clock.events, "a replay must not change the run"
    assert quiet.reached == first.reached, "nor what it visits"
