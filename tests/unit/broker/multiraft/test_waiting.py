"""Parked acknowledgements: each is answered once, and says no more than is known."""

from dmq.broker.multiraft.waiting import ALL, OWN, Acks, Fetches, FetchWaiter, ParkedAppend
from dmq.errors import ErrorCode
from dmq.types import Position

NONE, GONE = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER


class Log:
    """Acks, and what was answered."""

    def __init__(self) -> None:
        self.acks = Acks()
        self.said: dict[str, ErrorCode] = {}

    def park(self, name: str, position: Position, acks: int = ALL, deadline: int = 0) -> None:
        append = ParkedAppend(position.offset - 1, -1, 10, position, acks)
        append.on_done = lambda code: self.said.setdefault(name, code)
        append.deadline = deadline
        self.acks.park(append)

    def committed(self, p: Position) -> None:
        self.acks.committed(p)
        self.acks.answer(lambda _: NONE)


def test_own_disk_and_majority() -> None:
    log = Log()
    log.park("own", Position(1, 0, 1), OWN)
    log.park("all", Position(1, 0, 2))
    log.acks.durable(Position(1, 0, 2))
    assert log.said == {"own": NONE}
    log.committed(Position(1, 0, 1))
    assert "all" not in log.said
    log.committed(Position(1, 0, 2))
    assert log.said["all"] is NONE
    assert not log.acks


def test_a_majority_without_our_disk_is_enough_for_acks_1() -> None:
    log = Log()
    log.park("own", Position(1, 0, 1), OWN)
    log.committed(Position(1, 0, 1))
    assert log.said == {"own": NONE}


def test_a_cut_is_told_when_what_replaced_it_is_committed() -> None:
    log = Log()
    log.park("kept", Position(1, 0, 5))
    log.park("cut", Position(1, 0, 6))
    log.park("own", Position(1, 0, 7), OWN)
    log.acks.cut(Position(1, 0, 5))
    assert log.said == {}
    log.committed(Position(1, 0, 5))
    assert log.said == {"kept": NONE}
    log.acks.durable(Position(2, 0, 9))
    assert "own" not in log.said, "its own disk does not have it any more"
    log.committed(Position(2, 0, 5))
    assert log.said == {"kept": NONE, "cut": GONE, "own": GONE}


def test_what_was_cut_may_come_back() -> None:
    log = Log()
    log.park("a", Position(1, 0, 5))
    log.park("b", Position(1, 1, 5))
    log.acks.cut(Position(1, 0, 4))
    log.acks.regained(Position(1, 0, 4))
    log.acks.regained(Position(2, 0, 9))
    log.acks.regained(Position(1, 0, 6))
    log.committed(Position(3, 0, 6))
    assert log.said == {"a": NONE, "b": GONE}


def test_what_came_back_and_was_refused_here_may_be_committed_elsewhere() -> None:
    log = Log()
    log.park("a", Position(1, 0, 5))
    log.acks.cut(Position(1, 0, 4))
    log.acks.regained(Position(1, 0, 5))
    log.acks.refused(Position(1, 0, 4), ErrorCode.KAFKA_STORAGE_ERROR)
    assert log.said == {}, "others have it"
    log.acks.regained(Position(1, 0, 5))
    log.committed(Position(3, 0, 6))
    assert log.said == {"a": NONE}


def test_who_lost_patience_counts_until_its_bytes_are_on_disk() -> None:
    log = Log()
    settled: list[int] = []
    for offset in (1, 2, 3):
        log.park(f"{offset}", Position(1, 0, offset), deadline=100)
    for append in log.acks._uncommitted:
        append.on_settled = settled.append
    log.acks.durable(Position(1, 0, 1))
    assert settled == [], "somebody waits for it"
    log.acks.expire(100)
    assert set(log.said.values()) == {ErrorCode.REQUEST_TIMED_OUT}
    assert len(settled) == 1
    log.acks.durable(Position(1, 0, 2))
    assert len(settled) == 2
    log.acks.cut(Position(1, 0, 2))
    assert len(settled) == 3, "its bytes are nowhere"
    log.committed(Position(2, 0, 3))
    assert len(settled) == 3
    assert not log.acks


def test_after_a_reset_nobody_knows() -> None:
    log = Log()
    log.park("a", Position(1, 0, 5))
    log.park("b", Position(1, 0, 6), OWN)
    log.acks.reset()
    assert set(log.said.values()) == {ErrorCode.REQUEST_TIMED_OUT}
    assert not log.acks


def test_a_refusal_of_the_disk_is_definite() -> None:
    log = Log()
    log.park("a", Position(1, 0, 5))
    log.park("b", Position(1, 0, 6))
    log.park("c", Position(1, 0, 7), OWN)
    log.acks.refused(Position(1, 0, 5), ErrorCode.KAFKA_STORAGE_ERROR)
    assert log.said == dict.fromkeys("cb", ErrorCode.KAFKA_STORAGE_ERROR)


def test_who_is_told_of_a_refusal_may_wait_anew() -> None:
    log = Log()
    log.park("a", Position(1, 0, 6))
    append = ParkedAppend(6, -1, 10, Position(1, 0, 7), ALL)
    append.on_done = lambda code: log.park("again", Position(1, 0, 5))
    log.acks.park(append)
    log.acks.refused(Position(1, 0, 4), ErrorCode.KAFKA_STORAGE_ERROR)
    log.committed(Position(1, 0, 5))
    assert log.said == {"a": ErrorCode.KAFKA_STORAGE_ERROR, "again": NONE}


def test_patience() -> None:
    log = Log()
    log.park("short", Position(1, 0, 5), deadline=100)
    log.park("long", Position(1, 0, 6), deadline=200)
    log.park("patient", Position(1, 0, 7))
    log.acks.expire(99)
    assert log.said == {}
    log.acks.expire(100)
    assert log.said == {"short": ErrorCode.REQUEST_TIMED_OUT}
    log.committed(Position(1, 0, 7))
    assert log.said["long"] is log.said["patient"] is NONE


def test_committed_ones_wait_for_their_verdict_in_order() -> None:
    log = Log()
    for offset in (1, 2, 3):
        log.park(str(offset), Position(1, 0, offset))
    log.acks.committed(Position(1, 0, 3))
    log.acks.answer(lambda p: NONE if p.offset == 1 else None)
    assert log.said == {"1": NONE}
    assert log.acks.has_committed
    log.acks.fail(GONE)
    assert log.said == {"1": NONE, "2": GONE, "3": GONE}


def test_fetches_count_what_becomes_visible() -> None:
    fetches, woken = Fetches(), []
    fetches.wait(FetchWaiter(30, lambda: woken.append("30")))
    gone = FetchWaiter(1, lambda: woken.append("gone"))
    fetches.wait(gone)
    fetches.forget(gone)
    fetches.came(5, 20)
    fetches.came(6, 20)
    fetches.came(7, 100)
    fetches.cut(6)
    fetches.shown(5)
    assert woken == []
    fetches.shown(6)
    assert woken == ["30"]
    fetches.wait(FetchWaiter(1, lambda: woken.append("all")))
    fetches.wake_all()
    assert woken == ["30", "all"]
