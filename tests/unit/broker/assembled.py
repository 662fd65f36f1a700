"""Several brokers of real parts, wired by hand as in wiring.py: what the metadata say happens on each."""

import random
from uuid import UUID

from fakes.broker import Inline
from unit.broker.multiraft.wiring import Broker, World

from dmq.broker.assembly import Assembly, Ground
from dmq.broker.multiraft.replica import Replica
from dmq.broker.multiraft.sending import SendSettings
from dmq.broker.producing import Snapshots
from dmq.broker.service import Clocks, Identity
from dmq.config.broker import BrokerConfig
from dmq.machines.commands import FormCluster, RegisterBroker
from dmq.machines.machine import Command
from dmq.storage.producer_files import ProducerFiles
from dmq.storage.store import Store
from dmq.types import Voter

SMALL_FRAMES = SendSettings(piece_bytes=200, frame_bytes=200)
"""A log that is sent again comes record by record."""


class Assembled(Broker):
    """A broker with all its parts; its `replica` is that of the metadata. It knows no other doors, so
    commands are given to the metadata's leader."""

    def start(self) -> None:
        self.store = Store.open(self.disk, self.world.store_settings, now=self.world.now)
        self.store.identify("test", self.number)
        self.is_up = True

    def assemble(self, voters: tuple[Voter, ...]) -> None:
        ground = Ground(
            Identity("test", self.number, None),
            BrokerConfig(node_id=self.number),
            self.store,
            Clocks(lambda: self.world.now, lambda: self.world.now),
            random.Random(self.number),
            lambda: UUID(int=self.number),
            Inline(),
            Snapshots(ProducerFiles(self.disk), Inline()),
            None,
            {},
        )
        self.parts = Assembly(
            ground,
            voters,
            is_founding=True,
            on_settings=lambda settings: None,
            on_brokers=lambda: self.parts.controller.changed(self.world.now),
        )
        self.node = self.parts.node
        self.node._sender._settings = SMALL_FRAMES

    @property
    def replica(self) -> Replica:
        return self.parts.metadata.replica

    def end(self) -> None:
        super().end()
        self.parts.turn_ended()

    def open(self, topic: str) -> list[int]:
        """The partitions of a topic that are open here."""
        local = self.parts.replicas.topics.get(topic)
        return [] if local is None else sorted(local.partitions)


class AssembledWorld(World):
    """Brokers that form a cluster and know all of it."""

    def __init__(self, count: int) -> None:
        super().__init__(0)
        self.members = [Assembled(self, number) for number in range(1, count + 1)]
        voters = tuple(Voter(m.number, m.store.directory_id) for m in self.members)
        for member in self.members:
            member.assemble(voters)
            self.brokers[member.number] = member
        self.connect_all()
        self.done(FormCluster("test"))
        for member in self.members:
            epoch = self.done(
                RegisterBroker(member.number, member.store.directory_id, UUID(int=member.number))
            ).epoch
            member.parts.leadership.begin(epoch)
        self.pass_time(500)
        for member in self.members:
            member.parts.changes.loaded()

    def pass_time(self, ms: int, step: int = 10) -> None:
        for _ in range(0, ms, step):
            super().pass_time(step, step)
            for member in self.members:
                if member.is_up:
                    member.parts.tick()

    @property
    def leaders(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.replica.is_leader]

    def controller(self) -> Assembled:
        """Who leads the metadata."""
        leader = self.leader()
        assert isinstance(leader, Assembled)
        return leader

    def done(self, command: Command[object]) -> object:
        """What the metadata's leader answers."""
        answer = self.controller().parts.service.submit(command)
        self.until(lambda: answer.is_done)
        return answer.get()
