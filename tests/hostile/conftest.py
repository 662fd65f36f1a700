"""A broker to be abused, and a well-behaved neighbour who must not notice.

The broker is a process of its own, so that its memory and its log can be looked at.
`DMQ_TEST_BOOTSTRAP=host:port` puts the same tests to another broker, of which neither is known.
"""

import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from compat import batches, topics
from compat.eventually import eventually
from compat.process import BrokerProcess
from compat.requests import fetch, produce
from compat.wire import NONE, Connection, EndOfConnectionError

MIB = 1 << 20
# Generous: what matters is that hostile sizes and counts never become memory.
MEMORY_GROWTH_MAX = 400 * MIB


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess | None]:
    if os.environ.get("DMQ_TEST_BOOTSTRAP"):
        yield None
        return
    # As `dmq serve` speaks by default; `dmq up` speaks of warnings only.
    process = BrokerProcess(tmp_path_factory.mktemp("hostile"), "--set", "logging.level=info")
    process.start()
    try:
        yield process
        process.stop()
    finally:
        process.kill()


@pytest.fixture(scope="session")
def bootstrap(broker: BrokerProcess | None) -> str:
    return broker.bootstrap if broker is not None else os.environ["DMQ_TEST_BOOTSTRAP"]


@pytest.fixture(scope="session")
def new_topic(bootstrap: str) -> Callable[..., str]:
    """Creates a topic: `new_topic(partitions=1, **configs)`, with `_` for `.` in their names."""

    def create(partitions: int = 1, **configs: Any) -> str:
        name = f"hostile-{uuid.uuid4().hex[:12]}"
        named = {key.replace("_", "."): str(value) for key, value in configs.items()}
        topics.create(bootstrap, name, partitions, named)
        return name

    return create


@dataclass(slots=True)
class Neighbour:
    """A client that does nothing but produce and read back, all the time, on one connection."""

    bootstrap: str
    topic: str
    rounds: int = 0
    errors: list[str] = field(default_factory=list)
    is_done: threading.Event = field(default_factory=threading.Event)

    def live(self) -> None:
        try:
            with Connection(self.bootstrap, timeout_s=30) as connection:
                while not self.is_done.is_set():
                    self._round(connection)
        except (AssertionError, EndOfConnectionError, OSError) as error:
            self.errors.append(repr(error))

    def _round(self, connection: Connection) -> None:
        value = b"round %d" % self.rounds
        sent = produce(connection, self.topic, batches.build([value]))
        assert (sent.error_code, sent.base_offset) == (NONE, self.rounds)
        part = fetch(connection, self.topic, offset=self.rounds, max_wait_ms=5000, min_bytes=1)
        assert [found for _, _, found in batches.records_in(part.records)] == [value]
        self.rounds += 1
        # It is there to be disturbed, not to keep a core busy.
        self.is_done.wait(0.01)


@pytest.fixture(scope="session")
def neighbour(bootstrap: str, new_topic: Callable[..., str]) -> Iterator[Neighbour]:
    one = Neighbour(bootstrap, new_topic())
    thread = threading.Thread(target=one.live, name="neighbour")
    thread.start()
    try:
        yield one
    finally:
        one.is_done.set()
        thread.join()


@pytest.fixture(autouse=True)
def _nobody_else_notices(neighbour: Neighbour, broker: BrokerProcess | None) -> Iterator[None]:
    """After each test: the neighbour goes on without an error, and memory is within bounds."""
    rounds = neighbour.rounds
    before = broker.memory_bytes() if broker is not None else 0
    yield
    if broker is not None:
        assert broker.is_running, f"the broker died:\n{broker.log()[-6000:]}"
    eventually(lambda: neighbour.rounds > rounds or neighbour.errors, "the neighbour goes on", 30)
    assert neighbour.errors == []
    if broker is not None:
        grown = broker.memory_bytes() - before
        assert grown < MEMORY_GROWTH_MAX, f"memory grew by {grown / MIB:.0f} MiB"


@pytest.fixture
def lines_about(broker: BrokerProcess | None) -> Callable[[Connection], list[str] | None]:
    """The test's lines of the log that name a connection's port; None for a foreign broker."""
    start = len(broker.log()) if broker is not None else 0

    def find(connection: Connection) -> list[str] | None:
        if broker is None:
            return None
        port = re.compile(rf":{connection.port}\b")
        return [line for line in broker.log()[start:].splitlines() if port.search(line)]

    return find
