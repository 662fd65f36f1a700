"""What a process says of itself when it registers: number, directory, addresses, what it can run.

Made once per process, as soon as its ports are known; a registration may be sent many times. Values
only: sends nothing, and asks the system nothing. Called by the runtime.
"""

from collections.abc import Callable, Mapping
from uuid import UUID

from dmq.broker.membership import Newcomer
from dmq.config.broker import BrokerConfig
from dmq.config.listeners import Listener
from dmq.machines.brokers import PEER_LISTENER
from dmq.machines.codec import decode_result, encode_command
from dmq.machines.commands import RegisterBroker
from dmq.machines.records import Endpoint, FeatureRange
from dmq.storage.store import Store

FEATURES = {
    "group.version": FeatureRange(0, 1),
    "metadata.version": FeatureRange(7, 7),
    "transaction.version": FeatureRange(0, 2),
}
"""What this version of dmq can run, by Kafka's names; `metadata.version` is the number of the metadata
that its tools must at least understand. Share groups come with their coordinator."""
FINALIZED = {"group.version": 1, "metadata.version": 7, "transaction.version": 2}
"""What a new cluster runs."""


class Introduction:
    """See the module. `ports` are those that the listeners became, by their names; `peer_port` that of
    the peer door, None without one; `host` is ours where the settings name none."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        incarnation: UUID,
        ports: Mapping[str, int],
        peer_port: int | None,
        host: str,
    ) -> None:
        self._config = config
        self._store = store
        self._incarnation = incarnation
        self._ports = dict(ports)
        self._peer_port = peer_port
        self._host = host

    def told(self, listener: Listener) -> tuple[str, int]:
        """The address of a listener as clients are told it."""
        return self._config.advertised(listener, self._ports[listener.name], self._host)

    def registration(self, node_id: int, cluster_id: str | None) -> RegisterBroker:
        endpoints = [
            Endpoint(listener.name, *self.told(listener), listener.protocol)
            for listener in self._config.kafka_listeners
        ]
        if self._peer_port is not None:
            host, port = self._config.peer_told(self._peer_port, self._host)
            endpoints.append(Endpoint(PEER_LISTENER, host, port, "PLAINTEXT"))
        return RegisterBroker(
            node_id,
            self._store.directory_id,
            self._incarnation,
            tuple(endpoints),
            self._config.broker_rack,
            FEATURES,
            self._store.seq,
            cluster_id,
        )

    def newcomer(self, new_cluster_id: Callable[[], str]) -> Newcomer:
        """For an empty directory. `new_cluster_id`: a name for its cluster, should it found one."""
        node_id = self._wished_node_id()
        return Newcomer(
            node_id=node_id,
            directory=self._store.directory_id,
            command=lambda: encode_command(self.registration(node_id, None)),
            result=_registered,
            new_cluster_id=new_cluster_id,
        )

    def _wished_node_id(self) -> int:
        """A broker that joins takes the number that it is given, unless it was told one."""
        is_free = self._config.cluster_join and "node.id" not in self._config.values
        return -1 if is_free else self._config.node_id


def _registered(data: bytes) -> tuple[int, int]:
    """Node id and broker epoch of a registration's result. Raises KafkaError, ProtocolError."""
    registered = decode_result(data)
    return registered.node, registered.epoch
