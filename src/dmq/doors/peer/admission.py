"""What newcomers are answered: who we are, and how they get into the cluster.

    admission = Admission(directory_id, node_id=1, peers=(1, 2, 3), cluster_id=None)
    admission.open(door)                    before the door listens
    admission.cluster_id = "…"              as soon as it is on disk: nobody may take us for empty again
    admission.member = …                    when this broker takes part

A broker whose directory is empty says so; that is all that another one needs to form a cluster with it.
Only the metadata leader registers newcomers, the others say where it is. Decides nothing about a
registration: that is the cluster machine's.
"""

from collections.abc import Iterable
from uuid import UUID

from dmq.broker.answer import Answer
from dmq.broker.membership import Member as Member
from dmq.broker.peers import Peers
from dmq.doors.peer.entry import (
    JOIN,
    PROBE,
    Admitted,
    Postponed,
    Probed,
    Redirected,
    decode_join,
    encode_probed,
    encode_reply,
)


class Admission:
    """See the module."""

    def __init__(
        self,
        directory: UUID,
        *,
        node_id: int,
        peers: Iterable[int] = (),
        cluster_id: str | None = None,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.member: Member | None = None
        self._directory = directory
        self._peers = tuple(sorted(peers))

    def open(self, peers: Peers) -> None:
        peers.serve(PROBE, self.probe, is_open=True)
        peers.serve(JOIN, self.join, is_open=True)

    def probe(self, node: int, body: bytes) -> Answer[bytes]:
        return Answer.of(
            encode_probed(Probed(self.node_id, self._directory, self.cluster_id, self._peers))
        )

    def join(self, node: int, body: bytes) -> Answer[bytes]:
        """Raises ProtocolError."""
        command = decode_join(body)
        member = self.member
        if member is None:
            return _later("this broker does not take part in a cluster yet")
        leader = member.metadata_leader()
        if leader is None:
            return _later("the cluster has no metadata leader now")
        if leader != member.node_id:
            address = member.addresses().get(leader)
            if address is None:
                return _later(f"broker {leader} leads, and its address is not known yet")
            return Answer.of(encode_reply(Redirected(address)))
        return member.register(command).map(lambda result: _admit(member, result))


def _admit(member: Member, result: bytes) -> bytes:
    return encode_reply(
        Admitted(member.cluster_id, result, member.metadata_voters(), dict(member.addresses()))
    )


def _later(reason: str) -> Answer[bytes]:
    return Answer.of(encode_reply(Postponed(reason)))
