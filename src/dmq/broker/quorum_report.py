"""The verb `quorum`: how the metadata's replicas are doing, told by their leader (DescribeQuorum).

Only the leader knows how far the others are, so whoever is asked asks it.
"""

import json
from collections.abc import Callable
from uuid import UUID

from dmq.broker.answer import Answer
from dmq.broker.host import MachineHost
from dmq.broker.multiraft.links import PeerLinks
from dmq.broker.peers import Peers
from dmq.broker.quorum import QuorumNode, QuorumReplica, QuorumView
from dmq.errors import DmqError, ErrorCode, KafkaError, ProtocolError
from dmq.machines.brokers import PEER_LISTENER, peer_addresses
from dmq.machines.state import ClusterState
from dmq.types import NO_LEADER, Voter

QUORUM = "quorum"
ASK_MS = 5_000


class QuorumReport:
    """See the module."""

    def __init__(
        self,
        me: Voter,
        host: MachineHost,
        state: Callable[[], ClusterState],
        links: PeerLinks,
        peers: Peers | None,
        now: Callable[[], int],
        wall: Callable[[], int],
    ) -> None:
        self._me = me
        self._host = host
        self._state = state
        self._links = links
        self._peers = peers
        self._now = now
        self._wall = wall
        if peers is not None:
            peers.serve(QUORUM, lambda node, body: Answer.of(_encode(self._view())))

    def quorum(self) -> Answer[QuorumView]:
        """The quorum as its leader sees it. Fails with LEADER_NOT_AVAILABLE without one."""
        replica = self._host.replica
        leader = replica.leader
        if replica.is_leader:
            return Answer.of(self._view())
        answer: Answer[QuorumView] = Answer()
        if leader is None or self._peers is None:
            answer.fail(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "nobody leads the metadata"))
            return answer

        def told(done: Answer[bytes]) -> None:
            try:
                answer.resolve(_decode(done.get()))
            except DmqError as error:
                answer.fail(error)

        self._peers.call(leader.node, QUORUM, b"", ASK_MS).on_done(told)
        return answer

    def _view(self) -> QuorumView:
        """Raises KafkaError if we don't lead."""
        replica = self._host.replica
        core = replica.core
        if not replica.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ends = {voter: position.offset for voter, position in core.matches().items()}
        ends[self._me] = replica.log_end_offset
        voters = core.voters
        others = [voter for voter in (*replica.observers, *replica.target) if voter not in voters]
        addresses = peer_addresses(self._state(), but=NO_LEADER)
        return QuorumView(
            self._me.node,
            core.epoch,
            replica.high_watermark,
            [self._row(voter, ends.get(voter, -1)) for voter in voters],
            [self._row(voter, ends.get(voter, -1)) for voter in dict.fromkeys(others)],
            [
                QuorumNode(node, [(PEER_LISTENER, *addresses[node])])
                for node in sorted(voter.node for voter in voters)
                if node in addresses
            ],
        )

    def _row(self, voter: Voter, end: int) -> QuorumReplica:
        wall = self._wall()
        if voter == self._me:
            return QuorumReplica(voter.node, voter.directory, end, wall, wall)
        link = self._links.by_peer.get(voter)
        heard = -1 if link is None else wall - max(self._now() - link.heard_at, 0)
        is_level = end >= self._host.replica.log_end_offset
        return QuorumReplica(voter.node, voter.directory, end, heard, heard if is_level else -1)


def _encode(view: QuorumView) -> bytes:
    return json.dumps(view, default=lambda value: value.hex).encode()


def _decode(data: bytes) -> QuorumView:
    """Raises ProtocolError."""
    try:
        leader, epoch, high_watermark, voters, observers, nodes = json.loads(data)
        return QuorumView(
            leader,
            epoch,
            high_watermark,
            [_replica(row) for row in voters],
            [_replica(row) for row in observers],
            [QuorumNode(node, [tuple(at) for at in listeners]) for node, listeners in nodes],
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"no account of the quorum: {error!r}") from error


def _replica(row: list[object]) -> QuorumReplica:
    node, directory, *rest = row
    return QuorumReplica(int(str(node)), UUID(str(directory)), *(int(str(n)) for n in rest))
