"""Creating and deleting topics, adding partitions: what is allowed, and the records that do it.

Reads the cluster's state, changes nothing. Checks and their codes are Kafka's, in Kafka's order
where two could apply. Called by `cluster.py`.
"""

import re
from collections import Counter
from collections.abc import Mapping
from uuid import UUID

from dmq.config.definitions import ResourceType
from dmq.config.rules import ConfigRules
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    PartitionsCreated,
    TopicCreated,
    TopicDeleted,
)
from dmq.machines.machine import Outcome, Record
from dmq.machines.placement import Placer
from dmq.machines.records import ConfigRecord, PartitionRecord, TopicRecord, encode
from dmq.machines.state import ClusterState, TopicState, common_form
from dmq.types import METADATA_TOPIC, METADATA_TOPIC_ID, NIL_UUID, Voter

TOPIC_NAME_MAX = 249
PARTITIONS_PER_COMMAND_MAX = 10_000
"""A command is one atomic batch: this bounds its size. Kafka draws the line at the same number."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")

Assignment = tuple[tuple[int, ...], ...]


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION for what can't be a topic's name."""
    reason = None
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_MAX:
        reason = f"it has {len(name)} characters, more than {TOPIC_NAME_MAX}"
    elif not _TOPIC_NAME.fullmatch(name):
        reason = f"'{name}' has characters other than ASCII letters, digits, '.', '_' and '-'"
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


