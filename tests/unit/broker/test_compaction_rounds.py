"""Which log is compacted next, and what becomes of the others."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from unit.broker.multiraft.wiring import SMALL, TOPIC, World, batch

from dmq.broker.compaction import Compaction, Stage
from dmq.broker.multiraft.replica import Replica
from dmq.broker.partition import Partition
from dmq.config.broker import BrokerConfig
from dmq.config.topic import TopicConfig
from dmq.storage.compaction_job import Job, Result
from dmq.storage.segment import UNKNOWN_TIMESTAMP


class Compactor:
    """Remembers its jobs, and does none."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def start(self, job: Job, done: Callable[[Result | None], None]) -> None:
        self.jobs.append(job)

    def rest(self) -> None:
        pass


def test_a_log_with_bad_bytes_keeps_no_other_from_being_compacted() -> None:
    """It was the dirtiest of all in each round, and each round ended with it."""
    world = World(1)
    broker = world[1]
    for partition in (0, 1):
        world.create(SMALL, partition=partition)
    world.leader()
    replicas = [cast(Replica, broker.node.replica(TOPIC, partition)) for partition in (0, 1)]
    world.until(lambda: all(replica.is_leader for replica in replicas))
    for replica in replicas:
        for n in range(30):
            replica.propose(batch(b"value %d" % n * 10), world.now)
    world.pass_time(2_000)
    bad, good = (replica.log for replica in replicas)
    first = bad.segments_list[0]
    broker.disk.flip(
        f"{bad.directory}/{first.base:020d}.log", 16
    )  # The magic byte: no batch is there.
    first.index, first.trusted_bytes, first.max_timestamp = None, 0, UNKNOWN_TIMESTAMP
    for name in broker.disk.list(bad.directory):
        if "index" in name:
            broker.disk.unlink(f"{bad.directory}/{name}")
    with pytest.raises(Exception, match="no batch at 0"):
        bad.segments()[0].max_timestamp  # noqa: B018

    compactor = Compactor()
    compaction = Compaction(broker.store, cast(Any, compactor))
    config = TopicConfig(cleanup_policy=("compact",))
    everything = [(cast(Partition, replica), config) for replica in replicas]
    settings = BrokerConfig(log_cleaner_backoff_ms=10)
    for _ in range(100):
        world.pass_time(10)
        compaction.tick(world.now, settings, lambda: [*everything])
        if compaction.stage is Stage.WORKING:
            break
    assert [job.uid for job in compactor.jobs] == [good.uid]
