"""Server-side assignors: every partition once, evenly, and with few moves."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from dmq.machines.groups.assignors import MemberSpec, assign, unpack
from dmq.machines.groups.surroundings import TopicImage

TOPICS = [UUID(int=n + 1) for n in range(4)]
COUNTS = st.lists(st.integers(0, 12), min_size=4, max_size=4)
ALIKE = st.integers(1, 9).map(lambda size: [tuple(TOPICS)] * size)
UNLIKE = st.lists(
    st.sets(st.sampled_from(TOPICS)).map(lambda found: tuple(sorted(found))),
    min_size=1,
    max_size=9,
)


def images(counts: list[int]) -> dict[UUID, TopicImage]:
    return {
        topic: TopicImage(str(topic), topic, count)
        for topic, count in zip(TOPICS, counts, strict=True)
    }


def spec(reads: list[tuple[UUID, ...]]) -> dict[str, MemberSpec]:
    return {f"member{n}": MemberSpec(topics) for n, topics in enumerate(reads)}


@given(st.sampled_from(["uniform", "sticky", "range"]), COUNTS, ALIKE | UNLIKE)
def test_every_partition_that_is_read_has_one_member_that_reads_it(
    name: str, counts: list[int], reads: list[tuple[UUID, ...]]
) -> None:
    members, topics = spec(reads), images(counts)
    shares = assign(name, members, topics)
    given_out = [one for share in shares.values() for one in unpack(share)]
    wanted = {topic for found in members.values() for topic in found.topic_ids}
    expected = [(topic, n) for topic in wanted for n in range(topics[topic].partition_count)]
    assert sorted(given_out) == sorted(expected)
    for member_id, share in shares.items():
        assert {topic for topic, _ in share} <= set(members[member_id].topic_ids)


@given(COUNTS, ALIKE)
def test_members_that_read_the_same_get_the_same_number(
    counts: list[int], reads: list[tuple[UUID, ...]]
) -> None:
    loads = [
        len(unpack(share)) for share in assign("uniform", spec(reads), images(counts)).values()
    ]
    assert max(loads) - min(loads) <= 1


@given(COUNTS, UNLIKE)
def test_no_partition_could_go_to_somebody_with_much_less(
    counts: list[int], reads: list[tuple[UUID, ...]]
) -> None:
    members = spec(reads)
    shares = {
        name: unpack(share) for name, share in assign("uniform", members, images(counts)).items()
    }
    for name, share in shares.items():
        for topic, _ in share:
            for other, found in members.items():
                if topic in found.topic_ids:
                    assert len(shares[name]) - len(shares[other]) <= 1


@settings(max_examples=60)
@given(COUNTS, st.integers(2, 9))
def test_who_stays_keeps_what_it_can(counts: list[int], size: int) -> None:
    members, topics = spec([tuple(TOPICS)] * size), images(counts)
    first = assign("uniform", members, topics)
    same = {name: found._replace(had=first[name]) for name, found in members.items()}
    assert assign("uniform", same, topics) == first, "nobody moves without need"
    del same["member0"]
    second = assign("uniform", same, topics)
    for name in same:
        assert set(unpack(first[name])) <= set(unpack(second[name])), "nobody gives up for a loss"
    moved = sum(
        len(set(unpack(first[name])) - set(unpack(assign("uniform", more, topics)[name])))
        for more in [same | {"member9": MemberSpec(tuple(TOPICS))}]
        for name in same
    )
    total = sum(counts)
    assert moved <= total // size + 1, "a newcomer takes no more than its share"


def test_ranges_go_together_and_static_members_keep_their_place() -> None:
    topics = images([5, 5, 0, 0])
    members = {
        "z": MemberSpec(tuple(TOPICS), instance_id="a"),
        "y": MemberSpec(tuple(TOPICS), instance_id="b"),
    }
    shares = assign("range", members, topics)
    assert shares["z"] == ((TOPICS[0], (0, 1, 2)), (TOPICS[1], (0, 1, 2)))
    assert shares["y"] == ((TOPICS[0], (3, 4)), (TOPICS[1], (3, 4)))


def test_partitions_go_where_their_replicas_are() -> None:
    racks = tuple(frozenset({f"rack{n % 3}"}) for n in range(9))
    topics = {TOPICS[0]: TopicImage("topic", TOPICS[0], 9, racks)}
    members = {f"m{n}": MemberSpec((TOPICS[0],), rack=f"rack{n}") for n in range(3)}
    shares = assign("uniform", members, topics)
    assert {name: [n % 3 for _, n in unpack(share)] for name, share in shares.items()} == {
        "m0": [0, 0, 0],
        "m1": [1, 1, 1],
        "m2": [2, 2, 2],
    }


def test_nobody_gets_nothing_of_nothing() -> None:
    assert assign("uniform", {}, {}) == {}
    assert assign("range", {"one": MemberSpec(())}, {}) == {"one": ()}
