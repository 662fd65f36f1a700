"""The meter's arithmetic; the meter itself is a long form."""

from tests.jepsen.failover import Gaps, percentile


def test_percentiles() -> None:
    hundred = [float(n) for n in range(1, 101)]
    assert percentile(hundred, 0.5) == 51.0
    assert percentile(hundred, 0.99) == 100.0
    assert percentile([3.0], 0.99) == 3.0


def test_a_bar_is_broken_by_what_the_brokers_need_and_by_what_clients_see() -> None:
    gaps = Gaps()
    for seconds in (0.1, 0.2, 0.9):
        gaps.add("kill", "cluster", seconds)
        gaps.add("kill", "default", 5 * seconds)
        gaps.add("kill", "attentive", 9.0)
    gaps.add("pause", "cluster", 2.5)
    gaps.add("stop", "cluster", 0.3)
    gaps.add("stop", "default", 0.1)
    assert gaps.broken_bars() == ["kill, default: 4.50 s > 1.0 s", "pause, cluster: 2.50 s > 2.0 s"]
    assert any("kill" in line and "900" in line for line in gaps.lines())
