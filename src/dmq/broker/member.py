"""This broker as newcomers meet it: who leads the metadata, where everybody is, and the way in.

Fulfils `membership.Member` for the peer door. Decides nothing: the cluster machine does.
"""

from collections.abc import Callable, Mapping
from typing import NoReturn

from dmq.broker.answer import Answer
from dmq.broker.forwarding import Forwarding
from dmq.broker.host import MachineHost
from dmq.broker.multiraft.handing import best_heir
from dmq.broker.peers import Address
from dmq.broker.service import Service
from dmq.errors import ErrorCode, KafkaError, ProtocolError
from dmq.machines.brokers import peer_addresses
from dmq.machines.codec import decode_command, encode_result
from dmq.machines.commands import RegisterBroker
from dmq.types import NO_LEADER, Voter


class ThisMember:
    """See the module."""

    def __init__(
        self,
        service: Service,
        forwarding: Forwarding,
        metadata: MachineHost,
        now: Callable[[], int],
    ) -> None:
        self._service = service
        self._forwarding = forwarding
        self._metadata = metadata
        self._now = now

    @property
    def cluster_id(self) -> str:
        return self._service.cluster_id

    @property
    def node_id(self) -> int:
        return self._service.identity.node_id

    def metadata_leader(self) -> int | None:
        """Its node id, which may be ours; None: nobody knows now."""
        leader = self._service.controller_id
        return None if leader == NO_LEADER else leader

    def metadata_voters(self) -> tuple[Voter, ...]:
        return self._metadata.replica.core.voters

    def addresses(self) -> Mapping[int, Address]:
        """Peer addresses of all registered brokers, ours too."""
        return peer_addresses(self._service.cluster, but=NO_LEADER)

    def register(self, command: bytes) -> Answer[bytes]:
        """Submit a registration, as metadata leader. Raises KafkaError for what is none."""
        try:
            wanted = decode_command(command)
        except ProtocolError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if not isinstance(wanted, RegisterBroker):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "strangers may only register")
        if wanted.node == self.node_id and wanted.directory != self._metadata.replica.me.directory:
            self._make_way()
        return self._forwarding.submit_here(wanted).map(encode_result)

    def _make_way(self) -> NoReturn:
        """Somebody else is to have our number, and whoever loses it stops: before it has told the other
        one, if it is who registers it. So another one has to, and for that it must lead."""
        replica, now = self._metadata.replica, self._now()
        heirs = [voter for voter in replica.in_sync(now) if voter != replica.me]
        if not heirs:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"broker {self.node_id} is up, and nobody else can lead the cluster's metadata: choose "
                "another --node-id, or leave it out; to replace that broker, stop it first",
            )
        replica.transfer(best_heir(replica, heirs, now), now)
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER,
            f"broker {self.node_id}, which has this number, hands the cluster's metadata over first",
        )
