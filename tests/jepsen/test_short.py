"""The short form of `make jepsen`: three brokers, five clients, each kind of fault once and briefly."""

from pathlib import Path

import pytest

from tests.jepsen.run import PRODUCERS, Options, Run

FAULTS = (
    "kill-leader", "pause-leader", "restart", "isolate-leader", "one-way", "flap", "fill-disk",
    "wipe-disk", "add", "remove",
)  # fmt: skip
FEW = [PRODUCERS[0], PRODUCERS[2], PRODUCERS[5], PRODUCERS[6]]
"""librdkafka idempotent and plain, kafka-python plain, aiokafka idempotent."""


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_nothing_is_lost_doubled_or_reordered(tmp_path: Path) -> None:
    options = Options(
        tmp_path, seed=4, seconds=0.0, is_short=True, rate=50, faults=FAULTS, producers=FEW
    )
    run = Run(options, print)
    report = run.run()
    print(run.summary(report))
    assert report.findings == []
    assert run.problems == []
    assert report.counts["acknowledged"] > 500, "the brokers were not under load"
    assert report.counts["read from followers"] > 100, "the reader with a rack was not served there"
    assert report.counts["batches of replicas"] > 500, "the replicas were not compared"
    assert run.nemesis is not None
    done = {kind for kind in FAULTS if run.nemesis.counts[kind]}
    assert done >= set(FAULTS) - {"fill-disk"}, "fill-disk needs root, the others need nothing"
    outer = {name.rpartition(" in ")[2] for name in run.nemesis.inside}
    assert outer >= {"wipe-disk", "add", "remove", "flap"}, "something happens meanwhile"
