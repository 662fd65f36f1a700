"""The verbs that change what exists: topics, partitions, configs.

Each gives the metadata machine a command and answers when that is committed and, where there is something
to wait for, when it is true on this broker too. The values that go in and come out are the machine's.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar
from uuid import UUID

from dmq.broker.answer import Answer
from dmq.broker.replicas import Replicas
from dmq.config.definitions import ResourceType
from dmq.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from dmq.config.settings import Settings
from dmq.errors import DmqError, ErrorCode, KafkaError
from dmq.machines.cluster import ClusterMachine
from dmq.machines.commands import (
    AlterConfigs,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    UpdateFeatures,
)
from dmq.machines.commands import ConfigAltered as ConfigAltered
from dmq.machines.commands import ConfigChange as ConfigChange
from dmq.machines.commands import FeatureUpdate as FeatureUpdate
from dmq.machines.commands import FeatureUpdated as FeatureUpdated
from dmq.machines.commands import MorePartitions as MorePartitions
from dmq.machines.commands import NewTopic as NewTopic
from dmq.machines.commands import PartitionsCreated as PartitionsCreated
from dmq.machines.commands import TopicCreated as TopicCreated
from dmq.machines.commands import TopicDeleted as TopicDeleted
from dmq.machines.configs import check_resource
from dmq.machines.machine import Command
from dmq.machines.state import common_form

log = logging.getLogger("dmq.broker")

R = TypeVar("R")

PORTION = 200
"""Partitions made by one command: a few dozen milliseconds of work."""

TOPIC = ResourceType.TOPIC
BROKER = ResourceType.BROKER
BROKER_LOGGER = ResourceType.BROKER_LOGGER
CLIENT_METRICS = ResourceType.CLIENT_METRICS
GROUP = ResourceType.GROUP


class Submit(Protocol):
    def __call__(self, command: Command[R]) -> Answer[R]: ...


class Named(Protocol):
    """A result of one topic."""

    @property
    def name(self) -> str: ...
    @property
    def error(self) -> KafkaError | None: ...


N = TypeVar("N", bound=Named)


def _portions(topics: list[NewTopic]) -> Iterator[tuple[NewTopic, ...]]:
    """Topics of about PORTION partitions at a time; at least one portion. Those that can't both be made,
    because their names are the same or collide, are in one."""
    portion: list[NewTopic] = []
    size = 0
    alike: dict[str, list[NewTopic]] = {}
    for topic in topics:
        alike.setdefault(common_form(topic.name), []).append(topic)
    for group in alike.values():
        portion += group
        # Of several one is made at most.
        size += max(max(topic.partitions, len(topic.assignments), 1) for topic in group)
        if size >= PORTION:
            yield tuple(portion)
            portion, size = [], 0
    if portion or not topics:
        yield tuple(portion)


class Admin:
    """See the module."""

    def __init__(
        self,
        submit: Submit,
        settings: Callable[[], Settings],
        cluster: ClusterMachine,
        replicas: Replicas,
        new_uuid: Callable[[], UUID],
        when_served: Callable[[list[str]], Answer[None]],
    ) -> None:
        """`when_served`: an answer that comes when these topics can be used."""
        self._submit = submit
        self._settings = settings
        self._cluster = cluster
        self._replicas = replicas
        self.new_uuid = new_uuid
        self._when_served = when_served

    # --- topics ------------------------------------------------------------------------------

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> Answer[list[TopicCreated]]:
        """Create topics; the answer comes when their partitions take records here."""
        wanted = list(topics)
        place = {topic.name: number for number, topic in reversed(list(enumerate(wanted)))}
        created: Answer[list[TopicCreated]] = Answer()
        self._create_rest(list(_portions(wanted)), [], created, validate_only=validate_only)
        ordered = created.map(lambda told: sorted(told, key=lambda topic: place[topic.name]))
        return ordered if validate_only else self._when_serving(ordered)

    def _create_rest(
        self,
        portions: list[tuple[NewTopic, ...]],
        results: list[TopicCreated],
        created: Answer[list[TopicCreated]],
        *,
        validate_only: bool,
    ) -> None:
        """One command after the other: each topic succeeds or fails by itself, and a command for
        thousands of partitions would hold up everybody for longer than links can wait."""
        if not portions:
            created.resolve(results)
            return
        config = self._settings().effective
        command = CreateTopics(
            portions[0],
            validate_only,
            default_partitions=config.num_partitions,
            default_replication_factor=config.default_replication_factor,
        )

        def done(answer: Answer[list[TopicCreated]]) -> None:
            try:
                told = answer.get()
            except DmqError as error:
                if not results:
                    created.fail(error)
                    return
                # What is done is told as done.
                failure = KafkaError(error.code, str(error))
                names = dict.fromkeys(topic.name for portion in portions for topic in portion)
                created.resolve([*results, *(TopicCreated(name, failure) for name in names)])
                return
            results.extend(told)
            for topic in told:
                if topic.replication_factor == 2 and topic.error is None and not validate_only:
                    log.warning("topic %s has two replicas: each write needs both", topic.name)
            self._create_rest(portions[1:], results, created, validate_only=validate_only)

        self._submit(command).on_done(done)

    def auto_create(self, names: list[str]) -> Answer[dict[str, KafkaError | None]]:
        """Create topics with the broker's defaults; what went wrong with each, if anything."""
        topics = [NewTopic(name, self.new_uuid()) for name in dict.fromkeys(names)]
        return self.create_topics(topics).map(
            lambda results: {result.name: result.error for result in results}
        )

    def delete_topics(
        self, topics: Iterable[tuple[str | None, UUID]]
    ) -> Answer[list[TopicDeleted]]:
        """Delete topics by name or id; the answer comes when that is committed."""
        targets = tuple(topics)
        if not self._settings().effective.delete_topic_enable:
            error = KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
            return Answer.of([TopicDeleted(*target, error) for target in targets])
        return self._submit(DeleteTopics(targets))

    def create_partitions(
        self, topics: Iterable[MorePartitions], *, validate_only: bool = False
    ) -> Answer[list[PartitionsCreated]]:
        """Add partitions; the answer comes when they take records here."""
        created = self._submit(CreatePartitions(tuple(topics), validate_only))
        return created if validate_only else self._when_serving(created)

    def _when_serving(self, created: Answer[list[N]]) -> Answer[list[N]]:
        """`created`, held back until the partitions of these topics can be used."""
        answer: Answer[list[N]] = Answer()

        def on_created(done: Answer[list[N]]) -> None:
            try:
                results = done.get()
            except DmqError as error:
                answer.fail(error)
                return
            names = [result.name for result in results if result.error is None]
            self._when_served(names).on_done(lambda served: answer.resolve(results))

        created.on_done(on_created)
        return answer

    # --- configs -----------------------------------------------------------------------------

    def alter_configs(
        self, changes: Iterable[ConfigChange], *, replace: bool, validate_only: bool
    ) -> Answer[list[ConfigAltered]]:
        """Change configs, each resource by itself; `replace` unsets what is not mentioned."""
        return self._submit(AlterConfigs(tuple(changes), replace, validate_only))

    def describe_new_topic(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """Every config of a topic that sets `overrides`, whether it exists already or not."""
        return describe_topic(overrides, self._settings())

    def describe_configs(self, resource: int, name: str) -> list[ConfigEntry]:
        """Every config of a resource. Raises KafkaError for one that is not there."""
        kind = check_resource(self._cluster.state, resource, name)
        own = self._cluster.state.config(kind, name)
        if kind is ResourceType.TOPIC:
            return describe_topic(own, self._settings())
        if kind is ResourceType.BROKER:
            settings = self._settings()
            return describe_broker(settings) if name else describe_cluster_defaults(settings)
        if kind is ResourceType.GROUP:
            return describe_group(own, self._settings())
        return describe_client_metrics(own)

    def config_resources(self, kinds: Iterable[int]) -> list[tuple[int, str]]:
        """What can have configs: brokers and topics all, groups and subscriptions that have some."""
        state = self._cluster.state
        found: list[tuple[int, str]] = []
        for kind in kinds:
            if kind == ResourceType.TOPIC:
                names: Iterable[str] = state.topics
            elif kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
                names = map(str, state.brokers)
            else:
                names = [name for resource, name in state.configs if resource == kind]
            found += [(kind, name) for name in sorted(names)]
        return found

    # --- the rest ----------------------------------------------------------------------------

    def update_features(
        self, updates: Iterable[FeatureUpdate], *, validate_only: bool
    ) -> Answer[list[FeatureUpdated]]:
        """Move features to other levels: all of them or none."""
        return self._submit(UpdateFeatures(tuple(updates), validate_only))

    def log_sizes(
        self, wanted: Mapping[str, Iterable[int]] | None
    ) -> list[tuple[str, list[tuple[int, int]]]]:
        """By topic: its partitions here and their bytes; all topics if none are named."""
        topics = self._replicas.topics
        names = topics if wanted is None else [name for name in wanted if name in topics]
        found: list[tuple[str, list[tuple[int, int]]]] = []
        for name in names:
            partitions = topics[name].partitions
            indexes = partitions if wanted is None else dict.fromkeys(wanted[name])
            sizes = [(n, partitions[n].log.size_bytes) for n in indexes if n in partitions]
            if sizes:
                found.append((name, sizes))
        return found
