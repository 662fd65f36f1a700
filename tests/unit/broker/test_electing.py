"""Unclean elections: what an order that takes its time is answered, and what none is given without. And
preferred ones, where the leader is handing over already."""

import dataclasses
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from fakes.broker import NODE_ID, FakeBroker
from fakes.peers import Wire
from unit.broker.multiraft.wiring import TOPIC, World

from dmq.broker import electing
from dmq.broker.answer import Answer
from dmq.broker.electing import ACCOUNT, Electing
from dmq.broker.elections import UNCLEAN, Elected
from dmq.broker.leadership import NOBODY
from dmq.broker.multiraft.repair import ASK_AGAIN_MS
from dmq.broker.partition import Partition
from dmq.broker.peers import PeerError
from dmq.errors import ErrorCode, KafkaError, StorageError
from dmq.machines.commands import Done, RecoverPartition

WHERE = ("t", 0)


def damaged() -> tuple[FakeBroker, Partition]:
    broker = FakeBroker()
    (partition,) = broker.create("t")
    for n in range(3):
        partition.replica.produce(broker.batch(b"%d" % n), broker.now, acks=1, timeout_ms=1000)
        broker.turn()
    log = partition.log
    segment = log.segments_list[0]
    at = log.reader(segment).position(1)
    broker.disk.flip(segment.name(), at + 9)
    segment.index, segment.trusted_bytes = None, 0
    segment.hints.clear()
    try:
        log.read(2, 1000, 3)
    except StorageError:
        broker.turn()
    assert not partition.is_leader
    return broker, partition


def elect(broker: FakeBroker) -> Answer[list[Elected]]:
    answer = broker.service.elect_leaders(UNCLEAN, [WHERE], 5000)
    broker.turn()
    return answer


def work(broker: FakeBroker) -> None:
    """First the flush that the damage asked for, then, asked for again, the salvage."""
    for _ in range(2):
        for job in broker.store.maintain(broker.now):
            job.run()
            broker.store.done(job)
        broker.pass_time(ASK_AGAIN_MS)
        broker.turn()


def test_the_offsets_that_are_lost_are_told() -> None:
    broker, partition = damaged()
    answer = elect(broker)
    assert not answer.is_done
    work(broker)
    assert partition.is_leader
    text = "Offsets that were in damaged files are lost: 1 to 1."
    assert answer.get() == [Elected(*WHERE, ErrorCode.NONE, text)]


def test_an_order_that_is_not_obeyed_in_time_was_given_all_the_same() -> None:
    broker, partition = damaged()
    answer = elect(broker)
    broker.pass_time(5001)
    (elected,) = answer.get()
    assert elected.code is ErrorCode.REQUEST_TIMED_OUT
    assert elected.message == "Ordered; broker 1 does not lead yet."
    work(broker)
    assert partition.is_leader
    (again,) = elect(broker).get()
    assert again.code is ErrorCode.ELECTION_NOT_NEEDED


def test_an_order_is_told_of_when_it_was_taken_and_not_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker, partition = damaged()
    refusal: Answer[Done] = Answer()
    refusal.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "nobody leads the metadata"))
    with monkeypatch.context() as refused:
        refused.setattr(Electing, "give_order", lambda electing, order: refusal)
        (elected,) = elect(broker).get()
    assert elected.code is ErrorCode.NOT_CONTROLLER
    assert "goes on" not in caplog.text
    elect(broker)
    assert "t-0 goes on with what broker 1 has, up to offset 3" in caplog.text
    work(broker)
    assert partition.is_leader


class Office:
    """The verb on a wire, and the orders that it gave."""

    def __init__(self, broker: FakeBroker, wire: Wire) -> None:
        self.orders: list[RecoverPartition] = []
        self.electing = Electing(
            NODE_ID,
            lambda: broker.machine.state,
            broker.replicas,
            broker.leadership,
            wire,
            broker.node.timers,
            lambda: broker.now,
            self._take,
        )

    def _take(self, command: RecoverPartition) -> Answer[Done]:
        self.orders.append(command)
        return Answer()


def share(broker: FakeBroker, *nodes: int) -> None:
    """The metadata have these brokers for all partitions of the topic."""
    partitions = broker.machine.state.topics["t"].partitions
    partitions[:] = [dataclasses.replace(one, replicas=nodes) for one in partitions]


def test_who_is_up_and_does_not_tell_what_it_has_is_not_given_up() -> None:
    broker, _ = damaged()
    share(broker, NODE_ID, 2)
    wire = Wire(2)
    office = Office(broker, wire)
    answer = office.electing.elect(UNCLEAN, [WHERE], 5000)
    (asked,) = wire.asked
    assert asked.verb == ACCOUNT
    asked.answer.fail(KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "its replica is not open yet"))
    (elected,) = answer.get()
    assert elected.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert elected.message is not None
    assert elected.message.startswith("Broker 2 is up and did not tell what it has")
    assert office.orders == []

    wire.nodes.clear()  # It was stopped: the operator has heard that it is given up.
    office.electing.elect(UNCLEAN, [WHERE], 5000)
    assert len(office.orders) == 1


