"""How a broker learns that it was unregistered: it asks, for nobody sends it the metadata any more.

The record that unregisters a broker is the last that concerns it, and those who lead the metadata stop
sending to it with that very record. So a broker that has heard no leader of the metadata for a while asks
the others whether it still belongs to them. What they say is committed. Called by the runtime.
"""

import struct
from collections.abc import Callable
from typing import Protocol

from dmq.broker.answer import Answer
from dmq.broker.host import MachineHost
from dmq.broker.peers import Peers
from dmq.broker.service import Identity
from dmq.errors import DmqError, ProtocolError
from dmq.machines.brokers import is_unregistered
from dmq.machines.state import ClusterState

BELONGS = "belongs"
"""The verb between brokers."""
ASK_MS = 1_000
"""Between questions, and how long an answer may take."""
_BODY = struct.Struct(">iq")  # node, broker epoch
_YES, _NO = b"\x01", b"\x00"


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
    ) -> None:
        self._member = member
        self._metadata = metadata
        self._peers = peers
        self._now = now
        self._on_unregistered = on_unregistered
        self._ask_at = 0
        if peers is not None:
            peers.serve(BELONGS, self._serve)

    def tick(self) -> None:
        """Ask, if it seems that we were forgotten."""
        now, epoch = self._now(), self._member.broker_epoch
        if self._peers is None or epoch < 0 or self._metadata.replica.leader is not None:
            self._ask_at = now + ASK_MS
        elif now >= self._ask_at:
            self._ask_at = now + ASK_MS
            body = _BODY.pack(self._member.identity.node_id, epoch)
            for node in self._peers.linked():
                self._peers.call(node, BELONGS, body, ASK_MS).on_done(self._told)

    def _told(self, done: Answer[bytes]) -> None:
        try:
            is_gone = done.get() == _NO
        except DmqError:
            return
        if is_gone:
            self._on_unregistered()

    def _serve(self, node: int, body: bytes) -> Answer[bytes]:
        """Raises ProtocolError."""
        if len(body) != _BODY.size:
            raise ProtocolError(f"{len(body)} bytes are no question about a broker")
        asked, epoch = _BODY.unpack(body)
        answer: Answer[bytes] = Answer()

        def settled(is_true: bool) -> None:
            is_gone = is_true and is_unregistered(self._member.cluster, asked, epoch)
            answer.resolve(_NO if is_gone else _YES)

        self._metadata.when_settled(settled)
        return answer
