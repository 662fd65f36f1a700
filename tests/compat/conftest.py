"""The broker and the clients that the compatibility tests share, one of each per session.

`DMQ_TEST_BOOTSTRAP=host:port` puts the same tests to another broker, Apache Kafka for one: they
pass there unchanged, which is what makes them a judge. Foreign programs are built before the first
test, so that no test's time limit pays for a compiler.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compat import topics
from compat.clients.aio import AioKafka
from compat.clients.client import Client
from compat.clients.confluent import Confluent
from compat.clients.kafka_python import KafkaPython
from compat.clients.kcat import Kcat
from compat.clients.kcat import is_here as kcat_is_here
from compat.clients.program import ForeignClient
from compat.process import BrokerProcess
from foreign import programs

NewTopic = Callable[..., str]
_LOCAL: dict[str, Callable[[str], Client]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "kcat": Kcat,
}
_BUILT = pytest.StashKey[dict[str, tuple[str, ...] | programs.BuildError]]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the foreign programs that the collected tests name."""
    if session.config.option.collectonly:
        return
    # A process of several that run tests has no terminal.
    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    say = (lambda line: reporter.write_line(f"foreign: {line}")) if reporter else lambda line: None
    built = session.config.stash.setdefault(_BUILT, {})
    wanted = {mark.args[0] for item in session.items for mark in item.iter_markers("foreign")}
    for name in sorted(wanted - built.keys()):
        if programs.missing_tools(name):
            continue
        try:
            built[name] = programs.command(name, say)
        except programs.BuildError as error:
            built[name] = error


@pytest.fixture(scope="session")
def foreign_command(request: pytest.FixtureRequest) -> Callable[[str], tuple[str, ...]]:
    """The command line of a foreign program; skips where its tools are missing."""

    def find(name: str) -> tuple[str, ...]:
        if missing := programs.missing_tools(name):
            pytest.skip(f"{name} needs {', '.join(missing)}, which this machine does not have")
        built = request.config.stash[_BUILT][name]
        if isinstance(built, programs.BuildError):
            raise built
        return built

    return find


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess | None]:
    """Our broker's process; None when the tests are put to another broker."""
    if os.environ.get("DMQ_TEST_BOOTSTRAP"):
        yield None
        return
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    try:
        yield process
        process.stop()
    finally:
        process.kill()


@pytest.fixture(scope="session")
def bootstrap(broker: BrokerProcess | None) -> str:
    return broker.bootstrap if broker is not None else os.environ["DMQ_TEST_BOOTSTRAP"]


@pytest.fixture(autouse=True)
def _broker_is_up(broker: BrokerProcess | None) -> Iterator[None]:
    """Names the test after which the broker was gone, and shows its last words."""
    yield
    if broker is not None:
        assert broker.is_running, f"the broker died:\n{broker.log()[-6000:]}"


def unique(prefix: str = "topic") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic() -> str:
    """A name that no topic has yet."""
    return unique()


@pytest.fixture(scope="session")
def new_topic(bootstrap: str) -> NewTopic:
    """Creates a topic: `new_topic(partitions=1, **configs)`, with `_` for `.` in their names."""

    def create(partitions: int = 1, **configs: Any) -> str:
        name = unique()
        named = {key.replace("_", "."): str(value) for key, value in configs.items()}
        topics.create(bootstrap, name, partitions, named)
        return name

    return create


@pytest.fixture(scope="session")
def clients(
    bootstrap: str, foreign_command: Callable[[str], tuple[str, ...]]
) -> Iterator[Callable[[str], Any]]:
    """A client by name, made at first use and kept for the session."""
    made: dict[str, Client] = {}

    def find(name: str) -> Client:
        if name == "kcat" and not kcat_is_here():
            pytest.skip("kcat is not installed (apt package kcat)")
        if name not in made:
            made[name] = (
                _LOCAL[name](bootstrap)
                if name in _LOCAL
                else ForeignClient(name, foreign_command(name), bootstrap)
            )
        return made[name]

    yield find
    for client in made.values():
        client.close()


@pytest.fixture
def confluent(clients: Callable[[str], Any]) -> Confluent:
    """The client that tests use when it does not matter which."""
    found = clients("confluent")
    assert isinstance(found, Confluent)
    return found


@pytest.fixture
def client(request: pytest.FixtureRequest, clients: Callable[[str], Any]) -> Client:
    found: Client = clients(request.param)
    return found


@pytest.fixture
def data_folder(broker: BrokerProcess | None) -> Path:
    if broker is None:
        pytest.skip("the data folder of a foreign broker is not ours to read")
    return broker.data
