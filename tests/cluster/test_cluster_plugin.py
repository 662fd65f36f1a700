"""The fixture `dmq_cluster` in somebody else's test suite."""

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest


@pytest.fixture(scope="session")
def dmq_cluster_size():
    return 1


@pytest.fixture(scope="session")
def dmq_cluster_settings():
    return {"num.partitions": 2}
"""

SUITE = """
def test_alive(dmq_cluster):
    assert dmq_cluster.brokers == [1]
    dmq_cluster.kill(1)
    assert dmq_cluster.running == []


def test_another_one_each_time(dmq_cluster):
    assert dmq_cluster.running == [1]
    assert False, "on purpose"
"""


def test_the_fixture_in_a_suite_of_its_own(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(SUITE)
    monkeypatch.setenv("TMPDIR", str(pytester.path))
    outcome = pytester.runpytest_subprocess("-q", "-p", "no:randomly")
    outcome.assert_outcomes(passed=1, failed=1)
    outcome.stdout.fnmatch_lines(["*broker-1.log*", "*forming a cluster*"])
    kept = list(pytester.path.glob("dmq-cluster-*"))
    assert len(kept) == 1, "of the test that failed, and only of that one"
    assert (kept[0] / "broker-1.log").exists()
