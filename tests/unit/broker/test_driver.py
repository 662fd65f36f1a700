"""The driver of turns: what happens in one pass of the loop, and what waits for the next."""

from collections.abc import Callable
from typing import Any, cast

from dmq.broker.driver import GroupDriver
from dmq.broker.multiraft.frames import Outgoing
from dmq.broker.multiraft.node import GroupNode
from dmq.broker.multiraft.turn import GroupTurn
from dmq.broker.timers import Timers


class Loop:
    """An event loop that a test turns by hand."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> "Loop":
        return self

    def cancel(self) -> None:
        """As a timer that is never due."""

    def one_pass(self) -> None:
        soon, self.soon = self.soon, []
        for callback, args in soon:
            callback(*args)


class BusyNode:
    """A node that has so many turns to do, none of which needs the disk."""

    def __init__(self, turns: int) -> None:
        self.turns_left = turns
        self.wake: Callable[[], None] = lambda: None
        self.timers = Timers()

    def begin_turn(self, now: int) -> GroupTurn | None:
        return GroupTurn(None) if self.turns_left else None

    def end_turn(self, now: int, turn: GroupTurn) -> list[Outgoing]:
        self.turns_left -= 1
        return []

    def next_deadline(self) -> int:
        return 1000


def test_turns_in_a_row_leave_the_loop_its_passes() -> None:
    """Thousands of groups that lost their leader are served in many turns: heartbeats must leave and
    sockets be read between them, or the other brokers would lose this one too."""
    loop, node = Loop(), BusyNode(turns=3)
    driver = GroupDriver(
        cast(GroupNode, node),
        loop,
        clock=lambda: 0,
        syncer=cast(Any, None),
        workers=cast(Any, None),
        send=lambda frames: None,
        on_failure=lambda error: None,
    )
    driver.start()
    left = []
    while loop.soon:
        loop.one_pass()
        left.append(node.turns_left)
    assert left == [2, 1, 0, 0]
