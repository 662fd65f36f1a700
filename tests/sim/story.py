"""What every kind of world has: a seed, its dice and clock, counts of what was seen, and the trace."""

import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sim.clock import Clock
from sim.network import Weather

OPERATIONS_MIN = 1000
FAULTS_MIN = 20
"""A seed's budget is work, not time: so many operations of clients, so many faults."""
CALM = Weather(delay_ms=(0, 2))


class Story:
    """See the module."""

    def __init__(self, seed: int, dice: random.Random, *, is_replay: bool) -> None:
        self.seed = seed
        self.rng = dice
        self.lines: list[str] | None = [] if is_replay else None
        self.on_line: Callable[[str], None] | None = None
        self.clock = Clock()
        self.reached: Counter[str] = Counter()
        """Rare states, and how often they were visited."""
        self.happened: Counter[str] = Counter()
        self.elections = 0
        self.operations = 0
        self._numbers = 0

    def say(self, *words: object) -> None:
        """One line of the trace, in a replay."""
        if self.lines is not None:
            line = f"{self.clock.now:7} " + " ".join(map(str, words))
            self.lines.append(line)
            if self.on_line is not None:
                self.on_line(line)

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def is_weak(self, faults: int) -> bool:
        """Whether too little was asked of it, broken, or done all the same, to say anything."""
        return self.operations < OPERATIONS_MIN or faults < FAULTS_MIN or self.is_idle()

    def is_idle(self) -> bool:
        """Whether clients were told too little that could be wrong."""
        return False


@contextmanager
def no_collections() -> Iterator[None]:
    """Collections cost a tenth of a run and find nothing that the end of it would not free."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
