"""How a broker learns that it was unregistered, or that another process has its number now: it asks, for
nobody sends it the metadata any more.

The record that says so is the last that concerns it, and those who lead the metadata stop sending to it
with that very record: they send to the process that the broker is now, if any. So a broker that has heard
no leader of the metadata for a while asks the others whether it still belongs to them. What they say is
committed. Called by the runtime.
"""

import struct
from collections.abc import Callable
from typing import Protocol

from dmq.broker.answer import Answer
from dmq.broker.host import MachineHost
from dmq.broker.peers import Peers
from dmq.broker.service import Identity
from dmq.errors import DmqError, ProtocolError
from dmq.machines.brokers import is_fenced, is_unregistered
from dmq.machines.state import ClusterState

BELONGS = "belongs"
"""The verb between brokers."""
ASK_MS = 1_000
"""Between questions, and how long an answer may take."""
CALM_MS = 500
"""A leader that was heard for so long at a stretch goes on sending to us. Two processes with one number
take the link with it from each other, and hear it for a moment each time."""
_BODY = struct.Struct(">iq")  # node, broker epoch
_YES, _NO, _FENCED = b"\x01", b"\x00", b"\x02"  # Whoever does not know the last takes it for a yes.


class Member(Protocol):
    """What is asked of the service."""

    broker_epoch: int
    """Of this process's registration, -1 before it."""

    @property
    def identity(self) -> Identity: ...
    @property
    def cluster(self) -> ClusterState: ...


class Farewell:
    """See the module. Without `peers` this broker is alone, and belongs to itself."""

    def __init__(
        self,
        member: Member,
        metadata: MachineHost,
        peers: Peers | None,
        now: Callable[[], int],
        on_unregistered: Callable[[], None],
        on_fenced: Callable[[], None],
    ) -> None:
        self._member = member
        self._metadata = metadata
        self._peers = peers
        self._now = now
        self._on_told = {_NO: on_unregistered, _FENCED: on_fenced}
        self._ask_at = 0
        self._missed_at = -CALM_MS
        """When we last heard no leader."""
        if peers is not None:
            peers.serve(BELONGS, self._serve)

    def tick(self) -> None:
        """Ask, if it seems that we were forgotten."""
        now = self._now()
        if self._metadata.replica.leader is None:
            self._missed_at = now
        if self._member.broker_epoch < 0 or now - self._missed_at >= CALM_MS:
            self._ask_at = now + ASK_MS
        elif now >= self._ask_at and self._peers is not None:
            self._ask(self._peers, now)

    def _ask(self, peers: Peers, now: int) -> None:
        """All that we reach; if that is nobody, whoever comes first."""
        body = _BODY.pack(self._member.identity.node_id, self._member.broker_epoch)
        for node in peers.linked():
            self._ask_at = now + ASK_MS
            peers.call(node, BELONGS, body, ASK_MS).on_done(self._told)

    def _told(self, done: Answer[bytes]) -> None:
        try:
            told = done.get()
        except DmqError:
            return
        if told in self._on_told:
            self._on_told[told]()

    def _serve(self, node: int, body: bytes) -> Answer[bytes]:
        """Raises ProtocolError."""
        if len(body) != _BODY.size:
            raise ProtocolError(f"{len(body)} bytes are no question about a broker")
        asked, epoch = _BODY.unpack(body)
        answer: Answer[bytes] = Answer()
        told = _standing(self._member.cluster, asked, epoch)
        self._metadata.when_settled(lambda is_true: answer.resolve(told if is_true else _YES))
        return answer


def _standing(state: ClusterState, node: int, epoch: int) -> bytes:
    """What the process that registered as `node` with `epoch` is told."""
    if is_unregistered(state, node, epoch):
        return _NO
    return _FENCED if is_fenced(state, node, epoch) else _YES
