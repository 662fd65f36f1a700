"""The parts of one broker, put together: who is given whom.

Stands on what it is given: a store, two clocks, threads to work in, other brokers to talk to. So the
runtime builds the same broker on a disk and a loop that tests build on a fake disk and a clock that
they set. Knows no loop, no thread and no socket. What concerns several parts at once is said here to
each of them: changed topics and settings, a tick, the end of a turn.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from dmq.broker.backlog import Backlog
from dmq.broker.controller import Controller
from dmq.broker.electing import Electing
from dmq.broker.fetching import Fetcher
from dmq.broker.forwarding import Forwarding
from dmq.broker.group_seats import GroupCoordinators
from dmq.broker.host import MachineHost
from dmq.broker.leadership import Leadership
from dmq.broker.metadata_changes import MetadataChanges
from dmq.broker.multiraft.node import GroupNode
from dmq.broker.nearest import Candidate, nearest
from dmq.broker.partition import Partition
from dmq.broker.peers import Peers
from dmq.broker.presence import Presence
from dmq.broker.producing import Snapshots
from dmq.broker.quorum_report import QuorumReport
from dmq.broker.replicas import LocalTopic, Replicas
from dmq.broker.service import Aside, Clocks, Identity, Service
from dmq.broker.transaction_seats import TransactionCoordinators
from dmq.config.broker import BrokerConfig
from dmq.config.rules import ConfigRules
from dmq.config.settings import Settings
from dmq.machines.cluster import ClusterMachine
from dmq.machines.records import FeatureRange
from dmq.raft.settings import Dice
from dmq.storage.store import Store
from dmq.types import Voter

PREFERRED_MS = 10_000
"""A preferred replica leads again when its broker has been up for this long."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a broker stands on."""

    identity: Identity
    config: BrokerConfig
    store: Store
    clocks: Clocks
    dice: Dice
    new_id: Callable[[], UUID]
    openers: Aside
    """For work that computes."""
    snapshots: Snapshots
    peers: Peers | None
    """The other brokers; None: this one is alone."""
    features: dict[str, FeatureRange]


