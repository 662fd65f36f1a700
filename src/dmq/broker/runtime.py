"""Performs what the node decides: the loop, the clock, the threads, the start and the end.

The only module below the doors that knows asyncio and time. One `Runtime` is one broker on the running
loop; it opens the store, leads the partitions, runs turns, and stops the process's broker when
the disk can no longer be trusted. Doors are given to it as a factory, because it lies below them.
"""

import asyncio
import contextlib
import logging
import random
import resource
import socket
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from dmq.broker.backlog import Backlog
from dmq.broker.compactor import CompactorProcess
from dmq.broker.fetching import Fetcher
from dmq.broker.host import MachineHost
from dmq.broker.housekeeping import Housekeeping
from dmq.broker.metadata_changes import MetadataChanges
from dmq.broker.multiraft.node import GroupNode, GroupTurn
from dmq.broker.replicas import Replicas
from dmq.broker.service import Clocks, Identity, Service
from dmq.broker.syncer import Syncer, Workers
from dmq.config.broker import BrokerConfig
from dmq.config.listeners import Listener
from dmq.config.rules import ConfigRules
from dmq.config.settings import Settings
from dmq.errors import StorageError
from dmq.machines.cluster import ClusterMachine
from dmq.machines.commands import FormCluster, RegisterBroker
from dmq.machines.records import Endpoint, FeatureRange
from dmq.storage.cleaner import Job
from dmq.storage.files import OsFiles
from dmq.storage.store import Store, StoreSettings

log = logging.getLogger("dmq.broker")

FEATURES = {"metadata.version": FeatureRange(7, 7)}
"""What this version of dmq can run. Kafka's number for the metadata that its tools must at least
understand; group, transaction and share features come with their coordinators."""
FINALIZED = {"metadata.version": 7}

TICK_MS = 50
"""Longest sleep: how late the store learns that it has been idle."""
WORKER_COUNT = 4
STOP_PATIENCE_S = 5.0
"""How long an orderly stop waits for appends under way and for clients to take their answers."""
DRAIN_POLL_S = 0.002


class Door(Protocol):
    """What the runtime needs of a way in."""

    def listen(self, host: str, port: int) -> int: ...
    def configure(self, config: BrokerConfig) -> None: ...
    def stop_taking(self) -> None:
        """No more connections or requests; answers still leave."""
        ...

    @property
    def has_unsent(self) -> bool:
        """Whether answers are on their way."""
        ...

    def close(self) -> None: ...


