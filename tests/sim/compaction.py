"""Compaction on a simulated broker: the production code, with a compactor that works in this process.

Each broker compacts its replicas for itself, at its own times. The compactor takes simulated time before
it writes and until it has answered; a fuse ends the process, or cuts its power, amid its files
or of the swaps that follow. Whenever a swap has begun the whole log is looked through; when nothing is
broken any more, now and then: a long catch-up of small pieces is compacted thousands of times.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fakes.disk import FakeDisk
from sim.swarm import Compacting

from dmq.broker.compaction import Compaction, Stage
from dmq.config.broker import BrokerConfig
from dmq.config.topic import TopicConfig
from dmq.errors import FatalStorageError, StorageError
from dmq.storage.compaction_job import Job, Outcome
from dmq.storage.compaction_run import compact
from dmq.storage.layout import LOGS
from dmq.storage.segment import BadBatchError

if TYPE_CHECKING:
    from sim.process import Process

TICK_MS = (5, 50)
LOOK_MS = 1000
"""Between two looks through a log once all faults are over."""


class Cleaner:
    """What a process does for its compacted logs."""

    def __init__(self, broker: "Process", mix: Compacting) -> None:
        self._broker = broker
        self._mix = mix
        self._compaction = Compaction(broker.store, self)
        self._settings = BrokerConfig.of({"log.cleaner.backoff.ms": str(mix.backoff_ms)})
        self._config = TopicConfig(
            cleanup_policy=("compact",),
            min_cleanable_dirty_ratio=mix.dirty_ratio,
            delete_retention_ms=mix.delete_retention_ms,
        )
        self.is_idle = False
        """A test does not want it to compact."""
        self._fuse: int | None = None
        self._shape: list[tuple[int, int]] = []
        """Of the log whose segments are being swapped."""
        self._looked: dict[str, int] = {}
        self._tick_later()

    @property
    def is_busy(self) -> bool:
        return self._compaction.stage in (Stage.WORKING, Stage.SWAPPING)

    def light_fuse(self, operations: int) -> None:
        """The end comes after so many more operations of the compactor, or of the swaps."""
        if self._compaction.stage is Stage.SWAPPING:
            self._broker.crash_after(operations)
        else:
            self._fuse = operations

    def put_out_fuse(self) -> None:
        """No end is to come."""
        self._fuse = None

    def _tick_later(self) -> None:
        self._broker.later(self._broker.rng.randint(*TICK_MS), self._tick)

    def _tick(self) -> None:
        self._tick_later()
        was_swapping = self._compaction.stage is Stage.SWAPPING
        try:
            self._compaction.tick(self._broker.now, self._settings, self._everything)
        except OSError as error:
            self._broker.world.say(self._broker, "can't compact:", error)
        if self._compaction.stage is Stage.SWAPPING and not was_swapping:
            self._shape = self._shape_now()

    def _everything(self) -> list[Any]:
        watched = self._broker.watched.values() if not self.is_idle else ()
        return [(w.replica, self._config) for w in watched if w.facts.is_compacted]

    # ---- the compactor

    def start(self, job: Job, done: Callable[[Outcome], None]) -> None:
        assert Job.from_json(job.to_json()) == job
        job = replace(job, keys_max=min(job.keys_max, self._mix.keys_max))
        self._broker.later(self._work_ms(), self._work, job, done)

    def rest(self) -> None:
        """There is no process that could end."""

    def _work_ms(self) -> int:
        return self._broker.rng.randint(*self._mix.work_ms)

    def _work(self, job: Job, done: Callable[[Outcome], None]) -> None:
        outcome: Outcome = None
        broker, fuse = self._broker, self._fuse
        self._fuse = None
        is_kill = fuse is not None and broker.rng.random() < 0.3
        if fuse is not None and not is_kill:
            broker.crash_after(fuse)

        def progress(byte_count: int) -> None:
            if is_kill and broker.rng.random() < 0.5:
                raise FatalStorageError("killed in a compaction")

        try:
            outcome = compact(broker.disk, job, progress)
            broker.disk.carry(job.directory)
        except FatalStorageError:
            raise
        except BadBatchError as rot:
            outcome = rot.place
            broker.world.say(broker, "could not compact:", rot)
            broker.world.reached["compaction found rot"] += 1
        except (StorageError, OSError) as error:
            broker.world.say(broker, "could not compact:", error)
            broker.world.reached["compaction failed"] += 1
        broker.later(self._work_ms(), done, outcome)

    # ---- what becomes of it

    def _shape_now(self) -> list[tuple[int, int]]:
        partition = self._compaction._partition
        if partition is None:
            return []
        return [(segment.base, segment.size) for segment in partition.log.segments_list[:-1]]

    def turn_began(self) -> None:
        """A swap may be part of it."""
        if self._compaction.stage is not Stage.SWAPPING:
            return
        shape = self._shape_now()
        if shape != self._shape:
            self._shape = shape
            self._look_through()

    def _look_through(self) -> None:
        broker, partition = self._broker, self._compaction._partition
        is_load, now = not broker.world.faults.is_over, broker.world.clock.now
        for name, watched in broker.watched.items():
            if watched.replica is partition and (
                is_load or now - self._looked.get(name, -LOOK_MS) >= LOOK_MS
            ):
                watched.look_through()
                self._looked[name] = now
                broker.world.reached["compacted under load"] += is_load
                if watched.state.leading is not None:
                    broker.world.reached["leader compacted"] += 1


def has_swap_file(disk: FakeDisk) -> bool:
    """Whether a compaction was under way when the last process ended."""
    return any(
        name.endswith(".swap")
        for directory in disk.list(LOGS)
        for name in disk.list(f"{LOGS}/{directory}")
    )