class TopicCreator:
    """One CreateTopics or CreatePartitions command being worked off."""

    def __init__(
        self, state: ClusterState, rules: ConfigRules, usable: tuple[int, ...] | None
    ) -> None:
        self.state = state
        self.rules = rules
        staying = {
            node: broker.rack for node, broker in state.brokers.items() if not broker.is_leaving
        }
        self.usable = tuple(staying) if usable is None else usable
        self.placer = Placer(staying, state.loads, state.pairs, self.usable)
        self.records: list[Record] = []
        self.partitions_left = PARTITIONS_PER_COMMAND_MAX
        self.common_forms: dict[str, str] = {}

    def create(self, topic: NewTopic, command: CreateTopics) -> TopicCreated:
        """Checks a topic and adds its records. Raises KafkaError."""
        check_topic_name(topic.name)
        self._check_not_there(topic.name)
        config = self._config(topic)
        assignment = self._assignment(topic, command)
        self._check_size(len(assignment))
        self.partitions_left -= len(assignment)
        self._note_name(topic.name)
        self.records.append(encode(TopicRecord(topic.topic_id, topic.name)))
        self._add_partitions(topic.topic_id, 0, assignment)
        if config:
            self.records.append(encode(ConfigRecord(ResourceType.TOPIC, topic.name, config)))
        return TopicCreated(
            topic.name, None, topic.topic_id, len(assignment), len(assignment[0]), config
        )

    def add(self, more: MorePartitions) -> None:
        """Checks a growth and adds its records. Raises KafkaError."""
        topic = self.state.topics.get(more.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        now = len(topic.partitions)
        if more.count == now:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"The topic has {now} partition(s) already."
            )
        if more.count < now:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {more.name} has {now} partition(s); {more.count} is no increase.",
            )
        count = more.count - now
        self._check_size(count)
        if more.assignments is None:
            self.placer.begin_topic(partition.replicas for partition in topic.partitions)
            assignment = self._place(count, topic.replication_factor)
        else:
            assignment = self._check_growth(more.assignments, count, topic)
        self._add_partitions(topic.topic_id, now, assignment)
        self.partitions_left -= count

    def _check_not_there(self, name: str) -> None:
        if name == METADATA_TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{name} is the cluster's own; it can't be created."
            )
        if name in self.state.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if "." in name or "_" in name:
            form = common_form(name)
            other = self.common_forms.get(form) or next(
                iter(sorted(self.state.collisions.get(form, ()))), None
            )
            if other is not None:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Topic '{name}' collides with '{other}': only '.' and '_' differ.",
                )

    def _note_name(self, name: str) -> None:
        if "." in name or "_" in name:
            self.common_forms[common_form(name)] = name

    def _config(self, topic: NewTopic) -> Mapping[str, str]:
        if not topic.configs:
            return {}
        values = {}
        for name, value in topic.configs:
            if value is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"The value of {name} must not be null.")
            values[name] = value
        return self.rules.check(ResourceType.TOPIC, values)

    def _assignment(self, topic: NewTopic, command: CreateTopics) -> Assignment:
        if topic.assignments:
            return self._check_assignment(topic)
        partitions, replicas = topic.partitions, topic.replication_factor
        if replicas == 0 or replicas < -1:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "The replication factor must be 1 or more, or -1 for the default.",
            )
        if partitions == 0 or partitions < -1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                "The number of partitions must be 1 or more, or -1 for the default.",
            )
        self.placer.begin_topic(())
        if replicas == -1:
            replicas = default_replicas(command.default_replication_factor, self.placer.size)
        return self._place(command.default_partitions if partitions == -1 else partitions, replicas)

    def _place(self, partitions: int, replicas: int) -> Assignment:
        self._check_size(partitions)
        there, live = self.placer.size, self.placer.live
        if replicas > there:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"A replication factor of {replicas} needs as many brokers; {there} are registered.",
            )
        # Kafka asks for one. Without a majority nobody could be elected: it would be no use.
        if live < (majority := replicas // 2 + 1):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Of {replicas} replicas {majority} must be up to elect a leader; "
                f"{live} of {there} brokers are up now.",
            )
        return tuple(self.placer.place(replicas) for _ in range(partitions))

    def _check_assignment(self, topic: NewTopic) -> Assignment:
        if topic.partitions != -1 or topic.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "With a manual assignment, partitions and replication factor must both be -1.",
            )
        indexes = Counter(index for index, _ in topic.assignments)
        if (
            twice := next((index for index, count in indexes.items() if count > 1), None)
        ) is not None:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Partition {twice} is assigned twice.",
            )
        by_index = dict(sorted(topic.assignments))
        if list(by_index) != list(range(len(by_index))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Assigned partitions must be numbered 0, 1, 2 and so on, without a gap.",
            )
        assignment = tuple(by_index.values())
        self._check_replicas(assignment, len(assignment[0]))
        return assignment

    def _check_growth(self, assignments: Assignment, count: int, topic: TopicState) -> Assignment:
        if len(assignments) != count:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{count} partition(s) are to be added, but {len(assignments)} are assigned.",
            )
        self._check_replicas(assignments, topic.replication_factor)
        return assignments

    def _check_replicas(self, assignment: Assignment, replication_factor: int) -> None:
        for replicas in assignment:
            check_replicas(self.state, replicas)
            reason = None
            if len(replicas) != replication_factor:
                reason = (
                    f"gives one partition {len(replicas)} replica(s) and another "
                    f"{replication_factor}"
                )
            elif not any(node in self.usable for node in replicas):
                reason = f"names only brokers that can't be used now: {list(replicas)}"
            if reason is not None:
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment {reason}.")

    def _check_size(self, partitions: int) -> None:
        if partitions > self.partitions_left:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"One request can create at most {PARTITIONS_PER_COMMAND_MAX} partitions.",
            )

    def _add_partitions(self, topic_id: UUID, start: int, assignment: Assignment) -> None:
        brokers = self.state.brokers
        for index, replicas in enumerate(assignment, start):
            founders = tuple([Voter(node, brokers[node].directory) for node in replicas])
            self.records.append(encode(PartitionRecord(topic_id, index, replicas, founders)))


