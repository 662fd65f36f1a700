"""A broker without a runtime: the real parts on a fake disk, with a clock that is set by hand."""

import random
from collections.abc import Callable
from uuid import UUID

from fakes.disk import FakeDisk

from dmq.broker.assembly import Assembly, Ground
from dmq.broker.multiraft.turn import GroupTurn
from dmq.broker.partition import Partition
from dmq.broker.producing import Snapshots
from dmq.broker.service import Clocks, Identity
from dmq.config.broker import BrokerConfig
from dmq.errors import DmqError
from dmq.machines.commands import FormCluster, RegisterBroker
from dmq.records import Record, build_batch
from dmq.storage.producer_files import ProducerFiles
from dmq.storage.store import Store, StoreSettings
from dmq.types import NIL_UUID

NODE_ID = 1
STORE = StoreSettings(journal_bytes=64 * 1024, journal_file_bytes=8 * 1024, reserve_bytes=0)


class Inline:
    """Does at once what a runtime does beside its loop."""

    def submit(
        self, work: Callable[[], object], done: Callable[[BaseException | None], None]
    ) -> None:
        try:
            work()
        except (DmqError, OSError) as error:
            done(error)
        else:
            done(None)

    def soon(self, callback: Callable[[], None]) -> None:
        callback()


class FakeBroker:
    """One broker; `turn()` does a whole turn, `begin`/`end` its halves."""

    def __init__(
        self, disk: FakeDisk | None = None, store: StoreSettings = STORE, **settings: object
    ) -> None:
        self.disk = disk or FakeDisk(random.Random(1))
        self.now = 1_700_000_000_000
        self.config = BrokerConfig.of(settings)
        self.store = Store.open(self.disk, store, now=self.now)
        self.store.identify("test-cluster", NODE_ID)
        self._uuids = (UUID(int=n) for n in range(1000, 10**9))
        ground = Ground(
            Identity("test-cluster", NODE_ID, None),
            self.config,
            self.store,
            Clocks(lambda: self.now, lambda: self.now),
            random.Random(2),
            lambda: next(self._uuids),
            Inline(),
            Snapshots(ProducerFiles(self.disk), Inline()),
            None,
            {},
        )
        parts = self.parts = Assembly(
            ground,
            (),
            is_founding=True,
            on_settings=lambda settings: None,
            on_brokers=lambda: None,
        )
        self.node, self.replicas, self.machine = parts.node, parts.replicas, parts.machine
        self.metadata, self.leadership = parts.metadata, parts.leadership
        self.groups, self.transactions = parts.groups, parts.transactions
        self.service, self.backlog, self.fetcher = parts.service, parts.backlog, parts.fetcher
        self.metadata_partition = parts.metadata_partition
        self.service.endpoints["PLAINTEXT"] = ("broker.test", 9092)
        self.turn()
        self.leadership.begin(1)
        parts.changes.loaded()
        self.turn()
        self._register()

    def _register(self) -> None:
        if self.machine.state.cluster_id is None:
            self.service.submit(FormCluster("test-cluster"))
        registered = self.service.submit(
            RegisterBroker(
                NODE_ID, self.store.directory_id, next(self._uuids), journal_seq=self.store.seq
            )
        )
        self.turn()
        self.service.broker_epoch = registered.get().epoch

    def begin(self) -> GroupTurn | None:
        return self.node.begin_turn(self.now)

    def end(self, turn: GroupTurn) -> None:
        if turn.needs_sync:
            turn.sync()
        self.node.end_turn(self.now, turn)
        self.parts.turn_ended()

    def turn(self) -> int:
        """Turns until there is nothing left to do; how many."""
        count = 0
        while (turn := self.begin()) is not None:
            self.end(turn)
            count += 1
            assert count < 1000
        return count

    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.node.tick(self.now)

    def create(self, name: str, partitions: int = 1, **configs: str) -> list[Partition]:
        from dmq.broker.admin import NewTopic

        answer = self.service.admin.create_topics(
            [
                NewTopic(
                    name,
                    next(self._uuids),
                    partitions,
                    1,
                    (),
                    tuple((k.replace("_", "."), v) for k, v in configs.items()),
                )
            ]
        )
        self.turn()
        (created,) = answer.get()
        if created.error is not None:
            raise created.error
        return [self.find(name, n) for n in range(partitions)]

    def find(self, name: str, index: int = 0) -> Partition:
        return self.service.find(name, NIL_UUID, index)

    def batch(
        self,
        *values: bytes | None,
        key: bytes | None = b"k",
        codec: int = 0,
        time: int | None = None,
    ) -> memoryview:
        at = self.now if time is None else time
        records = [Record(n, at + n, key, value) for n, value in enumerate(values)]
        return memoryview(build_batch(records, codec=codec))

    def restart(self, *, crash: Callable[[FakeDisk], None] | None = None) -> "FakeBroker":
        """In order, or by what `crash` does to the disk; the broker that comes after."""
        if crash is None:
            self.store.close(self.now)
        else:
            crash(self.disk)
        after = FakeBroker.__new__(FakeBroker)
        settings = dict(self.config.values)
        after.__init__(self.disk, **{k.replace(".", "_"): v for k, v in settings.items()})  # type: ignore[misc]
        return after
