"""Groups and transactions as the Java client (both group protocols, transactions version 2) and franz-go
use them: sharing, leaving, going on, all or nothing, fencing.

Runs unchanged against Apache Kafka with DMQ_TEST_BOOTSTRAP.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from compat.clients.client import Client, Record
from compat.conftest import NewTopic, unique
from compat.eventually import eventually
from foreign.programs import Program, ProgramError

pytestmark = pytest.mark.timeout(180)
SETTLES_WITHIN_S = 60.0
PARTITIONS = 4
FENCED = (47, 90)
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED."""


def of(library: str, how: str, *, is_slow: bool = False) -> Any:
    marks = [pytest.mark.foreign(library), *([pytest.mark.slow] if is_slow else [])]
    return pytest.param((library, how), marks=marks, id=f"{library}-{how}")


WAYS = [
    of("java", "eager"),
    of("java", "cooperative"),
    of("java", "new"),
    of("franz", "cooperative"),
]
CHAINS = [of("java", "cooperative", is_slow=True), of("java", "new"), of("franz", "cooperative")]
LIBRARIES = [pytest.param(name, marks=pytest.mark.foreign(name)) for name in ("java", "franz")]


@pytest.fixture(scope="module")
def program(
    bootstrap: str, foreign_command: Callable[[str], tuple[str, ...]]
) -> Iterator[Callable[[str], Program]]:
    """A running program by its library's name."""
    running: dict[str, Program] = {}

    def find(name: str) -> Program:
        if name not in running:
            running[name] = Program(foreign_command(name), bootstrap)
        return running[name]

    yield find
    for one in running.values():
        one.close()


class Member:
    """A member inside of a program, and what it saw."""

    def __init__(self, program: Program, topic: str, group: str, how: str, **more: str) -> None:
        self._program, self._id = program, unique("member")
        self.assigned: set[int] = set()
        self.seen: list[tuple[int, str]] = []
        program.call("join", id=self._id, topic=topic, group=group, how=how, **more)

    def poll(self) -> None:
        answer = self._program.call("poll", id=self._id)
        self.assigned = set(answer["assigned"])
        self.seen += [(one["partition"], one["value"]) for one in answer["records"]]

    def commit(self) -> None:
        self._program.call("commit", id=self._id)

    def leave(self) -> None:
        self._program.call("leave", id=self._id)


def settle(condition: Callable[[], bool], what: str, *members: Member) -> None:
    def turn() -> bool:
        for member in members:
            member.poll()
        return condition()

    eventually(turn, what, SETTLES_WITHIN_S)


def fill(confluent: Client, topic: str, count: int, start: int = 0) -> set[tuple[int, str]]:
    for partition in range(PARTITIONS):
        values = [Record(None, b"%d" % number) for number in range(start, start + count)]
        confluent.produce(topic, values, partition=partition)
    return {(p, str(number)) for p in range(PARTITIONS) for number in range(start, start + count)}


@pytest.mark.parametrize("way", WAYS)
def test_members_share_hand_over_and_go_on(
    way: tuple[str, str],
    program: Callable[[str], Program],
    confluent: Client,
    new_topic: NewTopic,
) -> None:
    library, how = way
    topic, group = new_topic(partitions=PARTITIONS), unique("group")
    running = program(library)
    early = fill(confluent, topic, 5)
    first = Member(running, topic, group, how)
    settle(lambda: set(first.seen) == early, "the first member reads all", first)
    first.commit()
    second = Member(running, topic, group, how)
    both = [first, second]
    settle(
        lambda: (
            [len(member.assigned) for member in both] == [2, 2]
            and not first.assigned & second.assigned
        ),
        "both own half",
        *both,
    )
    late = fill(confluent, topic, 5, start=5)
    settle(lambda: set(first.seen + second.seen) == early | late, "both read on", *both)
    assert set(second.seen) <= late, "what was committed is not read again"
    for member in both:
        member.commit()
    first.leave()
    settle(lambda: len(second.assigned) == PARTITIONS, "the other takes over", second)
    last = fill(confluent, topic, 2, start=10)
    settle(lambda: last <= set(second.seen), "it reads on everywhere", second)
    assert not {one for one in second.seen if one in early}, "nothing is read again"
    second.leave()


