"""Who is up: in the ears of one broker, and by the word of the metadata's leader."""

import struct
from collections.abc import Callable

import pytest
from unit.broker.multiraft.wiring import Broker, World

from dmq.broker.answer import Answer
from dmq.broker.peers import Handler, Peers
from dmq.broker.presence import DOWN_MS, HEARD, LISTED, Presence
from dmq.errors import ProtocolError


class Wire(Peers):
    """The peer doors of a world: casts arrive at once, where a session is."""

    def __init__(self, world: World, broker: Broker, others: dict[int, "Wire"]) -> None:
        self._world = world
        self._number = broker.number
        self._others = others
        self._handlers: dict[str, Handler] = {}
        others[broker.number] = self

    def serve(self, verb: str, handler: Handler, *, is_open: bool = False) -> None:
        self._handlers[verb] = handler

    def linked(self) -> list[int]:
        return [to for sender, to in self._world.sessions if sender == self._number]

    def cast(self, node: int, verb: str, body: bytes) -> None:
        if (self._number, node) not in self._world.cuts:
            answer: Answer[bytes] = self._others[node]._handlers[verb](self._number, body)
            assert answer.is_done


class Stage:
    """Three brokers whose group stands for the metadata."""

    def __init__(self) -> None:
        self.world = World(3)
        self.leader = self.world.elected()
        self._wires: dict[int, Wire] = {}
        self.presence: dict[int, Presence] = {}
        for broker in self.world.brokers.values():
            self.begin(broker)
        self.run(100)

    def begin(self, broker: Broker) -> None:
        """Its process starts, and was told nothing."""
        self.presence[broker.number] = Presence(
            broker.number,
            broker.replica,
            broker.node.links,
            Wire(self.world, broker, self._wires),
            lambda: self.world.now,
            lambda: [1, 2, 3],
        )

    def run(self, ms: int) -> None:
        for _ in range(0, ms, 50):
            self.world.pass_time(50, step=50)
            for number, presence in self.presence.items():
                if self.world[number].is_up:
                    presence.tick()

    def listed(self, number: int) -> set[int]:
        return {number, *self.presence[number].listed()}


def everybody_but(stage: Stage, number: int) -> list[int]:
    return [other for other in stage.presence if other != number]


def test_a_broker_that_is_cut_off_goes_on_naming_the_others() -> None:
    stage = Stage()
    for victim in (stage.leader, stage.world.others(stage.leader)[0]):
        for other in stage.world.others(victim):
            stage.world.cut(victim.number, other.number)
        stage.run(3 * DOWN_MS)
        assert stage.presence[victim.number].heard() == []
        assert stage.listed(victim.number) == {1, 2, 3}
        stage.world.heal()
        stage.run(3000)


def test_the_others_name_who_is_silent_for_a_while_only() -> None:
    stage = Stage()
    victim = stage.world.others(stage.leader)[0].number
    others = everybody_but(stage, victim)
    for other in others:
        stage.world.cut(victim, other)
    stage.run(DOWN_MS - 1000)
    assert all(stage.listed(other) == {1, 2, 3} for other in others)
    assert all(victim not in stage.presence[other].heard() for other in others)
    stage.run(3000)
    assert all(stage.listed(other) == set(others) for other in others)


def test_one_that_died_is_named_until_a_restart_should_be_over() -> None:
    stage = Stage()
    victim = stage.world.others(stage.leader)[0]
    others = everybody_but(stage, victim.number)
    victim.kill()
    stage.run(DOWN_MS - 1000)
    assert all(victim.number not in stage.presence[other].heard() for other in others)
    assert all(stage.listed(other) == {1, 2, 3} for other in others)
    stage.run(3000)
    assert all(stage.listed(other) == set(others) for other in others)


