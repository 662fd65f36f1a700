"""The cluster machine: brokers, topics, placements, configs, features, producer ids.

Its log is the metadata topic. `handle` looks and answers, `apply` changes; see `machine.py` for who
calls them. Brokers read `state` directly; only the metadata leader handles commands, and its state may be
ahead of what is committed.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from dmq.config.rules import ConfigRules
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.brokers import register, unregister
from dmq.machines.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlterReassignments,
    ConfigAltered,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Done,
    FeatureUpdate,
    FeatureUpdated,
    FormCluster,
    PartitionsCreated,
    ProducerIds,
    Reassigned,
    ReassignmentDone,
    RecoverPartition,
    RegisterBroker,
    Registered,
    TopicCreated,
    TopicDeleted,
    UnregisterBroker,
    UpdateFeatures,
    UpgradeType,
)
from dmq.machines.configs import alter_configs
from dmq.machines.machine import Command, Outcome, Record
from dmq.machines.reassignments import (
    alter_reassignments,
    reassignment_done,
    recover_partition,
)
from dmq.machines.records import (
    ClusterRecord,
    Fact,
    FeatureRange,
    FeatureRecord,
    ProducerIdsRecord,
    decode,
    encode,
)
from dmq.machines.state import ClusterState
from dmq.machines.topics import create_partitions, create_topics, delete_topics
from dmq.types import Millis

R = TypeVar("R")

PRODUCER_ID_BLOCK = 1000
DOWNGRADES = (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE)


class ClusterMachine:
    """The meaning of the metadata log.

    `rules` says what configs may be; the broker replaces it when its own dynamic settings change.
    `supported` are the features that this version of dmq can run.
    """

    __slots__ = ("rules", "state", "supported")

    def __init__(self, rules: ConfigRules, supported: Mapping[str, FeatureRange]) -> None:
        self.rules = rules
        self.supported = supported
        self.state = ClusterState()

    def restore(self, state: ClusterState) -> None:
        """Go on from what `state` says, and forget all else."""
        self.state = state.copy()

    def handle(self, command: Command[R], now: Millis) -> Outcome[R]:
        """An answer and the records that make it true. Raises KafkaError if all is refused."""
        return cast("Outcome[R]", _HANDLERS[type(command)](self, command))

    def apply(self, record: Record) -> Fact:
        """Changes the state as a record says, and tells what it said. Raises RecordError."""
        fact = decode(record)
        self.state.apply(fact)
        return fact

    def _form(self, command: FormCluster) -> Outcome[Done]:
        if self.state.cluster_id is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"This is cluster {self.state.cluster_id} already."
            )
        records = [encode(ClusterRecord(command.cluster_id))]
        for name, level in sorted(command.features.items()):
            records.append(encode(FeatureRecord(name, level, 1)))
        return Outcome(Done(), records)

    def _register(self, command: RegisterBroker) -> Outcome[Registered]:
        return register(self.state, command)

    def _unregister(self, command: UnregisterBroker) -> Outcome[Done]:
        return unregister(self.state, command)

    def _create_topics(self, command: CreateTopics) -> Outcome[list[TopicCreated]]:
        return create_topics(self.state, self.rules, command)

    def _delete_topics(self, command: DeleteTopics) -> Outcome[list[TopicDeleted]]:
        return delete_topics(self.state, command)

    def _create_partitions(self, command: CreatePartitions) -> Outcome[list[PartitionsCreated]]:
        return create_partitions(self.state, self.rules, command)

    def _alter_reassignments(self, command: AlterReassignments) -> Outcome[list[Reassigned]]:
        return alter_reassignments(self.state, command)

    def _reassignment_done(self, command: ReassignmentDone) -> Outcome[Done]:
        return reassignment_done(self.state, command)

    def _recover_partition(self, command: RecoverPartition) -> Outcome[Done]:
        return recover_partition(self.state, command)

    def _alter_configs(self, command: AlterConfigs) -> Outcome[list[ConfigAltered]]:
        return alter_configs(self.state, self.rules, command)

    def _allocate_producer_ids(self, command: AllocateProducerIds) -> Outcome[ProducerIds]:
        broker = self.state.brokers.get(command.node)
        if broker is None:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {command.node}."
            )
        if broker.epoch != command.broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"Broker {command.node} registered anew since."
            )
        first = self.state.producer_id_next
        record = encode(ProducerIdsRecord(first + PRODUCER_ID_BLOCK))
        return Outcome(ProducerIds(first, PRODUCER_ID_BLOCK), [record])

    def _update_features(self, command: UpdateFeatures) -> Outcome[list[FeatureUpdated]]:
        results = []
        for update in command.updates:
            error = None
            try:
                self._check_feature(update)
            except KafkaError as refused:
                error = refused
            results.append(FeatureUpdated(update.name, error))
        if command.validate_only or any(result.error for result in results):
            return Outcome(results, [])
        epoch = self.state.features_epoch + 1
        records = [
            encode(FeatureRecord(update.name, update.level, epoch))
            for update in command.updates
            if self.state.features.get(update.name, 0) != update.level
        ]
        return Outcome(results, records)

    def _check_feature(self, update: FeatureUpdate) -> None:
        if update.upgrade_type not in (UpgradeType.UPGRADE, *DOWNGRADES):
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Feature {update.name} can't be updated: there is no upgrade type "
                f"{update.upgrade_type}.",
            )
        ranges = [("This version", self.supported.get(update.name))]
        for node, broker in sorted(self.state.brokers.items()):
            ranges.append((f"Broker {node}", broker.features.get(update.name)))
        reason = None
        for who, levels in ranges:
            if levels is None:
                reason = f"{who} does not support this feature"
            elif not levels.low <= update.level <= levels.high:
                reason = f"{who} supports levels {levels.low} to {levels.high} only"
            if reason is not None:
                break
        level = self.state.features.get(update.name, 0)
        if reason is None and update.level < level and update.upgrade_type not in DOWNGRADES:
            reason = "A lower level must be asked for as a downgrade"
        if reason is None and update.level > level and update.upgrade_type in DOWNGRADES:
            reason = "A higher level is no downgrade"
        if reason is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {update.level} for feature {update.name}. {reason}.",
            )


_HANDLERS: dict[type, Callable[[ClusterMachine, Any], Outcome[Any]]] = {
    FormCluster: ClusterMachine._form,
    RegisterBroker: ClusterMachine._register,
    UnregisterBroker: ClusterMachine._unregister,
    CreateTopics: ClusterMachine._create_topics,
    DeleteTopics: ClusterMachine._delete_topics,
    CreatePartitions: ClusterMachine._create_partitions,
    AlterReassignments: ClusterMachine._alter_reassignments,
    ReassignmentDone: ClusterMachine._reassignment_done,
    RecoverPartition: ClusterMachine._recover_partition,
    AlterConfigs: ClusterMachine._alter_configs,
    AllocateProducerIds: ClusterMachine._allocate_producer_ids,
    UpdateFeatures: ClusterMachine._update_features,
}
