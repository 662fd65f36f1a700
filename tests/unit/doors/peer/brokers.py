"""Real GroupNodes on real stores behind real peer doors, in one process: a cluster without the rest.

`Cluster(path, 3)` makes brokers that share groups; each can be killed and started again on its directory.
"""

import asyncio
import itertools
import random
import socket
import time
from pathlib import Path
from uuid import UUID

from embedded.eventually import until, watch
from unit.doors.peer.links import HOST

from dmq.broker.driver import GroupDriver
from dmq.broker.multiraft.links import LinkSettings
from dmq.broker.multiraft.node import GroupNode
from dmq.broker.multiraft.replica import GroupSettings, NotLeaderError, Replica
from dmq.broker.multiraft.turn import NodeSettings
from dmq.broker.syncer import Syncer, Workers
from dmq.doors.peer.door import PeerDoor, PeerSettings
from dmq.errors import ErrorCode, KafkaError
from dmq.raft.settings import RaftSettings
from dmq.records import Record, build_batch
from dmq.storage.files import OsFiles
from dmq.storage.log import LogSettings
from dmq.storage.store import Store, StoreSettings
from dmq.types import Voter

TOPIC = UUID(int=77)
STORE = StoreSettings(
    journal_bytes=64 * 1024 * 1024, journal_file_bytes=8 * 1024 * 1024, reserve_bytes=0
)
GROUP = GroupSettings(log=LogSettings(segment_bytes=64 * 1024 * 1024))
PATIENT = NodeSettings(
    links=LinkSettings(suspect_ms=60_000, pause_ms=30_000),
    slow_sync_ms=60_000,
    stuck_sync_ms=600_000,
)
"""Nobody is suspected because this machine is busy: what these tests see, the door has told."""


def steady_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Broker:
    """One broker; `up` and `down` as often as one likes."""

    def __init__(self, cluster: "Cluster", number: int, path: Path) -> None:
        self.cluster = cluster
        self.number = number
        self.path = path
        self.port = 0
        self.is_up = False
        self.failures: list[BaseException] = []
        self.open_store()

    def __repr__(self) -> str:
        return f"<Broker {self.number}>"

    def open_store(self) -> None:
        self.files = OsFiles(str(self.path))
        self.store = Store.open(self.files, STORE, now=steady_ms())
        self.store.identify("test", self.number)

    @property
    def me(self) -> Voter:
        return Voter(self.number, self.store.directory_id)

    def up(self) -> None:
        loop = asyncio.get_running_loop()
        self.door = PeerDoor(self.cluster.settings, random.Random(self.number))
        self.port = self.door.listen(HOST, self.port)
        self.syncer, self.workers = Syncer(loop), Workers(loop, 1)
        self.node = GroupNode(
            self.store,
            cluster_id="test",
            node_id=self.number,
            dice=random.Random(self.number),
            now=steady_ms(),
            settings=PATIENT,
            raft=RaftSettings(check_quorum_ms=60_000),
        )
        self.driver = GroupDriver(
            self.node,
            loop,
            clock=steady_ms,
            syncer=self.syncer,
            workers=self.workers,
            send=self.door.send,
            on_failure=self.failures.append,
        )
        self.is_up = True
        self.driver.start()

    def link(self) -> None:
        self.door.open_links(self.driver)
        self.know()

    def know(self) -> None:
        others = [b for b in self.cluster.brokers.values() if b is not self and b.port]
        self.door.know({other.number: (HOST, other.port) for other in others})

    def host(self, partition: int, voters: tuple[Voter, ...]) -> Replica:
        return self.node.create_group(steady_ms(), TOPIC, partition, voters, GROUP)

    def replica(self, partition: int = 0) -> Replica:
        found = self.node.replica(TOPIC, partition)
        assert found is not None
        return found

    def content(self, partition: int = 0) -> bytes:
        """Every committed byte."""
        replica = self.replica(partition)
        slices = replica.read(0, 1 << 30, steady_ms(), whole_first_batch=True)
        return b"".join(part.pread() for part in slices)

    async def kill(self) -> None:
        """As by kill -9: sockets close, nothing is flushed or said."""
        self.is_up = False
        self.driver.stop()
        self.door.close()
        await until(lambda: not self.driver.is_syncing, "the disk is done")
        self.syncer.close()
        self.workers.close()
        self.files.unlock()

    def restart(self) -> None:
        self.open_store()
        self.up()
        for partition, voters in self.cluster.groups.items():
            self.host(partition, voters)
        self.link()


class Cluster:
    """Some brokers, and the groups that they all share."""

    def __init__(self, path: Path, count: int, settings: PeerSettings | None = None) -> None:
        self.settings = settings or PeerSettings()
        self.brokers: dict[int, Broker] = {}
        self.groups: dict[int, tuple[Voter, ...]] = {}
        self.acked: list[bytes] = []
        self._values = itertools.count()
        for number in range(1, count + 1):
            directory = path / str(number)
            directory.mkdir()
            self.brokers[number] = Broker(self, number, directory)

    def __getitem__(self, number: int) -> Broker:
        return self.brokers[number]

    def __iter__(self) -> "itertools.chain[Broker]":
        return itertools.chain(self.brokers.values())

    def start(self, groups: int = 1) -> None:
        voters = [broker.me for broker in self]
        for broker in self:
            broker.up()
        for partition in range(groups):
            turned = partition % len(voters)
            self.groups[partition] = tuple(voters[turned:] + voters[:turned])
            for broker in self:
                broker.host(partition, self.groups[partition])
        for broker in self:
            broker.link()

    def leader(self, partition: int = 0) -> Broker | None:
        for broker in self:
            if broker.is_up and broker.replica(partition).core.can_append:
                return broker
        return None

    async def led(self, partition: int = 0) -> Broker:
        await until(lambda: self.leader(partition) is not None, "a leader")
        leader = self.leader(partition)
        assert leader is not None
        return leader

    async def produce(self, partition: int = 0, size: int = 100) -> None:
        """One record, as a client does: again until it is acknowledged."""
        value = b"<%d>" % next(self._values) + b"v" * size
        while not await self._try(partition, value):
            await until(lambda: self.leader(partition) is not None, "a leader")
        self.acked.append(value)

    async def _try(self, partition: int, value: bytes) -> bool:
        leader = self.leader(partition)
        if leader is None:
            return False
        codes: list[ErrorCode] = []
        batch = build_batch([Record(0, 0, None, value)])
        try:
            leader.replica(partition).produce(
                memoryview(batch), steady_ms(), timeout_ms=60_000, on_done=codes.append
            )
        except (NotLeaderError, KafkaError):
            await watch(0.002)  # As clients do before they try again.
            return False
        await until(lambda: codes or not leader.is_up, "an answer")
        return codes == [ErrorCode.NONE]

    async def agree(self, partition: int = 0) -> bytes:
        """Wait until all that are up have the same committed records, with all that was acked."""

        def is_same() -> bool:
            ups = [broker for broker in self if broker.is_up]
            ends = {b.replica(partition).core.end for b in ups}
            commits = {b.replica(partition).core.commit for b in ups}
            return len(ends) == 1 and ends == commits

        await until(is_same, "all have all")
        contents = {broker.content(partition) for broker in self if broker.is_up}
        assert len(contents) == 1
        return contents.pop()

    async def stop(self) -> None:
        for broker in self:
            if broker.is_up:
                await broker.kill()
            assert broker.failures == []


def cut(broker: Broker, node: int) -> None:
    """The network breaks a connection: both ends find out when they use it."""
    session = broker.door.session_with(node)
    if session is not None:
        session.control._sock.shutdown(socket.SHUT_RDWR)
