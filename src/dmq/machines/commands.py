"""What the cluster machine can be asked, and what it answers. Plain values, no behaviour.

The doors' verbs make these; whatever must be random (topic ids, the cluster id) comes in with them.
Answers carry errors per topic or resource as values, because a request of several has several ends.
"""

import dataclasses
import enum
from collections.abc import Mapping
from uuid import UUID

from dmq.errors import KafkaError
from dmq.machines.machine import Command
from dmq.machines.records import Endpoint, FeatureRange
from dmq.types import NIL_UUID, Voter


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to say."""


@dataclasses.dataclass(frozen=True, slots=True)
class FormCluster(Command[Done]):
    """A new cluster begins, with these levels of features."""

    cluster_id: str
    features: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Registered:
    """The number that a broker has, and the epoch of this registration."""

    node: int
    epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class RegisterBroker(Command[Registered]):
    """A process says that it is broker `node` (-1: give me a number).

    `directory` names its disk, `incarnation` the process, `journal_seq` how far its journal came;
    `previous_epoch` is given by a process that registers again, to change something. Who asks for a
    number with a disk that the cluster knows gets that disk's number: its first answer was lost. A
    known number with another disk takes its place, unless that disk was taken out with its broker;
    and of two processes with one number the later one: the former learns it from the record
    (`brokers.is_fenced`).

    Raises INCONSISTENT_CLUSTER_ID, UNSUPPORTED_VERSION (it lacks a feature that is on),
    DUPLICATE_BROKER_REGISTRATION (another broker has that disk, or the number of one that was taken
    out), BROKER_ID_NOT_REGISTERED (it was taken out), INVALID_REGISTRATION (its journal went back: a
    copy of an old disk; or nobody can have that number), STALE_BROKER_EPOCH (somebody else has that
    number now).
    """

    node: int
    directory: UUID
    incarnation: UUID
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    features: Mapping[str, FeatureRange] = dataclasses.field(default_factory=dict)
    journal_seq: int = 0
    cluster_id: str | None = None
    previous_epoch: int = -1


@dataclasses.dataclass(frozen=True, slots=True)
class UnregisterBroker(Command[Done]):
    """A broker is gone for good.

    `voters` are the brokers that vote on the metadata now: the metadata leader fills them in. One of
    them is only marked as leaving, so that another one takes its place first; the leader gives the
    command again when that has happened (`targets.may_leave`).

    Raises BROKER_ID_NOT_REGISTERED, INVALID_REQUEST (it has replicas, or is the last one).
    """

    node: int
    voters: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 partitions or replicas: the defaults.

    `assignments`: (partition, brokers) pairs instead of numbers. `topic_id` is drawn by the caller.
    """

    name: str
    topic_id: UUID
    partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TopicCreated:
    """How it went with one topic."""

    name: str
    error: KafkaError | None = None
    topic_id: UUID = NIL_UUID
    partitions: int = -1
    replication_factor: int = -1
    config: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class CreateTopics(Command[list[TopicCreated]]):
    """Create topics, each by itself.

    `default_replication_factor` -1: three with three or more brokers registered, else one. `usable`:
    the brokers that are up, which lead and get replicas before others; None: all that are registered.
    """

    topics: tuple[NewTopic, ...]
    validate_only: bool = False
    default_partitions: int = 1
    default_replication_factor: int = -1
    usable: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TopicDeleted:
    """How it went with one topic."""

    name: str | None
    topic_id: UUID
    error: KafkaError | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteTopics(Command[list[TopicDeleted]]):
    """Delete topics, each given by name or by id."""

    topics: tuple[tuple[str | None, UUID], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic and the number of partitions that it shall have; brokers of the new ones, or None."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionsCreated:
    """How it went with one topic."""

    name: str
    error: KafkaError | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CreatePartitions(Command[list[PartitionsCreated]]):
    """Add partitions to topics, each by itself."""

    topics: tuple[MorePartitions, ...]
    validate_only: bool = False
    usable: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition and where it shall live, in order of preference; None: where it was before."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Reassigned:
    """How it went with one partition: the move has begun, or was called off."""

    topic: str
    partition: int
    error: KafkaError | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AlterReassignments(Command[list[Reassigned]]):
    """Move partitions to other brokers, or call a move off, each by itself.

    The same replicas in another order are a move that is done at once. A move that is called off
    goes on being one until no broker is left that should not have the partition.
    """

    changes: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class ReassignmentDone(Command[Done]):
    """A partition's leader says that its voters are these. Idle, if others are wanted by now."""

    topic_id: UUID
    partition: int
    replicas: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class RecoverPartition(Command[Done]):
    """An operator's order: `leader` goes on with a partition alone, from `epoch` on, because too many
    of its voters are lost. Records that only they had are lost with them.

    Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST (an order for this
    epoch, or a later one, was given before).
    """

    topic_id: UUID
    partition: int
    leader: Voter
    epoch: int


class AlterOp(enum.IntEnum):
    """What IncrementalAlterConfigs does with a value, by Kafka's codes."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigChange:
    """Changes to one resource: (config name, AlterOp code, value)."""

    resource: int
    name: str
    changes: tuple[tuple[str, int, str | None], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigAltered:
    """How it went with one resource."""

    resource: int
    name: str
    error: KafkaError | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AlterConfigs(Command[list[ConfigAltered]]):
    """Change configs, each resource by itself.

    `replace`: what is not mentioned is unset (AlterConfigs), else it stays (Incremental…).
    """

    changes: tuple[ConfigChange, ...]
    replace: bool = False
    validate_only: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerIds:
    """A block of producer ids that nobody else has."""

    first: int
    count: int

    @property
    def ids(self) -> range:
        return range(self.first, self.first + self.count)


@dataclasses.dataclass(frozen=True, slots=True)
class AllocateProducerIds(Command[ProducerIds]):
    """A broker needs producer ids. Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""

    node: int
    broker_epoch: int


class UpgradeType(enum.IntEnum):
    """How a feature's level may move, by Kafka's codes."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The level that a feature shall have; 0 turns it off."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE.value


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureUpdated:
    """How it would have gone with one feature."""

    name: str
    error: KafkaError | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class UpdateFeatures(Command[list[FeatureUpdated]]):
    """Move features to other levels: all of them, or none if one can't."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False
