"""The peer door and its answers to newcomers as one thing: what the start of a broker needs.

Made by `dmq.doors.serve` for a broker with a peer listener; fulfils `dmq.broker.membership.Entrance`.
"""

from uuid import UUID

from dmq.broker.membership import Founded, Joined, Member, Newcomer
from dmq.broker.peers import Address, LinkEvents
from dmq.config.broker import BrokerConfig
from dmq.doors.peer.admission import Admission
from dmq.doors.peer.door import PeerDoor, PeerSettings
from dmq.doors.peer.joining import check_cluster, find_place, wished_node_id


class PeerEntrance:
    """See the module."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.peers = PeerDoor(PeerSettings.of(config))
        self._admission: Admission | None = None

    def listen(self, directory: UUID, cluster_id: str | None) -> int:
        """Let strangers ask who we are; the port that it became. Raises OSError."""
        address = self._config.peer_address
        assert address is not None
        self._admission = Admission(
            directory,
            node_id=wished_node_id(self._config),
            peers=self._config.peers_by_id,
            cluster_id=cluster_id,
        )
        self._admission.open(self.peers)
        return self.peers.listen(*address)

    async def find_place(self, newcomer: Newcomer) -> Founded | Joined:
        """What a broker with an empty directory is to do. Raises JoinError."""
        return await find_place(self._config, newcomer)

    async def check_cluster(self, cluster_id: str) -> dict[int, Address]:
        """Ask those that the settings name: where those of our cluster answer. Raises JoinError if one
        is of another."""
        return await check_cluster(self._config, cluster_id)

    def belongs(self, cluster_id: str, node_id: int) -> None:
        """This broker is of a cluster from now on, and that is on disk."""
        assert self._admission is not None
        self._admission.cluster_id = cluster_id
        self._admission.node_id = node_id

    def open_links(self, events: LinkEvents) -> None:
        """Link with those that the door knows."""
        self.peers.open_links(events)

    def admit(self, member: Member) -> None:
        """Answer newcomers in the name of this member."""
        assert self._admission is not None
        self._admission.member = member
