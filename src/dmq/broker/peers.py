"""The other brokers, as this broker sees them: links for the groups, calls and casts for all else.

The seam between the broker and its peer door (doors/peer), which fulfils `Peers` and reports what
happens on links to a `LinkEvents`. Values and protocols only: no socket, no clock. A call is sent at
most once, never again by itself: who asks knows best whether asking twice is harmless.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from dmq.broker.answer import Answer
from dmq.broker.multiraft.frames import Frame, Hello, Outgoing
from dmq.errors import DmqError, ErrorCode
from dmq.types import Voter

STRANGER = -1
"""The caller's node id, for a handler, if the caller does not belong to the cluster yet."""

Address = tuple[str, int]
"""Host and port of a peer door."""
Handler = Callable[[int, bytes], Answer[bytes]]
"""Given the caller's node id and the body. Raises or fails with DmqError; the caller gets a
KafkaError with its code and text."""
LinkWatcher = Callable[[int, bool], None]
"""Given a node id, and whether a session with it began or the last one ended."""


class PeerError(DmqError):
    """A call got no answer.

    `was_sent` False: nobody did anything, and that is definite. True: it may have been done.
    """

    code = ErrorCode.NETWORK_EXCEPTION

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class Peers(Protocol):
    """What the broker may ask of its peer door."""

    def serve(self, verb: str, handler: Handler, *, is_open: bool = False) -> None:
        """Answer calls and casts of this verb; `is_open`: strangers' calls too."""

    def know(self, addresses: Mapping[int, Address]) -> None:
        """The brokers to be linked with, by id, never ourselves; replaces what was known."""

    def call(self, node: int, verb: str, body: bytes, timeout_ms: int) -> Answer[bytes]:
        """Ask once. Fails with PeerError, or with the KafkaError that the handler gave."""

    def cast(self, node: int, verb: str, body: bytes) -> None:
        """Tell, in order; lost without a link or with its end."""

    def send(self, frames: list[Outgoing]) -> None:
        """What a GroupNode wants sent."""

    def watch(self, watcher: LinkWatcher) -> None:
        """Be told of sessions. One that takes the place of another: an end, then a beginning."""

    def linked(self) -> list[int]:
        """Brokers with which there is a session now."""

    def close(self) -> None: ...


class LinkEvents(Protocol):
    """What happens on links, for whoever drives a GroupNode (broker/driver.py)."""

    @property
    def hello(self) -> Hello:
        """What a new session says first."""

    def connected(self, hello: Hello, session: int) -> None:
        """A session began. Raises ProtocolError if it must not."""

    def closed(self, peer: Voter, session: int) -> None: ...

    def refused(self, peer: Voter) -> None:
        """Nobody listens where this peer lived."""

    def receive(self, peer: Voter, session: int, frame: Frame) -> None:
        """Raises ProtocolError if the peer broke the protocol: end its session."""
