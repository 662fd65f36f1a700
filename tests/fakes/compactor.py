"""A compactor that does its job at once, on the disk that it is given."""

from collections.abc import Callable
from dataclasses import replace

from fakes.broker import FakeBroker

from dmq.broker.compaction import Stage
from dmq.broker.housekeeping import Housekeeping
from dmq.errors import StorageError
from dmq.storage.compaction_job import Job, Outcome, Result
from dmq.storage.compaction_run import compact
from dmq.storage.files import Files
from dmq.storage.segment import BadBatchError


class InlineCompactor:
    """As the process, without one. `keys_max` bounds the map; `results` are all that it made."""

    def __init__(self, files: Files, keys_max: int = 1 << 30) -> None:
        self._files = files
        self.keys_max = keys_max
        self.rest_count = 0
        self.jobs: list[Job] = []
        self.results: list[Result] = []
        self.before_answer: Callable[[Job], None] = lambda job: None
        """What happens between the work and its answer."""

    def start(self, job: Job, done: Callable[[Outcome], None]) -> None:
        # What goes through the pipe must come out of it the same.
        assert Job.from_json(job.to_json()) == job
        job = replace(job, keys_max=min(job.keys_max, self.keys_max))
        self.jobs.append(job)
        try:
            result = compact(self._files, job, lambda byte_count: None)
        except BadBatchError as error:
            self.before_answer(job)
            done(error.place)
            return
        except (StorageError, OSError):
            self.before_answer(job)
            done(None)
            return
        assert Result.from_json(result.to_json()) == result
        self.results.append(result)
        self.before_answer(job)
        done(result)

    def rest(self) -> None:
        self.rest_count += 1


class Kept:
    """A broker with its housekeeping, driven by hand."""

    def __init__(self, broker: FakeBroker, keys_max: int = 1 << 30) -> None:
        self.broker = broker
        self.compactor = InlineCompactor(broker.disk, keys_max)
        self.housekeeping = Housekeeping(
            broker.store, broker.replicas, broker.metadata_partition, self.compactor
        )

    def tick(self) -> None:
        """What the runtime does in a tick."""
        broker = self.broker
        self.housekeeping.tick(broker.now)
        for job in broker.store.maintain(broker.now):
            job.run()
            broker.store.done(job)
        broker.turn()

    def clean(self) -> None:
        """Rounds until there is nothing left to compact; flushes take a round of their own."""
        rounds = self.compactor.rest_count + 3
        for _ in range(1000):
            self.tick()
            if self.compactor.rest_count >= rounds and self.housekeeping.stage is Stage.RESTING:
                return
        raise AssertionError("compaction does not come to an end")
