"""Members that come and go, in both protocols: callbacks, what each owns, and nothing read twice."""

from collections.abc import Callable

import pytest
from client.reading import poll_until, read

from dmq.client import Consumer, GroupProtocol, Message, Producer, TopicPartition

NewProducer = Callable[..., Producer]
NewConsumer = Callable[..., Consumer]


class Member:
    """A consumer and what its callbacks were told."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.consumer = consumer
        self.owned: set[TopicPartition] = set()
        self.events: list[str] = []
        consumer.subscribe(topic, on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self.events.append("assigned")
        assert not self.owned & set(partitions)
        self.owned |= set(partitions)

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self.events.append("revoked")
        self.consumer.commit()  # Still ours to say.
        assert self.owned >= set(partitions)
        self.owned -= set(partitions)


@pytest.mark.parametrize(
    ("protocol", "assignors"),
    [
        (GroupProtocol.CLASSIC, ["cooperative-sticky"]),
        (GroupProtocol.CLASSIC, ["range"]),
        (GroupProtocol.CONSUMER, ["cooperative-sticky"]),
    ],
    ids=["cooperative", "eager", "consumer"],
)
def test_a_second_member_takes_half_and_gives_it_back(
    new_producer: NewProducer,
    new_consumer: NewConsumer,
    new_topic: Callable[..., str],
    protocol: GroupProtocol,
    assignors: list[str],
) -> None:
    topic = new_topic(4)
    producer = new_producer()

    def fill(round_of: int) -> None:
        for n in range(40):
            producer.send(topic, value=b"%d-%d" % (round_of, n), partition=n % 4)
        producer.flush(60)

    def member() -> Member:
        settings = {"heartbeat.interval.ms": 200} if protocol is GroupProtocol.CLASSIC else {}
        return Member(
            new_consumer(group_protocol=protocol, assignors=assignors, options=settings), topic
        )

    seen: list[Message] = []
    first = member()
    fill(1)
    seen += read(first.consumer, 40)
    assert len(first.owned) == 4

    second = member()
    both = (first.consumer, second.consumer)
    seen += poll_until(
        lambda: len(first.owned) == len(second.owned) == 2, "two partitions each", *both
    )
    assert not first.owned & second.owned
    assert set(second.consumer.assignment()) == second.owned
    fill(2)
    seen += poll_until(lambda: len(seen) >= 0 and _caught_up(both), "all of round two", *both)

    second.consumer.close()
    assert second.events[-1] == "revoked"
    seen += poll_until(lambda: len(first.owned) == 4, "all four again", first.consumer)
    fill(3)
    seen += poll_until(lambda: _caught_up([first.consumer]), "round three", first.consumer)

    places = [(m.topic, m.partition, m.offset) for m in seen]
    assert len(places) == len(set(places)) == 120
    if assignors == ["cooperative-sticky"]:
        assert (
            first.events.count("revoked") == 1
        )  # The two that moved; the others were never let go.


def _caught_up(consumers: "tuple[Consumer, ...] | list[Consumer]") -> bool:
    return all(lag == 0 for consumer in consumers for lag in consumer.lag().values())


def test_an_error_in_a_callback_comes_out_of_poll(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str
) -> None:
    new_producer().send(topic, value=b"x").result(30)
    consumer = new_consumer()

    def fail(partitions: list[TopicPartition]) -> None:
        raise LookupError("no place for it")

    consumer.subscribe(topic, on_assign=fail)
    with pytest.raises(LookupError, match="no place"):
        poll_until(lambda: False, "the error", consumer)
    assert [m.value for m in read(consumer, 1)] == [b"x"]  # The partitions are there all the same.


def begins(messages: list[Message]) -> dict[int, int]:
    """The first offset out of each partition."""
    found: dict[int, int] = {}
    for message in messages:
        found.setdefault(message.partition, message.offset)
    return found


@pytest.mark.parametrize("protocol", list(GroupProtocol))
def test_a_rebalance_while_offsets_are_undecided_does_not_send_readers_back(
    new_producer: NewProducer,
    new_consumer: NewConsumer,
    new_topic: Callable[..., str],
    group: str,
    protocol: GroupProtocol,
) -> None:
    """Offsets of an open transaction are unstable: readers wait, whatever else happens meanwhile."""
    topic = new_topic(partitions=6)
    feeder = new_producer()
    for number in range(60):
        feeder.send(topic, value=b"%d" % number, partition=number % 6)
    feeder.flush(30)

    def member() -> Consumer:
        consumer = new_consumer(
            group_id=group,
            enable_auto_commit=False,
            group_protocol=protocol,
            auto_offset_reset="earliest",
        )
        consumer.subscribe([topic])
        return consumer

    def owns(consumer: Consumer, count: int) -> bool:
        return len(consumer.assignment()) == count

    writer = new_producer(transactional_id=f"{group}-writer")
    first = member()
    poll_until(lambda: owns(first, 6), "the first owns all", first)
    with writer.transaction() as transaction:
        transaction.send_offsets(first, {(topic, p): 4 for p in range(6)})
    one = two = first
    with pytest.raises(LookupError), writer.transaction() as transaction:  # noqa: PT012
        transaction.send_offsets(first, {(topic, p): 7 for p in range(6)})
        first.close()
        one = member()
        came = poll_until(lambda: owns(one, 6), "one owns all", one)
        two = member()
        came += poll_until(lambda: owns(one, 3) and owns(two, 3), "both own half", one, two)
        came += [*one.poll(0.5), *two.poll(0.5)]
        assert begins(came) == {}, "nobody knows yet where to begin"
        raise LookupError("changed my mind")
    rest: list[Message] = []
    poll_until(
        lambda: rest.extend([*one.poll(0.05), *two.poll(0.05)]) or len(begins(rest)) == 6, "read"
    )
    assert begins(rest) == dict.fromkeys(range(6), 4)
