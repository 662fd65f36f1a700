"""The group coordinators of this broker: one for each partition of `__consumer_offsets` that it leads.

Fulfils `coordinators.Groups`: a command goes to the coordinator of its group, if that is here. The
topic is made when somebody first asks for a coordinator. What groups need to know of topics and
settings is read from the metadata (`Surroundings`). Called by doors, by the metadata's changes, and by
the runtime's tick.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID, uuid4

from dmq.broker.answer import Answer, when_all
from dmq.broker.coordinators import GroupHost, partition_of
from dmq.broker.group_records import GroupCodec
from dmq.broker.internal_topics import OFFSETS_TOPIC
from dmq.broker.leadership import Leadership
from dmq.broker.metadata_changes import MetadataChanges
from dmq.broker.replicas import LocalTopic, Replicas
from dmq.broker.seats import Seat
from dmq.config.group import GroupConfig
from dmq.config.settings import Settings
from dmq.errors import DmqError, ErrorCode, KafkaError, ProtocolError
from dmq.machines.groups.commands import ListedGroup, ListGroups
from dmq.machines.groups.machine import GroupMachine
from dmq.machines.groups.offset_commands import ForgetTopics, SweepTopics
from dmq.machines.groups.outcome import TransactionalProducer
from dmq.machines.groups.surroundings import Limits, TopicImage
from dmq.machines.machine import Command
from dmq.machines.machine import Record as MachineRecord
from dmq.machines.state import TopicState
from dmq.records import TRANSACTIONAL, BatchHeader, Record
from dmq.types import NO_LEADER

R = TypeVar("R")

GROUP_RESOURCE = 32
COMMIT_MARKER = 1


class Surroundings:
    """What groups are told of the cluster."""

    def __init__(self, cluster: MetadataChanges, replicas: Replicas) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._images: dict[UUID, TopicImage] = {}
        self._images_of: object = None
        """What the images were made from; others are made when that changes."""
        self._plain: tuple[Settings, GroupConfig] | None = None
        """What a group has that was given nothing of its own."""

    def topic(self, name: str) -> TopicImage | None:
        """The topic of that name, as this broker knows it now."""
        return self._image(self._cluster.state.topics.get(name))

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic of that id."""
        return self._image(self._cluster.state.topics_by_id.get(topic_id))

    def _image(self, topic: TopicState | None) -> TopicImage | None:
        if topic is None or topic.topic_id not in self._replicas.by_id:
            return None
        brokers = self._cluster.state.brokers
        source = self._replicas.version, tuple((n, b.rack) for n, b in brokers.items())
        if source != self._images_of:
            self._images_of = source
            self._images.clear()
        found = self._images.get(topic.topic_id)
        if found is None:
            found = self._images[topic.topic_id] = self._new_image(topic)
        return found

    def _new_image(self, topic: TopicState) -> TopicImage:
        brokers = self._cluster.state.brokers
        racks = tuple(
            frozenset(
                rack
                for node in placed.replicas
                if node in brokers and (rack := brokers[node].rack) is not None
            )
            for placed in topic.partitions
        )
        return TopicImage(
            topic.name, topic.topic_id, len(topic.partitions), racks if any(racks) else ()
        )

    def topic_names(self) -> Iterable[str]:
        """All topics, in a fixed order."""
        return sorted(self._replicas.topics)

    def topics_version(self) -> int:
        """Grows whenever a topic comes, goes or changes."""
        return self._replicas.version

    def group_config(self, group_id: str) -> GroupConfig:
        """The configs of a group, resolved."""
        settings = self._replicas.settings
        own = self._cluster.state.config(GROUP_RESOURCE, group_id)
        if own:
            return settings.group(own)
        if self._plain is None or self._plain[0] is not settings:
            self._plain = settings, settings.group(own)
        return self._plain[1]


class GroupOccupant:
    """The group machine of one leadership, and its host."""

    __slots__ = ("_coordinators", "_seat", "host")

    def __init__(self, coordinators: "GroupCoordinators", seat: Seat) -> None:
        self._coordinators = coordinators
        self._seat = seat
        self.host = GroupHost(coordinators.new_machine(), self)

    def load(self, header: BatchHeader, records: list[Record]) -> None:
        """A batch of the log, in order."""
        machine = self.host.machine
        if header.is_control:
            for record in records:
                kind = int.from_bytes((record.key or b"")[2:4], "big")
                machine.complete_transaction(header.producer_id, commit=kind == COMMIT_MARKER)
            return
        producer_id = header.producer_id if header.attributes & TRANSACTIONAL else -1
        for record in records:
            try:
                machine.apply(MachineRecord(record.key or b"", record.value), producer_id)
            except ProtocolError as error:
                self._seat.skipped(record, error)

    def lead(self, now: int) -> None:
        """All of the log was loaded: serve."""
        self._coordinators.tell_time(self.host.machine)
        self.host.lead(now)
        self._repeat(SweepTopics())

    def resign(self) -> None:
        """The leadership is over."""
        self.host.resign()

    def forget(self, name: str, topic_id: UUID) -> None:
        """A topic was deleted: so are its offsets."""
        self._repeat(ForgetTopics(((name, topic_id),)))

    def _repeat(self, command: Command[int]) -> None:
        """Give it until nothing is left to do."""

        def again(answer: Answer[int]) -> None:
            try:
                count = answer.get()
            except DmqError:
                return  # The next leader looks for itself.
            if count and self._seat.occupant is self:
                self._repeat(command)

        self.host.submit(command, self._coordinators.now()).on_done(again)

    # --- the log (CoordinatorLog)

    def append(self, records: list[MachineRecord], producer: TransactionalProducer | None) -> None:
        """Append records as one batch, of a transactional producer if there is one."""
        if producer is None:
            self._seat.append(records)
        else:
            self._seat.append(
                records,
                attributes=TRANSACTIONAL,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
            )

    def when_committed(self, callback: Callable[[ErrorCode], None]) -> None:
        self._seat.when_committed(callback)

    def when_newest(self, callback: Callable[[ErrorCode], None]) -> None:
        self._seat.when_newest(callback)