class Assembly:
    """One broker's parts."""

    def __init__(
        self,
        ground: Ground,
        metadata_voters: tuple[Voter, ...],
        *,
        is_founding: bool,
        on_settings: Callable[[Settings], None],
        on_brokers: Callable[[], None],
    ) -> None:
        config, identity, store = ground.config, ground.identity, ground.store
        self.clocks = ground.clocks
        self.store = store
        self.settings = Settings(config)
        self._on_settings = on_settings
        queued = config.queued_max_request_bytes
        self.backlog = Backlog(
            sys.maxsize if queued < 0 else queued, config.waiters_max, lambda: store.pressure
        )
        self.node = GroupNode(
            store,
            cluster_id=identity.cluster_id,
            node_id=identity.node_id,
            dice=ground.dice,
            now=self.clocks.steady(),
        )
        self.replicas = Replicas(
            self.node,
            self.settings,
            self.backlog,
            self.clocks.steady,
            ground.openers,
            ground.snapshots,
        )
        self.machine = ClusterMachine(ConfigRules(self.settings), ground.features)
        self.changes = MetadataChanges(
            self.replicas,
            config,
            identity.node_id,
            self._take_settings,
            on_brokers,
            self.topic_changed,
            self._topic_deleted,
        )
        replica = self.replicas.open_metadata(
            metadata_voters or (self.node.me,), is_founding=is_founding
        )
        self.metadata_partition = self.replicas.metadata_partition(replica)
        self.metadata = MachineHost(
            self.machine,
            replica,
            me=self.node.me,
            restore=lambda: self.machine.restore(self.changes.state),
            on_committed=self.changes.committed,
            on_replaced=self.changes.replaced,
            now=self.clocks.steady,
            timers=self.node.timers,
        )
        self._serve(ground)

    def _serve(self, ground: Ground) -> None:
        """The parts above the metadata."""
        wall, steady = self.clocks
        identity, peers, timers = ground.identity, ground.peers, self.node.timers
        self.presence = Presence(
            identity.node_id,
            self.metadata.replica,
            self.node.links,
            peers,
            steady,
            lambda: self.changes.state.brokers,
        )
        self.forwarding = Forwarding(
            self.metadata, identity.node_id, peers, timers, wall, steady, self.presence
        )
        self.leadership = Leadership(self.node, self.replicas, peers, steady)
        self.groups = GroupCoordinators(self.changes, self.replicas, self.leadership, steady, wall)
        self.transactions = TransactionCoordinators(
            identity.node_id,
            self.replicas,
            self.leadership,
            peers,
            steady,
            wall,
            self.groups.transaction_ended,
        )
        self.fetcher = Fetcher(self.replicas.find, timers, ground.config.waiters_max, self._nearer)
        self.service = Service(
            identity,
            ground.config,
            self.machine,
            self.metadata,
            self.replicas,
            self.fetcher,
            self.clocks,
            ground.new_id,
            self.backlog,
            ground.openers,
            self.forwarding,
            self.leadership,
            self.groups,
            self.transactions,
            self._electing(ground),
            QuorumReport(
                self.node.me,
                self.metadata,
                lambda: self.changes.state,
                self.node.links,
                peers,
                steady,
                wall,
            ),
        )
        self.controller = Controller(
            self.node.me,
            lambda: self.changes.state,
            self.metadata,
            self.replicas,
            self.node.links,
            self.service.submit,
            self._preferred_ms,
        )

    def _electing(self, ground: Ground) -> Electing:
        return Electing(
            ground.identity.node_id,
            lambda: self.machine.state,
            self.replicas,
            self.leadership,
            ground.peers,
            self.node.timers,
            self.clocks[1],
            self.forwarding.submit,
            self.presence.listed,
            lambda: self.metadata.replica.leader is not None,
        )

    def _nearer(self, partition: Partition, rack: str, offset: int) -> int:
        """A follower in the reader's rack, if the settings want readers there; else -1."""
        is_wanted = self.settings.effective.replica_selector_class
        if rack == self.service.identity.rack or not is_wanted:
            return -1
        brokers, replica = self.changes.state.brokers, partition.replica
        ends = replica.core.matches()
        candidates = [
            Candidate(voter.node, brokers[voter.node].rack, ends[voter].offset)
            for voter in replica.in_sync(self.clocks.steady())
            if voter in ends and voter.node in brokers
        ]
        found = nearest(rack, self.node.me.node, offset, candidates)
        return -1 if found == self.node.me.node else found

    def _preferred_ms(self) -> int | None:
        return PREFERRED_MS if self.settings.effective.auto_leader_rebalance_enable else None

    # --- what concerns several ------------------------------------------------------------------

    def topic_changed(self, local: LocalTopic) -> None:
        """Partitions of a topic were opened here, or are to be led or followed otherwise."""
        self.controller.aim(local.partitions.values(), self.clocks.steady())
        self.groups.topic_changed(local)
        self.transactions.topic_changed(local)

    def _topic_deleted(self, local: LocalTopic) -> None:
        self.leadership.forget(local.topic_id, local.count)
        self.groups.topic_deleted(local.name, local.topic_id)
        self.transactions.topic_deleted(local.name)

    def _take_settings(self, settings: Settings) -> None:
        self._on_settings(settings)
        self.settings = settings
        self.machine.rules = ConfigRules(settings)
        self.service.config = settings.effective
        self.store.configure(
            reserve_bytes=settings.effective.disk_reserve_bytes,
            quarantine_ms=settings.effective.log_segment_delete_delay_ms,
        )

    def turn_ended(self) -> None:
        """A turn is over: tell who leads what, let in who waited."""
        self.leadership.turn_ended()
        self.backlog.relieve()

    def tick(self) -> None:
        """What is due now and then, beside the turns."""
        now = self.clocks.steady()
        self.backlog.relieve()
        self.leadership.tick(now)
        self.controller.tick(now)
        self.presence.tick()
        self.groups.tick(now)
        self.transactions.tick(now)
        self.forwarding.tell_applied()
