"""What a seed's world is like: drawn anew for each seed, so that rare mixtures come up (swarm testing).

A cluster in which everything happens all the time hides bugs that need one kind of trouble and peace
otherwise. So each seed has its own subset of faults at its own rates, its own size, network and disks.
Most seeds trouble only so many brokers at a time that the others go on: a cluster that is always down
makes no history that could go wrong.
All sizes are small: rolling, cleaning, recycling, trimming and resets happen in every seed.
"""

import random
from dataclasses import dataclass, field, replace

from sim.network import Weather

FAULTS: dict[str, float] = {
    "power_cut": 3.0,
    "kill": 3.0,
    "power_cut_all": 0.3,
    "kill_all": 0.3,
    "stop": 1.0,
    "pause": 2.0,
    "skew": 1.0,
    "cut_one_way": 2.0,
    "split": 2.0,
    "isolate": 2.0,
    "rotate": 1.5,
    "slow_link": 1.0,
    "flap": 1.0,
    "reset_link": 2.0,
    "disk_full": 1.0,
    "slow_sync": 1.5,
    "failing_sync": 1.0,
    "crash_in_write": 2.0,
    "rot_segment": 1.0,
    "rot_journal": 0.5,
    "wipe": 0.7,
    "create_topic": 0.7,
    "delete_topic": 0.5,
    "trim": 2.0,
    "transfer": 1.5,
    "change_members": 2.0,
}
"""What can happen, and how often in a seed that has it."""

OF_COMPACTION: dict[str, float] = {"crash_in_compaction": 3.0}
"""What else can happen where topics are compacted."""

OF_OPERATORS = frozenset({"create_topic", "delete_topic", "trim", "transfer", "change_members"})
"""What people do to a cluster that is well: it breaks nothing, and does not count as a fault."""

COMPACTED_RATE = 0.3
"""Of the seeds: those that have compacted topics."""

ALWAYS = ("kill", "trim")
"""In every seed: without these a world is too quiet."""


@dataclass(frozen=True, slots=True)
class Compacting:
    """How brokers compact, each for itself."""

    rate: float = 1.0
    """The share of topics that are compacted."""
    backoff_ms: int = 100
    dirty_ratio: float = 0.0
    delete_retention_ms: int = 0
    keys_max: int = 1000
    """So many keys fit into a compactor's memory."""
    work_ms: tuple[int, int] = (0, 100)
    """How long a compactor takes, before it writes and until it has answered."""


@dataclass(frozen=True, slots=True)
class Mix:
    """One seed's world."""

    brokers: int = 3
    replication_factor: int = 3
    topics: int = 2
    async_rate: float = 0.0
    weather: Weather = field(default_factory=Weather)
    sync_ms: tuple[int, int] = (1, 4)
    faults: dict[str, float] = field(default_factory=dict)
    fault_every_ms: int = 350
    trouble_max: int = 99
    """Brokers that are down, stopped or cut off at the same time; more only by accident."""
    producers: int = 3
    consumers: int = 3
    produce_every_ms: int = 40
    fetch_every_ms: int = 60
    acks_all_rate: float = 0.8
    retry_rate: float = 0.6
    follower_reads: float = 0.2
    segment_bytes: int = 2048
    journal_file_bytes: int = 4096
    window: int = 2
    min_insync: int = 1
    trim_keeps: int = 0
    """So many records are newer than retention allows to take."""
    encodes: bool = False
    compaction: Compacting | None = None
    duration_ms: int = 10_000
    downtime_ms: tuple[int, int] = (20, 1500)

    def __str__(self) -> str:
        kinds = "async" if self.async_rate == 1 else "mixed" if self.async_rate else "sync"
        if self.compaction is not None:
            kinds += ", compacted"
        net = "datagrams" if self.weather.is_datagram else "connections"
        return (
            f"{self.brokers} brokers, RF {self.replication_factor}, {self.topics} topics ({kinds}), "
            f"{net}, {self.producers}+{self.consumers} clients, faults: {', '.join(self.faults)}"
        )


def draw(seed: int, *, may_compact: bool = True) -> Mix:
    """The mix of a seed."""
    mix = _draw(seed)
    compaction = _draw_compaction(seed) if may_compact else None
    if compaction is None:
        return mix
    return replace(mix, compaction=compaction, faults={**mix.faults, **OF_COMPACTION})


def _draw_compaction(seed: int) -> Compacting | None:
    """By dice of its own: all other seeds are what they would be without compaction."""
    rng = random.Random(f"compaction {seed}")
    if rng.random() >= COMPACTED_RATE:
        return None
    return Compacting(
        rate=rng.choice((0.5, 1.0, 1.0)),
        backoff_ms=rng.choice((50, 200, 1000)),
        dirty_ratio=rng.choice((0.0, 0.0, 0.3)),
        delete_retention_ms=rng.choice((0, 300, 6000)),
        keys_max=rng.choice((3, 1000, 1000)),
        work_ms=rng.choice(((0, 5), (0, 100), (50, 500))),
    )


def _draw(seed: int) -> Mix:
    rng = random.Random(f"mix {seed}")
    brokers = rng.choice((1, 2, 3, 3, 3, 3, 4, 4, 5, 5))
    factor = min(brokers, rng.choice((1, 2, 3, 3, 3, 3, 4, 5)))
    async_rate = rng.choice((0, 0, 0, 0, 0.5, 1))
    every = rng.choice((150, 250, 350))
    trouble_max = rng.choice((1, 1, (brokers - 1) // 2, (brokers - 1) // 2, 2, 99)) or 1
    producers = rng.randint(2, 5)
    consumers = rng.randint(1, 4)
    return Mix(
        brokers=brokers,
        replication_factor=factor,
        topics=rng.choice((1, 1, 2, 2, 3)),
        async_rate=async_rate,
        weather=_draw_weather(rng),
        sync_ms=rng.choice(((0, 1), (1, 4), (1, 4), (5, 30), (1, 60))),
        faults=_draw_faults(rng),
        fault_every_ms=every,
        trouble_max=trouble_max,
        producers=producers,
        consumers=consumers,
        produce_every_ms=13 * producers,
        fetch_every_ms=26 * consumers,
        acks_all_rate=rng.choice((0.5, 0.9, 1.0)),
        retry_rate=rng.choice((0.0, 0.5, 1.0)),
        follower_reads=rng.choice((0.0, 0.8)),
        segment_bytes=rng.choice((600, 2048, 2048)),
        window=rng.choice((1, 2, 2, 4)),
        min_insync=rng.choice((1, 2, 3)),
        encodes=rng.random() < 0.02,
        downtime_ms=rng.choice(((20, 400), (20, 1500), (500, 3000))),
    )


def _draw_weather(rng: random.Random) -> Weather:
    delay_ms = rng.choice(((0, 1), (0, 2), (1, 10), (0, 60)))
    if rng.random() < 0.7:
        return Weather(delay_ms=delay_ms)
    return Weather(
        delay_ms=delay_ms,
        is_datagram=True,
        lost=rng.choice((0.0, 0.01, 0.05)),
        doubled=rng.choice((0.0, 0.02, 0.1)),
        late=rng.choice((0.0, 0.05, 0.3)),
    )


def _draw_faults(rng: random.Random) -> dict[str, float]:
    share = rng.choice((0.2, 0.4, 0.6, 1.0))
    return {
        name: weight * rng.choice((0.5, 1.0, 2.0))
        for name, weight in FAULTS.items()
        if name in ALWAYS or rng.random() < share
    }
