"""kill -9 of the driver at each point of the protocol: the output is complete, and nothing is twice.

A driver is killed at a point; the next takes over where it was, and is killed at the next point.
"""

import collections
from pathlib import Path

import pytest

from dmq.testing import Broker
from tests.spark.feeding import create, numbered, produce, topic_name
from tests.spark.kills.points import POINTS, WORKER
from tests.spark.kills.running import Driver, committed, nothing_is_open

RECORDS = 12_000


def run_through(points: tuple[str, ...], folder: Path) -> None:
    """Drivers that die at these points, one after the other, and one that loses only a worker."""
    with Broker(in_process=False) as broker:
        servers = broker.bootstrap_servers
        source = create(servers, topic_name("in"), 2)
        sink = create(servers, topic_name("out"), 3)
        pairs = numbered(RECORDS)
        produce(servers, source, pairs)
        for point in (*points, WORKER):
            flag = folder / f"flag-{point}"
            driver = Driver(
                "copy", servers=servers, source=source, sink=sink, kill_at=point, flag=flag,
                checkpoint=folder / "checkpoint",
            )  # fmt: skip
            try:
                code = driver.wait()
                assert code == (0 if point == WORKER else -9), driver.words()
                assert flag.exists(), f"the driver did not come to {point}"
            finally:
                driver.end()
        found = collections.Counter(committed(servers, sink))
        assert found == collections.Counter(pairs)
        nothing_is_open(servers)


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_a_driver_killed_over_its_decision_and_between_the_ends(tmp_path: Path) -> None:
    run_through(("decision-open", "between-ends"), tmp_path)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_a_driver_killed_at_every_point(tmp_path: Path) -> None:
    run_through(POINTS, tmp_path)