class GroupCoordinators:
    """See the module."""

    def __init__(
        self,
        cluster: MetadataChanges,
        replicas: Replicas,
        leadership: Leadership,
        now: Callable[[], int],
        wall: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._leadership = leadership
        self.now = now
        self._wall = wall
        self._surroundings = Surroundings(cluster, replicas)
        self._seats: dict[int, Seat] = {}
        self.create_topic: Callable[[str], Answer[None]] = lambda name: Answer.of(None)
        """Makes an internal topic; the service sets it."""

    def new_machine(self) -> GroupMachine:
        """A machine that has seen no record."""
        limits = Limits.of(self._replicas.settings.effective)
        return GroupMachine(GroupCodec(), limits, self._surroundings, lambda: str(uuid4()))

    def tell_time(self, machine: GroupMachine) -> None:
        machine.wall_ahead_ms = self._wall() - self.now()

    # --- where -------------------------------------------------------------------------------

    def topic_changed(self, local: LocalTopic) -> None:
        """The metadata's changes: partitions of the offsets topic may have come here or left."""
        if local.name != OFFSETS_TOPIC:
            return
        for index in [index for index in self._seats if index not in local.partitions]:
            del self._seats[index]
        for index, partition in local.partitions.items():
            seat = self._seats.get(index)
            if seat is None or seat.replica is not partition.replica:
                self._seats[index] = Seat(
                    partition.replica, lambda it: GroupOccupant(self, it), self.now, self._wall
                )

    def transaction_ended(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """A producer's marker is in the log of a coordinator here: its offsets count, or never."""
        seat = self._seats.get(partition)
        if seat is not None and isinstance(seat.occupant, GroupOccupant):
            seat.occupant.host.machine.complete_transaction(producer_id, commit=commit)

    def topic_deleted(self, name: str, topic_id: UUID) -> None:
        if name == OFFSETS_TOPIC:
            self._seats.clear()
        for occupant in self._occupants():
            occupant.forget(name, topic_id)

    def coordinator_of(self, group_id: str) -> Answer[int]:
        """The broker that coordinates a group; -1: nobody yet. Makes the topic if it must."""
        index = self._index_of(group_id)
        if index is not None:
            return Answer.of(self._leader(index))
        answer: Answer[int] = Answer()

        def made(done: Answer[None]) -> None:
            index = self._index_of(group_id)
            answer.resolve(NO_LEADER if index is None else self._leader(index))

        self.create_topic(OFFSETS_TOPIC).on_done(made)
        return answer

    def _index_of(self, group_id: str) -> int | None:
        local = self._replicas.topics.get(OFFSETS_TOPIC)
        return None if local is None else partition_of(group_id, local.count)

    def _leader(self, index: int) -> int:
        return self._leadership.of(self._replicas.topics[OFFSETS_TOPIC].topic_id, index).leader

    # --- commands ------------------------------------------------------------------------------

    def submit(self, group_id: str, command: Command[R]) -> Answer[R]:
        """Give the coordinator of a group a command; see `coordinators.Groups`."""
        index = self._index_of(group_id)
        seat = None if index is None else self._seats.get(index)
        if seat is None:
            return _failed(KafkaError(ErrorCode.NOT_COORDINATOR))
        try:
            seat.check_leads()
        except KafkaError as error:
            return _failed(error)
        return self._submit_at(seat, command)

    def _submit_at(self, seat: Seat, command: Command[R]) -> Answer[R]:
        occupant = seat.occupant
        assert isinstance(occupant, GroupOccupant)
        self.tell_time(occupant.host.machine)
        return occupant.host.submit(command, self.now())

    def list_groups(self, command: ListGroups) -> Answer[list[ListedGroup]]:
        """The groups of all coordinators on this broker. Fails if one of them is still loading."""
        answers: list[Answer[list[ListedGroup]]] = []
        for seat in self._seats.values():
            if seat.replica.core.can_append:
                try:
                    seat.check_leads()
                except KafkaError as error:
                    return _failed(error)
                answers.append(self._submit_at(seat, command))
        result: Answer[list[ListedGroup]] = Answer()

        def all_done() -> None:
            try:
                result.resolve([group for answer in answers for group in answer.get()])
            except DmqError as error:
                result.fail(error)

        when_all(answers, all_done)
        return result

    # --- time ----------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Do what is due."""
        for seat in self._seats.values():
            seat.tick(now)
        for occupant in self._occupants():
            deadline = occupant.host.next_deadline()
            if deadline is not None and deadline <= now:
                self.tell_time(occupant.host.machine)
                occupant.host.tick(now)

    def _occupants(self) -> list[GroupOccupant]:
        return [
            seat.occupant
            for seat in self._seats.values()
            if isinstance(seat.occupant, GroupOccupant)
        ]


def _failed(error: DmqError) -> Answer[R]:
    answer: Answer[R] = Answer()
    answer.fail(error)
    return answer