@pytest.mark.parametrize("way", [of("java", "cooperative"), of("franz", "cooperative")])
def test_a_static_member_comes_back_to_its_partitions(
    way: tuple[str, str], program: Callable[[str], Program], new_topic: NewTopic
) -> None:
    library, how = way
    topic, group = new_topic(partitions=PARTITIONS), unique("group")
    running = program(library)
    stays = Member(running, topic, group, how, instance="stays")
    comes = Member(running, topic, group, how, instance="comes")
    settle(lambda: len(stays.assigned) == len(comes.assigned) == 2, "both own half", stays, comes)
    before = set(comes.assigned)
    comes.leave()  # A static member's close says nothing to the group.
    again = Member(running, topic, group, how, instance="comes")
    settle(lambda: again.assigned == before, "it has its partitions again", stays, again)
    assert len(stays.assigned) == 2
    stays.leave()
    again.leave()


class Transactor:
    """A transactional producer inside of a program."""

    def __init__(self, program: Program, name: str) -> None:
        self._program, self._id = program, unique("producer")
        program.call("txn_start", id=self._id, name=name)

    def __getattr__(self, what: str) -> Callable[..., Any]:
        return lambda **more: self._program.call(f"txn_{what}", id=self._id, **more)

    def run(self, topic: str, *values: str, commits: bool = True) -> None:
        self.begin()
        self.send(topic=topic, values=list(values))
        if commits:
            self.commit()
        else:
            self.abort()


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_committed_is_read_and_the_aborted_is_not(
    library: str, program: Callable[[str], Program], new_topic: NewTopic
) -> None:
    running, topic = program(library), new_topic()
    producer = Transactor(running, unique("transactional"))
    producer.run(topic, "a", "b")
    producer.run(topic, "lost", commits=False)
    producer.run(topic, "end")
    for reader in ("java", "franz"):
        member = Member(program(reader), topic, unique("group"), "cooperative")
        settle(lambda: (0, "end") in member.seen, f"{reader} reads to the end", member)  # noqa: B023
        assert [value for _, value in member.seen] == ["a", "b", "end"], reader
        member.leave()
    producer.close()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_zombie_is_fenced_and_its_transaction_aborted(
    library: str, program: Callable[[str], Program], new_topic: NewTopic
) -> None:
    running, topic, name = program(library), new_topic(), unique("transactional")
    zombie = Transactor(running, name)
    zombie.begin()
    zombie.send(topic=topic, values=["lost"])
    heir = Transactor(running, name)
    heir.run(topic, "kept")
    with pytest.raises(ProgramError) as refused:
        zombie.commit()
    assert refused.value.code in FENCED
    member = Member(running, topic, unique("group"), "cooperative")
    settle(lambda: bool(member.seen), "the committed is read", member)
    assert [value for _, value in member.seen] == ["kept"]
    member.leave()
    zombie.close()
    heir.close()


@pytest.mark.parametrize("way", CHAINS)
def test_a_chain_puts_out_each_record_once_though_each_batch_is_aborted_first(
    way: tuple[str, str],
    program: Callable[[str], Program],
    confluent: Client,
    new_topic: NewTopic,
) -> None:
    library, how = way
    running, name = program(library), unique("chain")
    source, target = new_topic(partitions=PARTITIONS), new_topic()
    wanted = fill(confluent, source, 10)
    links = {"topic": source, "target": target, "group": name, "name": name, "how": how}
    done = running.call("chain", 90.0, count=len(wanted), **links)
    assert done["moved"] == len(wanted)
    assert done["aborted"] > 0
    member = Member(running, target, unique("group"), "cooperative")
    settle(lambda: len(member.seen) >= len(wanted), "the output is read", member)
    values = [value for _, value in member.seen]
    assert sorted(values) == sorted(f"out of {value}" for _, value in wanted)
    member.leave()
    follower = Member(running, source, name, how)
    settle(lambda: len(follower.assigned) == PARTITIONS, "the group goes on", follower)
    follower.poll()
    assert follower.seen == [], "the offsets were committed with the output"
    follower.leave()
