"""Peer doors without a broker behind them: what happens on links goes into a list.

`Corner` is a door with its events; `run` runs a test on uvloop, as a broker does.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import uvloop
from embedded.eventually import until

from dmq.broker.multiraft.frames import Frame, Hello, Outgoing
from dmq.doors.peer.door import PeerDoor, PeerSettings
from dmq.errors import ProtocolError
from dmq.types import Voter

HOST = "127.0.0.1"
QUICK = PeerSettings(connect_timeout_ms=1000, backoff_ms=5, backoff_max_ms=50)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """On a loop whose every uncaught exception fails the test."""
    failures: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: failures.append(context)
        )
        await test()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert failures == []


def voter(node: int, directory: int = 0) -> Voter:
    return Voter(node, UUID(int=directory or 1000 + node))


def hello(node: int, **other: Any) -> Hello:
    return Hello("cluster", voter(node), 1, 1, 1)._replace(**other)


class Recorder:
    """LinkEvents that remember; refuses what it is told to refuse."""

    def __init__(self, said: Hello) -> None:
        self.hello = said
        self.sessions: dict[int, int] = {}
        """The open session by node."""
        self.events: list[tuple[str, int]] = []
        self.frames: list[tuple[int, Frame]] = []
        self.refuses = False

    def connected(self, hello: Hello, session: int) -> None:
        if self.refuses:
            raise ProtocolError("not today")
        self.events.append(("connected", hello.me.node))
        self.sessions[hello.me.node] = session

    def closed(self, peer: Voter, session: int) -> None:
        self.events.append(("closed", peer.node))
        if self.sessions.get(peer.node) == session:
            del self.sessions[peer.node]

    def refused(self, peer: Voter) -> None:
        self.events.append(("refused", peer.node))

    def receive(self, peer: Voter, session: int, frame: Frame) -> None:
        if self.sessions.get(peer.node) == session:
            self.frames.append((peer.node, frame))

    def count(self, event: str, node: int) -> int:
        return self.events.count((event, node))


class Corner:
    """A door and its events."""

    def __init__(
        self, node: int, settings: PeerSettings = QUICK, port: int = 0, **other: Any
    ) -> None:
        self.node = node
        self.recorder = Recorder(hello(node, **other))
        self.door = PeerDoor(settings, random.Random(node))
        self.port = self.door.listen(HOST, port)

    def open(self, *others: "Corner") -> None:
        self.door.open_links(self.recorder)
        self.know(*others)

    def know(self, *others: "Corner") -> None:
        self.door.know({other.node: (HOST, other.port) for other in others})

    def send(self, to: int, frame: Frame, *, is_bulk: bool = False) -> None:
        session = self.recorder.sessions[to]
        self.door.send([Outgoing(voter(to), session, is_bulk, frame)])

    def has_link(self, *nodes: int) -> bool:
        return sorted(self.recorder.sessions) == sorted(nodes) == sorted(self.door.linked())


async def linked(*corners: Corner) -> None:
    """Every one with every other."""

    def are_linked() -> bool:
        nodes = [corner.node for corner in corners]
        return all(c.has_link(*[n for n in nodes if n != c.node]) for c in corners)

    await until(are_linked, "linked")


def close(*corners: Corner) -> None:
    for corner in corners:
        corner.door.close()