def check_replicas(state: ClusterState, replicas: tuple[int, ...]) -> None:
    """That a person may place a partition there. Raises INVALID_REPLICA_ASSIGNMENT."""
    reason = None
    if not replicas:
        reason = "has an empty list of replicas"
    elif len(set(replicas)) < len(replicas):
        twice = next(node for node, count in Counter(replicas).items() if count > 1)
        reason = f"names broker {twice} twice"
    elif unknown := [node for node in replicas if node not in state.brokers]:
        reason = f"names broker {unknown[0]}, which is not registered"
    elif leaving := [node for node in replicas if state.brokers[node].is_leaving]:
        reason = f"names broker {leaving[0]}, which is leaving"
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment {reason}.")


def default_replicas(configured: int, brokers: int) -> int:
    """The replication factor of a topic that asks for none in particular."""
    if configured > 0:
        return configured
    return 3 if brokers >= 3 else 1


def create_topics(
    state: ClusterState, rules: ConfigRules, command: CreateTopics
) -> Outcome[list[TopicCreated]]:
    """Every topic by itself; one that fails leaves the others alone."""
    creator = TopicCreator(state, rules, command.usable)
    asked = Counter(topic.name for topic in command.topics)
    results: dict[str, TopicCreated] = {}
    for topic in command.topics:
        if topic.name in results:
            continue
        try:
            if asked[topic.name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "The topic is named twice in one request."
                )
            results[topic.name] = creator.create(topic, command)
        except KafkaError as error:
            results[topic.name] = TopicCreated(topic.name, error)
    return Outcome(list(results.values()), [] if command.validate_only else creator.records)


def create_partitions(
    state: ClusterState, rules: ConfigRules, command: CreatePartitions
) -> Outcome[list[PartitionsCreated]]:
    """Every topic by itself; one that fails leaves the others alone."""
    creator = TopicCreator(state, rules, command.usable)
    asked = Counter(more.name for more in command.topics)
    results: dict[str, PartitionsCreated] = {}
    for more in command.topics:
        if more.name in results:
            continue
        try:
            if asked[more.name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "The topic is named twice in one request."
                )
            creator.add(more)
            results[more.name] = PartitionsCreated(more.name)
        except KafkaError as error:
            results[more.name] = PartitionsCreated(more.name, error)
    return Outcome(list(results.values()), [] if command.validate_only else creator.records)


def delete_topics(state: ClusterState, command: DeleteTopics) -> Outcome[list[TopicDeleted]]:
    """Every topic by itself; one that fails leaves the others alone."""
    asked = Counter(command.topics)
    results: dict[tuple[str | None, UUID], TopicDeleted] = {}
    deleted: dict[UUID, None] = {}
    records: list[Record] = []
    for target in command.topics:
        if target in results:
            continue
        try:
            if asked[target] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "The topic is named twice in one request."
                )
            topic = find_topic(state, *target)
            if topic.topic_id in deleted:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "The topic was given by name and by id."
                )
        except KafkaError as error:
            results[target] = TopicDeleted(*target, error)
            continue
        deleted[topic.topic_id] = None
        results[target] = TopicDeleted(topic.name, topic.topic_id)
        records += deletion(state, topic)
    return Outcome(list(results.values()), records)


def find_topic(state: ClusterState, name: str | None, topic_id: UUID) -> TopicState:
    """The topic with that name or that id. Raises KafkaError."""
    if name is not None and topic_id != NIL_UUID:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "A topic is given by name or by id, not by both."
        )
    if name is not None:
        if (topic := state.topics.get(name)) is not None:
            return topic
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    if topic_id == NIL_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither name nor id of the topic is given.")
    if topic_id != METADATA_TOPIC_ID and (topic := state.topics_by_id.get(topic_id)) is not None:
        return topic
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"No topic has the id {topic_id}.")


def deletion(state: ClusterState, topic: TopicState) -> list[Record]:
    """The records that remove a topic and all that belongs to it."""
    records = [
        encode(PartitionRecord(topic.topic_id, index, None))
        for index in range(len(topic.partitions))
    ]
    if state.config(ResourceType.TOPIC, topic.name):
        records.append(encode(ConfigRecord(ResourceType.TOPIC, topic.name, {})))
    records.append(encode(TopicRecord(topic.topic_id, None)))
    return records
