"""Who dies, who comes, and those whom it does not concern: they keep their partitions and read on.

A broker of its own, whose sessions are short. Nothing is timed but against the session's length.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from compat import topics
from compat.clients.confluent import Confluent
from compat.clients.members import ConfluentMember, Member, Seen, join
from compat.conftest import unique
from compat.test_groups import fill, settle

from dmq.testing import Broker

pytestmark = [pytest.mark.compat, pytest.mark.timeout(240)]

PARTITIONS = 6
SESSION_MS = 6000
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.heartbeat.interval.ms": 300,
}
GENTLE = ("confluent-cooperative", "confluent-new")
"""Those that take nothing from a member that it may keep."""
Join = Callable[..., Member]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker(SETTINGS, in_process=False) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def group() -> str:
    return unique("group")


@pytest.fixture
def topic(address: str) -> str:
    name = unique("topic")
    topics.create(address, name, PARTITIONS)
    return name


@pytest.fixture
def joining(address: str, topic: str, group: str) -> Iterator[Join]:
    made: list[Member] = []

    def make(kind: str) -> Member:
        made.append(join(kind, address, topic, group, session_ms=str(SESSION_MS)))
        return made[-1]

    yield make
    for member in made:
        with suppress(RuntimeError):
            member.close()


@pytest.fixture
def mortal(
    address: str, topic: str, group: str
) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a member that can be killed."""
    started: list[subprocess.Popen[str]] = []

    def start(kind: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "compat.clients.member_process"]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        process = subprocess.Popen(
            [*command, kind, address, topic, group, str(SESSION_MS)],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def shares(*members: Member) -> list[int]:
    return [len(member.assigned()) for member in members]


@pytest.mark.parametrize("kind", [*GENTLE, "kafka-python-eager"])
def test_a_dead_members_partitions_move_when_its_session_ends(
    kind: str, joining: Join, mortal: Callable[[str], subprocess.Popen[str]]
) -> None:
    first, second = joining(kind), joining(kind)
    both = [first, second]
    settle(both, lambda: shares(*both) == [3, 3], "the two have a half each")
    victim = mortal(kind)
    settle(both, lambda: shares(*both) == [2, 2], "the third has its share")
    kept = [member.assigned() for member in both]
    for member in both:
        if isinstance(member, ConfluentMember):
            member.revoked.clear()
    victim.kill()
    victim.wait()
    died_at = time.monotonic()
    settle(both, lambda: shares(*both) == [3, 3], "the others take over")
    waited_s = time.monotonic() - died_at
    assert waited_s > SESSION_MS / 1000 / 2, "a closed connection alone is no death"
    assert not first.assigned() & second.assigned()
    if kind in GENTLE:
        for member, before in zip(both, kept, strict=True):
            assert isinstance(member, ConfluentMember)
            assert before <= member.assigned()
            assert member.revoked == set(), "what a member may keep is not taken from it"


@pytest.mark.parametrize("kind", GENTLE)
def test_members_read_on_while_others_rebalance(
    kind: str, address: str, topic: str, joining: Join
) -> None:
    """A slow member, one that does not poll, holds the rebalance up: its partitions are awaited."""
    quick, slow = joining(kind), joining(kind)
    settle([quick, slow], lambda: shares(quick, slow) == [3, 3], "a half each")
    producer = Confluent(address)
    newcomer = joining(kind)
    settle([quick, newcomer], lambda: shares(quick) == [2], "the quick one gave one up")
    seen: list[Seen] = []
    mine = quick.assigned()
    for _ in range(3):
        seen.clear()
        fill(producer, topic, 5, PARTITIONS)
        settle(
            [quick, newcomer],
            lambda: (
                len({(one.partition, one.offset) for one in seen if one.partition in mine}) >= 10
            ),
            "the quick one reads what is new",
            seen,
        )
    assert shares(newcomer)[0] < 2, "the rebalance is not over"
    assert quick.assigned() == mine
    assert isinstance(quick, ConfluentMember)
    assert not quick.revoked & mine, "what it keeps was never taken from it"
    settle([quick, slow, newcomer], lambda: shares(quick, slow, newcomer) == [2, 2, 2], "all share")
    assert quick.assigned() == mine
    producer.close()