def test_a_link_that_is_cut_between_two_takes_neither_off_the_list() -> None:
    stage = Stage()
    one, two = (broker.number for broker in stage.world.others(stage.leader))
    stage.world.cut(one, two)
    stage.run(2 * DOWN_MS)
    assert two not in stage.presence[one].heard()
    assert all(stage.listed(number) == {1, 2, 3} for number in stage.presence)


def test_who_is_cut_off_from_the_leader_alone_stays_on_the_list() -> None:
    """Together with the third it may lead partitions, and clients reach it: those that are not told
    of it send what is under way to it again."""
    stage = Stage()
    far, near = (broker.number for broker in stage.world.others(stage.leader))
    stage.world.cut(stage.leader.number, far)
    stage.run(3 * DOWN_MS)
    assert stage.leader.replica.is_leader
    assert far not in stage.presence[stage.leader.number].heard()
    assert all(stage.listed(number) == {1, 2, 3} for number in stage.presence)
    stage.world.cut(near, far)
    stage.run(1000)
    assert stage.listed(near) == {1, 2, 3}
    stage.run(DOWN_MS)
    assert stage.listed(near) == stage.listed(stage.leader.number) == {1, 2, 3} - {far}


def test_one_that_left_the_cluster_is_not_listed_for_what_others_say() -> None:
    stage = Stage()
    presence = stage.presence[stage.leader.number]
    presence._hear_of(2, struct.pack(">iii", 1, 3, 7))
    stage.run(3000)
    assert stage.listed(stage.leader.number) == {1, 2, 3}


@pytest.mark.parametrize("verb", [LISTED, HEARD])
def test_what_is_no_list_of_brokers_is_refused(verb: str) -> None:
    stage = Stage()
    handlers = stage._wires[stage.leader.number]._handlers
    with pytest.raises(ProtocolError):
        handlers[verb](1, b"abc")


def test_only_the_leader_of_the_metadata_is_believed() -> None:
    stage = Stage()
    one, two = (broker.number for broker in stage.world.others(stage.leader))
    said: Callable[[int, bytes], Answer[bytes]] = stage.presence[one]._hear
    stage.world.cut(one, two)
    stage.run(2 * DOWN_MS)
    said(two, b"")
    assert stage.listed(one) == {1, 2, 3}


def restarted_without(stage: Stage, silent: Broker) -> tuple[Broker, Broker]:
    """Another broker starts again, and never has a link with this one; and who is left."""
    again, last = stage.world.others(silent)
    again.kill()
    stage.world.cut(silent.number, last.number)
    again.start()
    stage.world.connect(again, last)
    stage.world.reopen(again)
    stage.begin(again)
    return again, last


def test_who_was_just_started_names_all_until_it_is_told() -> None:
    stage = Stage()
    again, _ = restarted_without(stage, stage.leader)
    assert stage.listed(again.number) == {1, 2, 3}


def test_a_leader_that_was_just_started_takes_nobody_off_the_list_whom_it_could_not_hear() -> None:
    """A client that is not told of a broker sends what is under way to it again."""
    stage = Stage()
    silent = stage.leader
    again, last = restarted_without(stage, silent)
    stage.run(3000)
    (leader,) = [broker for broker in stage.world.leaders if broker is not silent]
    if leader is not again:
        leader.replica.transfer(again.me, stage.world.now)
        stage.world.until(lambda: again.replica.is_leader)
    stage.run(DOWN_MS - 4000)
    for number in (again.number, last.number):
        assert stage.listed(number) == {1, 2, 3}
    stage.run(2 * DOWN_MS)
    for number in (again.number, last.number):
        assert stage.listed(number) == {again.number, last.number}


def test_a_broker_without_a_door_for_others_names_nobody() -> None:
    """Though its metadata may know some: it was one of several once."""
    stage = Stage()
    broker = stage.leader
    links = broker.node.links
    alone = Presence(broker.number, broker.replica, links, None, lambda: 0, lambda: [1, 2, 7])
    links.by_peer.clear()
    alone.tick()
    assert alone.listed() == []
