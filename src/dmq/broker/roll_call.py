"""Whether the brokers that we are linked with still answer: asked before a client is told whom to call.

A client whose leader was killed asks the next broker at once, often a moment before that broker's own
link has ended, and would hear that the dead one leads. Clients believe it for a while: librdkafka looks
again after a second. So each linked broker is called first. When all have answered, or their links
have ended, or `PATIENCE_MS` have passed (one is stopped, or cut off), what the table of leaders
says is as new as it can be.

A round serves all who asked before it began, and only one is under way: a thousand clients that ask at
once cost a round trip or two. Called by leadership.py.
"""

from collections.abc import Callable

from dmq.broker.answer import Answer
from dmq.broker.peers import Peers

HERE = "here"
"""A verb between brokers, without words."""
PATIENCE_MS = 20
"""A client waits no longer for its answer. What it asks for on the same connection waits, too."""


class RollCall:
    """See the module."""

    def __init__(self, peers: Peers | None) -> None:
        self._peers = peers
        self._round: list[Callable[[], None]] = []
        """Who is told at the end of the round that is under way."""
        self._next: list[Callable[[], None]] = []
        self._missing = 0
        if peers is not None:
            peers.serve(HERE, lambda node, body: Answer.of(b""))

    def then(self, action: Callable[[], None]) -> None:
        """Call it when everybody has answered who is there."""
        self._next.append(action)
        if not self._missing:
            self._begin()

    def _begin(self) -> None:
        self._round, self._next = self._next, []
        nodes = [] if self._peers is None else self._peers.linked()
        self._missing = len(nodes) + 1  # One for ourselves: answers may come while we ask.
        for node in nodes:
            assert self._peers is not None
            self._peers.call(node, HERE, b"", PATIENCE_MS).on_done(self._answered)
        self._count()

    def _answered(self, answer: Answer[bytes]) -> None:
        """Well or not: who does not know the verb is there, and a link that ended is known to."""
        self._count()

    def _count(self) -> None:
        self._missing -= 1
        if self._missing:
            return
        actions, self._round = self._round, []
        for action in actions:
            action()
        if self._next and not self._missing:
            self._begin()