def test_a_replica_that_is_not_open_yet_is_not_told_to_be_none() -> None:
    broker, partition = damaged()
    wire = Wire()
    office = Office(broker, wire)
    local = broker.replicas.by_id[partition.topic_id]
    body = electing._BODY.pack(partition.topic_id.bytes, 0, 0)
    assert wire.served[ACCOUNT](2, body).get() != b""
    del local.partitions[0]
    with pytest.raises(KafkaError, match="not open yet"):
        wire.served[ACCOUNT](2, body)
    nobody = electing._BODY.pack(UUID(int=7).bytes, 0, 0)
    with pytest.raises(KafkaError, match="not open yet"):
        wire.served[ACCOUNT](2, nobody)
    (elected,) = office.electing.elect(UNCLEAN, [WHERE], 5000).get()
    assert elected.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def many(
    broker: FakeBroker, wire: Wire, count: int, monkeypatch: pytest.MonkeyPatch
) -> Answer[list[Elected]]:
    """Elections of so many partitions of which nobody knows a leader."""
    broker.create("t", count)
    share(broker, 2, 3)
    monkeypatch.setattr(broker.leadership, "of", lambda *key: NOBODY)
    everything = [("t", number) for number in range(count)]
    return Office(broker, wire).electing.elect(UNCLEAN, everything, 5000)


def unreached(wire: Wire, number: int) -> None:
    wire.asked[number].answer.fail(PeerError("the link ended", was_sent=True))


def test_of_many_partitions_a_few_are_asked_for_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link takes only so many calls; those beyond fail as if nobody were there."""
    monkeypatch.setattr(electing, "AT_ONCE", 2)
    wire = Wire(2)
    answer = many(FakeBroker(), wire, 5, monkeypatch)
    assert len(wire.asked) == 2
    for number in range(5):
        unreached(wire, number)
        assert len(wire.asked) == min(number + 3, 5)
    assert {one.code for one in answer.get()} == {ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_what_was_not_begun_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(electing, "AT_ONCE", 1)
    broker, wire = FakeBroker(), Wire(2)
    answer = many(broker, wire, 2, monkeypatch)
    broker.now += 5001
    unreached(wire, 0)
    assert [one.code for one in answer.get()] == [
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ]


def test_a_handover_that_is_under_way_is_no_refusal() -> None:
    """The controller brings leaders back by itself: who asks at that moment gets what it asks for."""
    world = World(3)
    leader = world.elected()
    heir, other = (one for one in world.brokers.values() if one is not leader)
    world.pass_time(1000)
    partition = SimpleNamespace(replica=leader.replica, is_leader=True)
    office = Electing(
        leader.me.node,
        cast("Any", None),
        cast("Any", SimpleNamespace(by_id={TOPIC: SimpleNamespace(partitions={0: partition})})),
        cast("Any", None),
        None,
        cast("Any", None),
        lambda: world.now,
        cast("Any", None),
    )

    def asked(node: int) -> bytes:
        return office._serve(leader.me.node, electing._BODY.pack(TOPIC.bytes, 0, node)).get()

    assert asked(heir.me.node) == electing._YES
    assert leader.replica.is_leader
    assert asked(heir.me.node) == electing._YES, "it is on its way"
    assert asked(other.me.node) == electing._NO, "this one would not become the leader"


def test_no_order_is_given_while_who_is_up_can_not_be_asked() -> None:
    """A broker that was just started has no link yet with others that are up and have everything."""
    broker, _ = damaged()
    up: list[int] = [2]
    orders: list[RecoverPartition] = []

    def take(order: RecoverPartition) -> Answer[Done]:
        orders.append(order)
        return Answer.of(Done())

    office = Electing(
        NODE_ID,
        lambda: broker.machine.state,
        broker.replicas,
        broker.leadership,
        None,
        broker.node.timers,
        lambda: broker.now,
        take,
        lambda: up,
    )
    broker.machine.state.topics["t"].partitions[0].replicas = (NODE_ID, 2)
    waiting = office.elect(UNCLEAN, [WHERE], 5000)
    broker.pass_time(4000)
    assert not waiting.is_done
    broker.pass_time(1200)
    (elected,) = waiting.get()
    assert elected.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert elected.message is not None
    assert elected.message.startswith("Broker 2 counts as up and can't be asked what it has")
    assert orders == []
    office.elect(UNCLEAN, [WHERE], 5000)
    up.clear()
    broker.pass_time(electing.LOOK_AGAIN_MS)
    assert [order.leader.node for order in orders] == [NODE_ID]
