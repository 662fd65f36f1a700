"""Who is asked before a client is told who leads."""

from functools import partial

from fakes.peers import Wire

from dmq.broker.peers import PeerError
from dmq.broker.roll_call import HERE, PATIENCE_MS, RollCall


def test_a_broker_without_others_is_sure_at_once() -> None:
    noted: list[str] = []
    RollCall(None).then(partial(noted.append, "alone"))
    RollCall(Wire()).then(partial(noted.append, "not linked"))
    assert noted == ["alone", "not linked"]


def test_everybody_answers_first() -> None:
    wire, noted = Wire(2, 3), list[str]()
    RollCall(wire).then(partial(noted.append, "told"))
    first, second = wire.asked
    assert (first.node, second.node) == (2, 3)
    assert {(one.verb, one.timeout_ms) for one in wire.asked} == {(HERE, PATIENCE_MS)}
    first.answer.resolve(b"")
    assert noted == []
    second.answer.resolve(b"")
    assert noted == ["told"]


def test_an_answer_that_can_not_come_is_one() -> None:
    """The link ended, it took too long, or the broker is too old to know the question."""
    wire, noted = Wire(2, 3), list[str]()
    RollCall(wire).then(partial(noted.append, "told"))
    first, second = wire.asked
    first.answer.resolve(b"")
    second.answer.fail(PeerError("it went away", was_sent=True))
    assert noted == ["told"]


def test_who_asks_in_mid_round_waits_for_the_next_and_shares_it() -> None:
    wire, noted = Wire(2), list[str]()
    roll_call = RollCall(wire)
    for name in ("first", "second", "third"):
        roll_call.then(partial(noted.append, name))
    assert len(wire.asked) == 1
    wire.answer()
    assert noted == ["first"], "the answer may have left before the others asked"
    assert len(wire.asked) == 1
    wire.answer()
    assert noted == ["first", "second", "third"]
    assert wire.asked == []


def test_who_asks_again_when_told_is_told_again() -> None:
    wire, noted = Wire(2), list[str]()
    roll_call = RollCall(wire)
    roll_call.then(lambda: roll_call.then(partial(noted.append, "again")))
    roll_call.then(partial(noted.append, "other"))
    for _ in range(3):
        wire.answer()
    assert sorted(noted) == ["again", "other"]


def test_the_question_is_answered_here() -> None:
    wire = Wire(2)
    RollCall(wire)
    assert wire.served[HERE](2, b"").get() == b""
