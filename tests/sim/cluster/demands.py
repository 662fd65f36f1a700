"""What the short form asks of clusters beside what it asks of every kind: that most of it is judged."""

import multiprocessing
from collections import Counter
from functools import partial

from sim.outcome import run_seed, unreached
from sim.short_form import JOBS

KIND = "clusters"
JUDGED_MIN = 0.5
"""Of the records that were acknowledged, so many must be in partitions that nobody was asked to delete
or to give up."""
MUST_REACH = (
    "majority serves",
    "name used again",
    "progress of a majority",
    "read at a follower",
    "read at a leader",
    "unclean election",
    "unclean election refused",
)


def lacking(reached: Counter[str], seeds: int) -> list[str]:
    """What so many seeds should have visited and did not, and whether too little was judged."""
    missing = unreached(reached, seeds, KIND)
    missing += [name for name in MUST_REACH if not reached[name]]
    if reached["record judged"] < JUDGED_MIN * reached["record acknowledged"]:
        missing.append(f"{JUDGED_MIN:.0%} of the records judged")
    return missing


def check_clusters(count: int, chunk: int) -> None:
    """As `short_form.check_seeds`: no promise is broken, no seed has too little in it."""
    with multiprocessing.get_context("spawn").Pool(JOBS) as pool:
        outcomes = pool.map(partial(run_seed, kind=KIND), range(count), chunksize=chunk)
    failures = [f"seed {o.seed}: {o.failure}" for o in outcomes if o.failure is not None]
    assert not failures, "\n".join(failures)
    weak = [o.seed for o in outcomes if o.is_weak]
    assert not weak, f"too few operations or faults: {weak}"
    reached: Counter[str] = Counter()
    for outcome in outcomes:
        reached.update(outcome.reached)
    missing = lacking(reached, count)
    assert not missing, f"never visited: {missing}"
