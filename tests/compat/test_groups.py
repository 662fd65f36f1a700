"""Consumer groups, classic and new, as four libraries use them: sharing, leaving, coming back.

Every wait polls all members of the group: they move only then. Runs unchanged against
Apache Kafka with DMQ_TEST_BOOTSTRAP.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from compat.clients.client import Client, Record
from compat.clients.members import KINDS, ONE_OF_EACH, Member, Seen, join
from compat.conftest import NewTopic, unique
from compat.eventually import eventually

PARTITIONS = 4
# Kafka's new protocol heartbeats every 5 s, and each hand-over takes a few heartbeats.
SETTLES_WITHIN_S = 45.0
SESSION_S = 45.0
"""Of Kafka's new protocol by default, and here of the classic members that must not wait for it."""
Join = Callable[..., Member]


@pytest.fixture
def group() -> str:
    return unique("group")


@pytest.fixture
def joining(bootstrap: str, group: str) -> Iterator[Join]:
    """Makes members of `group`, and sees to it that none outlives its test."""
    made: list[Member] = []

    def make(kind: str, topic: str, **options: str) -> Member:
        member = join(kind, bootstrap, topic, group, **options)
        made.append(member)
        return member

    yield make
    for member in made:
        with suppress(RuntimeError):  # Some are closed already, and say so.
            member.close()


def settle(
    members: list[Member], condition: Callable[[], bool], what: str, seen: list[Seen] | None = None
) -> None:
    """Polls all members until `condition`; what they read goes to `seen`."""
    # At the same time: a member may wait inside of its poll until the others have joined too.
    with ThreadPoolExecutor(len(members)) as pool:

        def turn() -> bool:
            for found in list(pool.map(lambda member: member.poll(), members)):
                if seen is not None:
                    seen.extend(found)
            return condition()

        eventually(turn, what, SETTLES_WITHIN_S)


def read(member: Member, count: int) -> list[Seen]:
    """What `member` reads, until it has read `count` records."""
    seen: list[Seen] = []
    settle([member], lambda: len(seen) >= count, f"{count} records", seen)
    return seen


def fill(confluent: Client, topic: str, count: int, partitions: int = 1) -> None:
    for partition in range(partitions):
        values = [Record(None, b"%d/%d" % (partition, index)) for index in range(count)]
        confluent.produce(topic, values, partition=partition)


@pytest.mark.parametrize("kind", KINDS)
def test_members_share_and_a_leaving_one_hands_over(
    kind: str, joining: Join, confluent: Client, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    everything = set(range(PARTITIONS))
    session = {"session_ms": str(int(SESSION_S * 1000))}
    first = joining(kind, topic, **session)
    settle([first], lambda: first.assigned() == everything, "the first member has all")
    second = joining(kind, topic, **session)
    settle(
        [first, second],
        lambda: (
            len(first.assigned()) == len(second.assigned()) == PARTITIONS // 2
            and first.assigned() | second.assigned() == everything
        ),
        "the two have a half each",
    )
    fill(confluent, topic, 3, PARTITIONS)
    seen: list[Seen] = []
    settle([first, second], lambda: len(seen) >= 3 * PARTITIONS, "all is read", seen)
    assert sorted((one.partition, one.offset) for one in seen) == [
        (partition, offset) for partition in range(PARTITIONS) for offset in range(3)
    ]
    left_at = time.monotonic()
    second.close()
    settle([first], lambda: first.assigned() == everything, "the first has all again")
    assert time.monotonic() - left_at < SESSION_S / 2, "it was told, and waited for no session"


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_a_group_goes_on_where_it_committed(
    kind: str, joining: Join, confluent: Client, new_topic: NewTopic
) -> None:
    topic = new_topic()
    fill(confluent, topic, 10)
    member = joining(kind, topic)
    assert [one.offset for one in read(member, 10)] == list(range(10))
    assert member.committed(0) is None
    member.commit(0, 6)
    assert member.committed(0) == 6
    member.close()
    again = joining(kind, topic)
    assert [one.value for one in read(again, 4)] == [b"0/%d" % index for index in range(6, 10)]
    again.seek(0, 2)
    assert [one.offset for one in read(again, 8)] == list(range(2, 10))
    assert again.committed(0) == 6, "seeking is not committing"


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_without_an_offset_the_reset_policy_says_where_to_begin(
    kind: str, joining: Join, confluent: Client, new_topic: NewTopic
) -> None:
    topic = new_topic()
    fill(confluent, topic, 5)
    member = joining(kind, topic, reset="latest")
    seen: list[Seen] = []

    def has_new() -> bool:
        # Where "latest" is, is known some time after the assignment: records come until one shows.
        fill(confluent, topic, 1)
        return bool(seen)

    settle([member], has_new, "a record from after joining", seen)
    assert min(one.offset for one in seen) >= 5


@pytest.mark.parametrize("kind", ["confluent-eager", "kafka-python-eager"])
def test_a_static_member_comes_back_to_its_partitions(
    kind: str, joining: Join, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    first = joining(kind, topic, instance="first")
    second = joining(kind, topic, instance="second")
    both = [first, second]
    settle(both, lambda: all(len(one.assigned()) == 2 for one in both), "a half each")
    kept, given_back = first.assigned(), second.assigned()
    second.close()
    settle([first], lambda: first.assigned() == kept, "the other keeps its half")
    back = joining(kind, topic, instance="second")
    settle([first, back], lambda: back.assigned() == given_back, "its own half again")
    assert first.assigned() == kept


@pytest.mark.parametrize("kind", ["confluent-eager", "kafka-python-eager", "aiokafka"])
def test_the_new_protocol_and_the_classic_share_one_group(
    kind: str, joining: Join, new_topic: NewTopic
) -> None:
    """A running classic group becomes a new one when a new member joins (online migration)."""
    topic = new_topic(partitions=PARTITIONS)
    classic = joining(kind, topic)
    settle([classic], lambda: len(classic.assigned()) == PARTITIONS, "the classic one has all")
    new = joining("confluent-new", topic)
    settle(
        [classic, new],
        lambda: (
            len(classic.assigned()) == len(new.assigned()) == 2
            and not classic.assigned() & new.assigned()
        ),
        "a half each",
    )
    classic.close()
    settle([new], lambda: len(new.assigned()) == PARTITIONS, "the new one has all")