DoorFactory = Callable[["Runtime", Listener], Door]


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Runtime:
    """One broker. `await start()`, then `await stop()`; `failure` is set if it had to stop itself."""

    def __init__(self, config: BrokerConfig, doors: DoorFactory) -> None:
        self.config = config
        self.failure: BaseException | None = None
        self.stopped = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._files: OsFiles | None = None
        self._make_door = doors
        self._doors: list[Door] = []
        self._syncer = Syncer(self._loop)
        self.workers = Workers(self._loop, WORKER_COUNT)
        self._openers = Workers(self._loop, 1)
        """Apart from the others: it computes, and no flush must wait for that."""
        self._turn_is_due = False
        self._is_syncing = False
        self._is_ending = False
        self._turn_ended = asyncio.Event()
        self._tick: asyncio.TimerHandle | None = None
        self._tick_at = 0.0

    # --- the start -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover, lead, listen. Raises OSError (port, disk), ConfigError, StorageError."""
        config = self.config
        self._files = files = OsFiles(config.data_dir)
        settings = StoreSettings(
            journal_bytes=config.journal_max_bytes,
            journal_file_bytes=config.journal_file_bytes,
            open_files_max=_open_files_max(config.open_segments_max),
            reserve_bytes=config.disk_reserve_bytes,
            quarantine_ms=config.log_segment_delete_delay_ms,
        )
        self.store = Store.open(files, settings, now=steady_ms())
        identity = self._identify()
        queued = config.queued_max_request_bytes
        self.backlog = Backlog(
            sys.maxsize if queued < 0 else queued, config.waiters_max, lambda: self.store.pressure
        )
        self.node = GroupNode(
            self.store,
            cluster_id=identity.cluster_id,
            node_id=identity.node_id,
            dice=random.SystemRandom(),
            now=steady_ms(),
        )
        self._assemble(identity)
        for listener in config.kafka_listeners:
            self._open_door(listener)
        self._register(identity)
        self._compactor = CompactorProcess(config.data_dir, self.workers.submit)
        self._housekeeping = Housekeeping(
            self.store, self.replicas, self._metadata_partition, self._compactor
        )
        self.node.wake = self._wake
        self.node.timers.on_earlier = self._sleep_less
        self._tick_at = self._loop.time()
        self._sleep()

    def _identify(self) -> Identity:
        cluster_id = self.store.cluster_id or _new_cluster_id()
        self.store.identify(cluster_id, self.config.node_id)
        return Identity(cluster_id, self.config.node_id, self.config.broker_rack)

    def _assemble(self, identity: Identity) -> None:
        self.settings = Settings(self.config)
        self.replicas = Replicas(self.node, self.settings, self.backlog, steady_ms)
        machine = ClusterMachine(ConfigRules(self.settings), FEATURES)
        self._cluster = machine
        changes = MetadataChanges(
            machine, self.replicas, self.config, identity.node_id, self._take_settings
        )
        replica = self.replicas.open_metadata((self.node.me,), is_founding=True)
        self._metadata_partition = self.replicas.metadata_partition(replica)
        self.metadata = MachineHost(
            machine,
            replica,
            reset=machine.reset,
            on_committed=changes.committed,
            now=steady_ms,
        )
        self._turn_now()
        fetcher = Fetcher(self.replicas.find, self.node.timers, self.config.waiters_max)
        self.service = Service(
            identity,
            self.config,
            machine,
            self.metadata,
            self.replicas,
            fetcher,
            Clocks(wall_ms, steady_ms),
            uuid.uuid4,
            self.backlog,
            self._openers,
        )
        changes.loaded()
        self._turn_now()

    def _take_settings(self, settings: Settings) -> None:
        level = settings.effective.logging_level
        if level != self.settings.effective.logging_level:
            logging.getLogger("dmq").setLevel(level.upper())
        self.settings = settings
        self._cluster.rules = ConfigRules(settings)
        self.service.config = settings.effective
        self.store.configure(
            reserve_bytes=settings.effective.disk_reserve_bytes,
            quarantine_ms=settings.effective.log_segment_delete_delay_ms,
        )
        for door in self._doors:
            door.configure(settings.effective)

    def _register(self, identity: Identity) -> None:
        """Tell the metadata that this broker is here; the first one forms the cluster."""
        if self._cluster.state.cluster_id is None:
            self.service.submit(FormCluster(identity.cluster_id, FINALIZED))
        endpoints = tuple(
            Endpoint(listener.name, *self.service.endpoints[listener.name], listener.protocol)
            for listener in self.config.kafka_listeners
        )
        registered = self.service.submit(
            RegisterBroker(
                identity.node_id,
                self.store.directory_id,
                uuid.uuid4(),
                endpoints,
                identity.rack,
                FEATURES,
                self.store.seq,
                identity.cluster_id,
            )
        )
        self._turn_now()
        self.service.broker_epoch = registered.get().epoch
        log.info("recovered %s", self.store.recovery)
        for uid in self.store.recovery.damaged:
            log.error("log %d is damaged; it is kept as it is and not served", uid)
        self.replicas.report_orphans()

    def _turn_now(self) -> None:
        """A whole turn in this thread: only before anybody is connected."""
        while (turn := self.node.begin_turn(steady_ms())) is not None:
            if turn.needs_sync:
                turn.sync()
            self.node.end_turn(steady_ms(), turn)

    def _open_door(self, listener: Listener) -> None:
        door = self._make_door(self, listener)
        port = door.listen(listener.host, listener.port)
        self._doors.append(door)
        self.service.endpoints[listener.name] = self.config.advertised(
            listener, port, socket.gethostname()
        )

    # --- turns ---------------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._turn_is_due and not self._is_syncing:
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        if self._is_syncing or self._is_ending or self.failure is not None:
            return
        with self._or_fail():
            while (turn := self.node.begin_turn(steady_ms())) is not None:
                if turn.needs_sync:
                    self._is_syncing = True
                    self._syncer.submit(turn.sync, partial(self._synced, turn))
                    return
                self._end_turn(turn, steady_ms())

    def _end_turn(self, turn: GroupTurn, now: int) -> None:
        self.node.end_turn(now, turn)
        self.backlog.relieve()

    def _synced(self, turn: GroupTurn, error: BaseException | None) -> None:
        self._is_syncing = False
        self._turn_ended.set()
        if error is not None:
            self.fail(error)
        if self.failure is not None:  # Promise nothing more, though this turn may be durable.
            return
        with self._or_fail():
            now = steady_ms()
            self._end_turn(turn, now)
            if self.store.has_jobs():
                self._maintain(now)
        self._turn()

    # --- time ----------------------------------------------------------------------------------

    def _sleep(self) -> None:
        """Until the next deadline, at most a tick."""
        delay = min(max(self.node.next_deadline() - steady_ms(), 0), TICK_MS)
        self._tick_at = self._loop.time() + delay / 1000
        self._tick = self._loop.call_at(self._tick_at, self._on_tick)

    def _sleep_less(self, deadline: int) -> None:
        """A timer was set that is due before we wake."""
        at = self._loop.time() + max(deadline - steady_ms(), 0) / 1000
        if self._tick is not None and at < self._tick_at - 0.001:
            self._tick.cancel()
            self._tick_at = at
            self._tick = self._loop.call_at(at, self._on_tick)

    def _on_tick(self) -> None:
        if self.failure is not None:
            return
        with self._or_fail():
            now = steady_ms()
            self.node.tick(now)
            self._housekeeping.tick(wall_ms())
            self._maintain(now)
            self._sleep()

    def _maintain(self, now: int) -> None:
        """Let the store flush, free journal files, remove what was deleted."""
        if self._is_ending:
            return
        for job in self.store.maintain(now):
            self.workers.submit(job.run, partial(self._job_done, job))
        if self.store.has_work():
            self._wake()

    def _job_done(self, job: Job, error: BaseException | None) -> None:
        if isinstance(error, OSError):  # What was deleted can't be removed: nothing depends on it.
            log.warning("files of a deleted log stay: %s", error)
        elif error is not None:
            self.fail(error)
        if self.failure is not None:
            return
        with self._or_fail():
            self.store.done(job)
            self._maintain(steady_ms())

    # --- the end -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _or_fail(self) -> Iterator[None]:
        """An exception that nobody expected ends the broker: its state can't be trusted."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """What is on disk is no longer known: stop at once, promise nothing more."""
        if self.failure is None:
            log.critical("the broker stops: %s", error, exc_info=error)
            self.failure = error
            for door in self._doors:
                door.close()
            self.stopped.set()

    def abandon(self) -> None:
        """The start failed: let go of threads and doors; what is on disk stays as it is."""
        if self._files is not None:
            self._files.unlock()
        for door in self._doors:
            door.close()
        self.workers.close()
        self._openers.close()
        self._syncer.close()

    async def stop(self) -> None:
        """Take no more, answer what is under way, flush, close."""
        for door in self._doors:
            door.stop_taking()
        self._wake()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drained(), STOP_PATIENCE_S)
        for door in self._doors:
            door.close()
        self._is_ending = True
        if self._tick is not None:
            self._tick.cancel()
        await self._no_sync()  # However long: what was begun can't be taken back.
        self._compactor.kill()
        self.workers.close()
        self._openers.close()
        self._syncer.close()
        await asyncio.sleep(0)  # Let the threads' last reports arrive: one may be a failure.
        self._close_store()
        self.stopped.set()

    async def _drained(self) -> None:
        """Nobody waits for an append, and every answer is with its client."""
        while self.failure is None and (  # noqa: ASYNC110  At the end only; answers have no event.
            self.node.has_waiting or any(door.has_unsent for door in self._doors)
        ):
            await asyncio.sleep(DRAIN_POLL_S)

    async def _no_sync(self) -> None:
        while self._is_syncing:
            self._turn_ended.clear()
            await self._turn_ended.wait()

    def _close_store(self) -> None:
        assert self._files is not None
        if self.failure is None:
            try:
                self.store.close(steady_ms())
            except (StorageError, OSError) as error:
                self.fail(error)
        self._files.unlock()


def _new_cluster_id() -> str:
    """22 characters, as Kafka's: a random uuid that does not begin with a dash."""
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _open_files_max(wanted: int) -> int:
    """Segments hold descriptors, and so do connections: half of what the system gives is theirs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(8, min(wanted, soft // 2))
