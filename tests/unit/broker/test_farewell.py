"""What a broker that hears no metadata leader asks, what it is told, and what it does then."""

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from fakes.peers import Asked, Wire

from dmq.broker.farewell import ASK_MS, BELONGS, Farewell
from dmq.broker.peers import PeerError
from dmq.config.broker import BrokerConfig
from dmq.config.rules import ConfigRules
from dmq.config.settings import Settings
from dmq.errors import ProtocolError
from dmq.machines.brokers import register
from dmq.machines.cluster import ClusterMachine
from dmq.machines.commands import RegisterBroker
from dmq.machines.state import ClusterState

TICK_MS = 50
YES, NO, FENCED = b"\x01", b"\x00", b"\x02"


class Metadata:
    """As much of the host as is asked; `leader` is what a test sets."""

    def __init__(self) -> None:
        self.replica = SimpleNamespace(leader=object())
        self.waiting: list[Callable[[bool], None]] = []

    def when_settled(self, callback: Callable[[bool], None]) -> None:
        self.waiting.append(callback)


class Broker:
    """A broker with the number 2 that just lost its leader; `noted` is what it was told."""

    def __init__(self, *linked: int, epoch: int = 7, state: ClusterState | None = None) -> None:
        self.wire, self.metadata, self.now = Wire(*linked), Metadata(), 0
        self.noted: list[str] = []
        self.farewell = Farewell(
            cast(
                "Any",
                SimpleNamespace(
                    broker_epoch=epoch, identity=SimpleNamespace(node_id=2), cluster=state
                ),
            ),
            cast("Any", self.metadata),
            self.wire,
            lambda: self.now,
            lambda: self.noted.append("unregistered"),
            lambda: self.noted.append("fenced"),
        )
        self.farewell.tick()
        self.metadata.replica.leader = None

    def asks(self) -> list[Asked]:
        """It has heard nobody for long enough."""
        self.now += ASK_MS
        self.farewell.tick()
        return self.wire.asked


def registered(*directories: int) -> ClusterState:
    """A cluster in which processes with these directories registered as broker 2, one after another:
    their epochs are 1, 2 and so on."""
    machine = ClusterMachine(ConfigRules(Settings(BrokerConfig())), {})
    for number in directories:
        command = RegisterBroker(2, UUID(int=number), UUID(int=100 + number))
        for record in register(machine.state, command).records:
            machine.apply(record)
    return machine.state


def told(state: ClusterState, node: int, epoch: int, *, is_true: bool = True) -> bytes:
    """What a broker with this state says to one that asks."""
    broker = Broker(state=state)
    answer = broker.wire.served[BELONGS](node, struct.pack(">iq", node, epoch))
    assert not answer.is_done, "what it rests on may be undone"
    (settled,) = broker.metadata.waiting
    settled(is_true)
    return answer.get()


def test_who_hears_a_leader_asks_nobody() -> None:
    broker = Broker(1, 3)
    broker.metadata.replica.leader = object()
    assert broker.asks() == []
    assert Broker(1, epoch=-1).asks() == [], "it is not registered yet"


def test_who_hears_none_asks_all_that_it_reaches() -> None:
    asked = Broker(1, 3).asks()
    assert {(one.verb, one.timeout_ms) for one in asked} == {(BELONGS, ASK_MS)}
    assert [(one.node, one.body) for one in asked] == [
        (1, struct.pack(">iq", 2, 7)),
        (3, struct.pack(">iq", 2, 7)),
    ]


def test_who_reaches_nobody_asks_the_first_that_it_reaches() -> None:
    broker = Broker()
    assert broker.asks() == []
    broker.wire.nodes = [3]
    broker.farewell.tick()
    assert [one.node for one in broker.wire.asked] == [3]
    broker.farewell.tick()
    assert len(broker.wire.asked) == 1


def test_who_hears_a_leader_for_moments_only_asks() -> None:
    """Another process with its number takes the link from it again and again."""
    broker = Broker(1)
    for moment in range(ASK_MS // TICK_MS):
        broker.metadata.replica.leader = object() if moment % 10 else None
        broker.now += TICK_MS
        broker.farewell.tick()
    assert len(broker.wire.asked) == 1


def test_an_election_is_no_reason_to_ask() -> None:
    broker = Broker(1)
    for moment in range(3 * ASK_MS // TICK_MS):
        broker.metadata.replica.leader = object() if moment > 5 else None
        broker.now += TICK_MS
        broker.farewell.tick()
    assert broker.wire.asked == []


@pytest.mark.parametrize(
    ("answer", "noted"), [(YES, []), (NO, ["unregistered"]), (FENCED, ["fenced"]), (b"?", [])]
)
def test_what_it_is_told_decides(answer: bytes, noted: list[str]) -> None:
    broker = Broker(1)
    (asked,) = broker.asks()
    asked.answer.resolve(answer)
    assert broker.noted == noted


def test_no_answer_says_nothing() -> None:
    broker = Broker(1)
    (asked,) = broker.asks()
    asked.answer.fail(PeerError("it went away", was_sent=True))
    assert broker.noted == []


def test_the_process_that_has_the_number_belongs() -> None:
    assert told(registered(1, 2), node=2, epoch=2) == YES
    assert told(registered(1), node=2, epoch=5) == YES, "its registration is not applied yet"


def test_the_process_that_had_the_number_before_is_fenced() -> None:
    assert told(registered(1, 2), node=2, epoch=1) == FENCED


def test_who_left_is_unregistered() -> None:
    assert told(registered(1), node=3, epoch=1) == NO


def test_what_is_not_settled_is_not_told() -> None:
    assert told(registered(1, 2), node=2, epoch=1, is_true=False) == YES
    assert told(registered(1), node=3, epoch=1, is_true=False) == YES


def test_what_is_no_question_is_refused() -> None:
    broker = Broker()
    with pytest.raises(ProtocolError, match="3 bytes"):
        broker.wire.served[BELONGS](1, b"abc")
