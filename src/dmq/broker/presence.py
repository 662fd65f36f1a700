"""Which brokers are up: as this one hears them, and as clients are told.

    heard    a session, and a frame within the last half second: for whoever needs an answer soon
    listed   what the metadata's leader says; clients get their list of brokers from it

Two notions, because a broker that is cut off hears nobody and is wrong about all of them. Clients
drop brokers that they are not told of, and with them the requests under way: librdkafka takes those for
not written and sends them again. A list that a broker made up by itself would write records twice, so
it is the metadata leader's, as in Kafka, and a broker without a leader keeps the last one. One that was
told nothing yet, because it was just started, names all that are registered.

The leader takes a broker off the list after `DOWN_MS` of silence: longer than it would itself go on to
lead without a majority, and longer than a restart takes. Not of silence towards itself alone: the
others tell it whom they hear, for who is cut off from it may lead partitions together with one of them,
and clients reach it. What it did not hear before it led says nothing: the list that it found stands for
so long. That nobody listens at its address is no reason to do it sooner: what librdkafka has queued for
a broker that it drops is gone without a word, and who waits for a transaction's offsets waits for ever.
Called by the runtime and the service.
"""

import struct
from collections.abc import Callable, Collection

from dmq.broker.answer import Answer
from dmq.broker.multiraft.links import PeerLinks
from dmq.broker.multiraft.replica import Replica
from dmq.broker.peers import Peers
from dmq.errors import ProtocolError
from dmq.types import Voter

LISTED = "listed"
HEARD = "heard"
"""The verbs between brokers: the leader's word, and what the others tell it."""
DOWN_MS = 9_000
"""As Kafka's broker.session.timeout.ms."""
TELL_MS = 2_000
"""Both are said again after this: whoever heard it before it knew its leader did not believe it, and a
leader that has just begun was told nothing."""
_NODE = struct.Struct(">i")


class Presence:
    """See the module. Without `peers` this broker is alone."""

    def __init__(
        self,
        node_id: int,
        metadata: Replica,
        links: PeerLinks,
        peers: Peers | None,
        now: Callable[[], int],
        registered: Callable[[], Collection[int]],
    ) -> None:
        """`registered`: all brokers that the metadata know."""
        self._node_id = node_id
        self._metadata = metadata
        self._links = links
        self._peers = peers
        self._now = now
        self._registered = registered
        self._told: frozenset[int] | None = None
        """All others that are up, by the metadata leader's last word; None: there was none yet."""
        self._found: frozenset[int] = frozenset()
        """What it was when we began to lead the metadata."""
        self._led_since: int | None = None
        self._tell_at = 0
        self._said: tuple[Voter, list[int]] | None = None
        """To which leader we last told whom we hear."""
        self._told_of: dict[int, int] = {}
        """When any other one last said that it hears this broker."""
        if peers is not None:
            peers.serve(LISTED, self._hear)
            peers.serve(HEARD, self._hear_of)

    def heard(self) -> list[int]:
        """The other brokers that can be asked now."""
        return sorted(
            voter.node
            for voter, link in self._links.by_peer.items()
            if link.is_open and link.is_live
        )

    def listed(self) -> list[int]:
        """The other brokers that clients are told of."""
        return sorted(self._last_word().union(self.heard()))

    def _last_word(self) -> frozenset[int]:
        if self._told is not None or self._peers is None:
            return self._told or frozenset()
        return frozenset(self._registered()) - {self._node_id}

    def tick(self) -> None:
        """As the metadata's leader: see who is up, and tell everybody. Else tell it whom we hear."""
        if self._peers is None:
            return
        now = self._now()
        if not self._metadata.is_leader:
            self._led_since = None
            self._tell_leader(self._peers, now)
            return
        if self._led_since is None:
            self._led_since, self._found = now, self._last_word()
            self._tell_at, self._said = 0, None
        up = self._up(now, self._led_since)
        if up == self._told and now < self._tell_at:
            return
        self._told, self._tell_at = up, now + TELL_MS
        body = _packed({self._node_id, *up})
        for node in self._peers.linked():
            self._peers.cast(node, LISTED, body)

    def _tell_leader(self, peers: Peers, now: int) -> None:
        leader, heard = self._metadata.leader, self.heard()
        if leader is None or leader.node not in heard:
            return
        if self._said != (leader, heard) or now >= self._tell_at:
            self._said, self._tell_at = (leader, heard), now + TELL_MS
            peers.cast(leader.node, HEARD, _packed(heard))

    def _up(self, now: int, led_since: int) -> frozenset[int]:
        links = self._links.by_peer.items()
        up = {v.node for v, link in links if link.is_live or now - link.heard_at < DOWN_MS}
        up |= {node for node, told_at in self._told_of.items() if now - told_at < DOWN_MS}
        return frozenset(up | self._found if now - led_since < DOWN_MS else up)

    def _hear(self, node: int, body: bytes) -> Answer[bytes]:
        """Raises ProtocolError."""
        up = _unpacked(body)
        leader = self._metadata.leader
        if leader is not None and leader.node == node:
            self._told = up - {self._node_id}
        return Answer.of(b"")

    def _hear_of(self, node: int, body: bytes) -> Answer[bytes]:
        """Raises ProtocolError."""
        now, registered = self._now(), frozenset(self._registered())
        others = (_unpacked(body) | {node}) & registered - {self._node_id}
        self._told_of.update(dict.fromkeys(others, now))
        return Answer.of(b"")


def _packed(nodes: Collection[int]) -> bytes:
    return b"".join(_NODE.pack(node) for node in sorted(nodes))


def _unpacked(body: bytes) -> frozenset[int]:
    """Raises ProtocolError."""
    if len(body) % _NODE.size:
        raise ProtocolError(f"{len(body)} bytes are no list of brokers")
    return frozenset(number for (number,) in _NODE.iter_unpack(body))
