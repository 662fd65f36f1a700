"""pytest fixtures: `dmq_broker` (one for the session), `dmq_topic` (a fresh name for each test) and
`dmq_cluster` (three brokers of its own for each test that asks, to be killed, paused and cut off).

Installed with dmq; imports brokers only when a test asks for one. Settings: override the fixtures
`dmq_settings`, `dmq_cluster_settings` or `dmq_cluster_size` in a conftest. The report of a test that
failed with a cluster has the last words of its brokers.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dmq.testing.broker import Broker
    from dmq.testing.cluster import Cluster

_LAST_WORDS = 2000


@pytest.fixture(scope="session")
def dmq_settings() -> dict[str, Any]:
    """Settings of the session's broker, by name; override it in your conftest."""
    return {}


@pytest.fixture(scope="session")
def dmq_broker(dmq_settings: dict[str, Any]) -> Iterator[Broker]:
    """A broker for the whole session; `dmq_broker.bootstrap_servers` is its address."""
    from dmq.testing.broker import Broker

    with Broker(dmq_settings) as broker:
        yield broker


@pytest.fixture
def dmq_topic(dmq_broker: Broker) -> str:
    """A topic name that no other test has; the topic is created by its first use."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def dmq_cluster_settings() -> dict[str, Any]:
    """Settings of all brokers of `dmq_cluster`, by name; override it in your conftest."""
    return {}


@pytest.fixture(scope="session")
def dmq_cluster_size() -> int:
    """How many brokers `dmq_cluster` has; override it in your conftest."""
    return 3


@pytest.fixture
def dmq_cluster(dmq_cluster_settings: dict[str, Any], dmq_cluster_size: int) -> Iterator[Cluster]:
    """A cluster for this test alone; `dmq_cluster.bootstrap` has its addresses."""
    from dmq.testing.cluster import Cluster

    with Cluster(dmq_cluster_size, dmq_cluster_settings) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the logs of a test that failed, and show their ends."""
    report = yield
    cluster: Cluster | None = getattr(item, "funcargs", {}).get("dmq_cluster")
    if cluster is not None and report.when == "call" and report.failed:
        cluster.keep = True
        for node in cluster.brokers:
            member = cluster.member(node)
            report.sections.append((f"{member.log_file}", member.log()[-_LAST_WORDS:]))
    return report
