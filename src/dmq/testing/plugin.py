"""pytest fixtures: `dmq_broker` (one for the session) and `dmq_topic` (a fresh name for each test).

Installed with dmq; imports the broker only when a test asks for it. Settings of the broker:
override the fixture `dmq_settings` (session scope) in a conftest.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dmq.testing.broker import Broker


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
