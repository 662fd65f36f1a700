"""Performs what the node decides: the loop, the clock, the threads, the start and the end.

The only module below the doors that knows asyncio and time. One `Runtime` is one broker on the running
loop; it opens the store, leads the partitions, runs turns, and stops the process's broker when
the disk can no longer be trusted. Doors are given to it as a factory, because it lies below them.
"""

import asyncio
import contextlib
import errno
import logging
import random
import resource
import socket
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from dmq.broker.assembly import Assembly, Ground
from dmq.broker.compactor import CompactorProcess
from dmq.broker.doorways import Bound, Door, Doors
from dmq.broker.driver import GroupDriver
from dmq.broker.farewell import Farewell
from dmq.broker.housekeeping import Housekeeping
from dmq.broker.introduction import FEATURES, FINALIZED, Introduction
from dmq.broker.member import ThisMember
from dmq.broker.membership import Entrance, Founded, Joined
from dmq.broker.outliving import Watch
from dmq.broker.peers import Address
from dmq.broker.predecessors import tell_predecessors
from dmq.broker.producing import Snapshots
from dmq.broker.registering import Registering
from dmq.broker.renaming import (
    NOTHING_ACCEPTED,
    Accepted,
    go_on_alone,
    open_store,
    skip_producer_ids,
)
from dmq.broker.service import Clocks, Identity
from dmq.broker.syncer import Syncer, Workers
from dmq.broker.whereabouts import Whereabouts
from dmq.config.broker import BrokerConfig
from dmq.config.settings import Settings
from dmq.errors import DmqError, ErrorCode, KafkaError, StorageError
from dmq.machines.brokers import is_fenced, is_unregistered, peer_addresses
from dmq.machines.cluster import ClusterMachine
from dmq.machines.commands import FormCluster
from dmq.storage.files import OsFiles, is_unreadable
from dmq.storage.producer_files import ProducerFiles
from dmq.storage.reading import FileSlice
from dmq.storage.store import StoreSettings
from dmq.types import Voter

log = logging.getLogger("dmq.broker")

TICK_MS = 50
"""Longest sleep: how late the store learns that it has been idle."""
WORKER_COUNT = 4
STOP_PATIENCE_S = 5.0
"""How long an orderly stop waits for appends under way and for clients to take their answers."""
DRAIN_POLL_S = 0.002
HAND_OVER_PATIENCE_S = 3.0
"""How long it waits for other brokers to take its leaderships."""
HEARD_S = 0.05
"""Other brokers hear of a new leader at about the time when we do; whoever turns to them because we hung
up should be told of it, not that there is none."""
OPEN_PAUSE_S = 0.005
"""Between two handfuls of new partitions."""
POLL_S = 0.005
TELL_S = 5.0
"""A start that waits for others says so this often."""
ASK_S = 0.5
"""How long after its beginning a start is ready at the earliest if somebody who was asked for its cluster
has not answered yet."""


class FencedError(DmqError):
    """Another process has this broker's number now."""

    code = ErrorCode.STALE_BROKER_EPOCH


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Where the system has it, the clock that goes on while the machine sleeps: no lease outlives that."""


def steady_ms() -> int:
    return time.clock_gettime_ns(STEADY) // 1_000_000


class Readable(Protocol):
    """Bytes of a file that a door is to send."""

    def __len__(self) -> int: ...
    def pread(self) -> bytes: ...


class Runtime:
    """One broker. `await start()`, then `await stop()`; `failure` is set if it had to stop itself."""

    def __init__(
        self, config: BrokerConfig, doors: Doors[Any], accepted: Accepted = NOTHING_ACCEPTED
    ) -> None:
        self.config = config
        self._accepted = accepted
        self.failure: BaseException | None = None
        self.stopped = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._files: OsFiles | None = None
        self._ways = doors
        self._doors: list[Door] = []
        self._bound: dict[str, Bound] = {}
        self._entrance: Entrance | None = None
        self._peer_port: int | None = None
        self._syncer = Syncer(self._loop)
        self.workers = Workers(self._loop, WORKER_COUNT)
        self._openers = Workers(self._loop, 1)
        """Apart from the others: it computes, and no flush must wait for that."""
        self._driver: GroupDriver | None = None
        self._turn_ended = asyncio.Event()
        self._tick: asyncio.TimerHandle | None = None
        self._incarnation = uuid.uuid4()
        self._is_opening = False
        self._asking: asyncio.Task[None] | None = None
        self._ask_until = 0.0
        self.whereabouts: Whereabouts | None = None

    # --- the start -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover, find our place, lead, listen.

        Raises OSError (port, disk), ConfigError, StorageError, JoinError.
        """
        config = self.config
        self._files = files = OsFiles(config.data_dir)
        settings = StoreSettings(
            journal_bytes=config.journal_max_bytes,
            journal_file_bytes=config.journal_file_bytes,
            open_files_max=_open_files_max(config.open_segments_max),
            reserve_bytes=config.disk_reserve_bytes,
            quarantine_ms=config.log_segment_delete_delay_ms,
        )
        self.store = open_store(files, settings, self._accepted.rotten, steady_ms())
        for listener in config.kafka_listeners:
            self._bound[listener.name] = self._ways.bind(config, listener)
        place = await self._find_place()
        self._assemble(place)
        await self._take_part(place)
        await self._others_agree()
        self._begin_serving()

    async def _find_place(self) -> Founded | Joined | None:
        """Where an empty directory belongs; None: it belongs somewhere already."""
        self._entrance = entrance = self._ways.entrance(self.config)
        known = self.store.cluster_id
        if entrance is not None:
            self._peer_port = entrance.listen(self.store.directory_id, known)
        ports = {name: bound.port for name, bound in self._bound.items()}
        self._introduction = Introduction(
            self.config, self.store, self._incarnation, ports, self._peer_port, socket.gethostname()
        )
        if known is not None:
            if entrance is not None:
                assert self.store.node_id is not None
                entrance.belongs(known, self.store.node_id)
                self._ask_until = self._loop.time() + ASK_S
                self._look_for_others(entrance, known, self.store.node_id)
                self._ask_around()
            return None
        if entrance is None:
            return Founded(_new_cluster_id(), self.config.node_id)
        place = await entrance.find_place(self._introduction.newcomer(_new_cluster_id))
        self._look_for_others(entrance, place.cluster_id, place.node_id)
        return place

    def _look_for_others(self, entrance: Entrance, cluster_id: str, node_id: int) -> None:
        self.whereabouts = Whereabouts(
            entrance, cluster_id, node_id, lambda: self.service.broker_epoch >= 0
        )

    def _ask_around(self) -> None:
        """Beside the start: are those that the settings name of our cluster, and where are they?"""
        is_asking = self._asking is not None and not self._asking.done()
        if self.whereabouts is not None and not is_asking:
            self._asking = self._loop.create_task(self._ask(self.whereabouts))

    async def _ask(self, whereabouts: Whereabouts) -> None:
        """If one is of another cluster, somebody took the wrong directory or address, and should know
        before anybody relies on this broker. Once clients do, they would suffer from its end, and its
        own cluster might need it: it goes on."""
        try:
            await whereabouts.ask()
        except DmqError as error:
            if self._doors:
                log.error("%s", error)
            else:
                self.failure = error

    async def _others_agree(self) -> None:
        """Raises JoinError if one of those that were asked is of another cluster."""
        if self._asking is not None:
            left_s = max(0.0, self._ask_until - self._loop.time())
            await asyncio.wait([self._asking], timeout=left_s)
        if self.failure is not None:
            raise self.failure

    def _identity(self, place: Founded | Joined | None) -> Identity:
        if place is not None:
            return Identity(place.cluster_id, place.node_id, self.config.broker_rack)
        assert self.store.cluster_id is not None
        node_id = self.store.node_id
        assert node_id is not None
        if "node.id" in self.config.values:
            node_id = self.config.node_id  # If it is another's directory, the store says so.
        return Identity(self.store.cluster_id, node_id, self.config.broker_rack)

    def _assemble(self, place: Founded | Joined | None) -> None:
        identity = self._identity(place)
        if not isinstance(place, Founded):  # A founder has its first log before its name.
            self.store.identify(identity.cluster_id, identity.node_id)
        assert self._files is not None
        ground = Ground(
            identity,
            self.config,
            self.store,
            Clocks(wall_ms, steady_ms),
            random.Random(),  # noqa: S311  Seeded by the system; jitter is no secret.
            uuid.uuid4,
            self._openers,
            Snapshots(ProducerFiles(self._files), self.workers),
            None if self._entrance is None else self._entrance.peers,
            FEATURES,
        )
        self.parts = parts = Assembly(
            ground,
            place.metadata_voters if isinstance(place, Joined) else (),
            is_founding=isinstance(place, Founded),
            on_settings=self._take_settings,
            on_brokers=self._brokers_changed,
        )
        self.service = parts.service
        for listener in self.config.kafka_listeners:
            self.service.endpoints[listener.name] = self._introduction.told(listener)
        self.farewell = Farewell(
            self.service, parts.metadata, ground.peers, steady_ms, self._leave, self._fenced
        )

    async def _take_part(self, place: Founded | Joined | None) -> None:
        """Read the metadata and be registered in them; then serve what they place here."""
        self.parts.metadata.moved()  # What the log knows to be committed.
        is_renamed = self._entrance is None and go_on_alone(
            self.parts.metadata.replica, self._accepted.rotten, steady_ms()
        )
        if isinstance(place, Founded):
            self._turn_now()
            self.store.identify(place.cluster_id, place.node_id)
            self.service.submit(FormCluster(place.cluster_id, FINALIZED))
        identity = self.service.identity
        if self._entrance is not None:
            self._entrance.belongs(identity.cluster_id, identity.node_id)
            addresses = place.addresses if isinstance(place, Joined) else self._last_addresses()
            assert self.whereabouts is not None
            self.whereabouts.expect(addresses)
        self._start_driver()
        registering = Registering(
            self.parts,
            self._introduction,
            self._accepted,
            self._is_linked,
            steady_ms,
            self._turn_now,
            self._until,
        )
        if isinstance(place, Joined):
            self.service.broker_epoch = place.broker_epoch
        else:
            await registering.register()
        await self._until(self._is_registered, "reading the cluster's metadata")
        if isinstance(place, Joined):
            tell_predecessors(self.parts.changes.state, identity.node_id)
        if is_renamed or registering.has_outlived:
            skip_producer_ids(self.service)
        self.parts.leadership.begin(self.service.broker_epoch)
        if self._entrance is not None:
            self.parts.replicas.on_more = self._open_more
            self.parts.replicas.on_opened = self.parts.topic_changed
        self.parts.changes.loaded()
        self._turn_now()
        await self._until(lambda: not self.parts.replicas.has_unopened, "opening partitions")
        self.parts.replicas.on_more = self._open_more
        self.parts.replicas.on_opened = self.parts.topic_changed
        log.info("recovered %s", self.store.recovery)
        for uid in self.store.recovery.damaged:
            log.error("log %d is damaged; it is kept as it is and not served", uid)
        self.parts.replicas.report_orphans()

    def _last_addresses(self) -> dict[int, Address]:
        """Where the other brokers were, by the last word in our log: it need not be committed to be
        worth a try, and after a crash we don't know how much of it is."""
        seen = ClusterMachine(self.parts.machine.rules, FEATURES)
        for record in self.parts.metadata.everything():
            seen.apply(record)
        me = self.service.identity.node_id
        listed = {n: at for n, at in self.config.peers_by_id.items() if n != me}
        return {**listed, **peer_addresses(seen.state, but=me)}

    def _start_driver(self) -> None:
        peers = None if self._entrance is None else self._entrance.peers
        self._driver = GroupDriver(
            self.parts.node,
            self._loop,
            clock=steady_ms,
            syncer=self._syncer,
            workers=self.workers,
            send=(lambda frames: None) if peers is None else peers.send,
            on_failure=self.fail,
        )
        self._driver.on_ended = self.parts.turn_ended
        self._driver.on_synced = self._turn_ended.set
        self._turn_now()
        self._driver.start()
        if self._entrance is not None:
            self._entrance.open_links(self._driver)
            self._entrance.admit(
                ThisMember(self.service, self.parts.forwarding, self.parts.metadata, steady_ms)
            )

    def _is_linked(self, voter: Voter) -> bool:
        return self.parts.node.links.open_link(voter) is not None

    def _is_registered(self) -> bool:
        record = self.parts.changes.state.brokers.get(self.service.identity.node_id)
        return record is not None and record.epoch >= self.service.broker_epoch

    def _ask_again(self) -> None:
        """Those that were started with us may answer by now; the registration tells us of the rest."""
        if self.whereabouts is not None and self.service.broker_epoch < 0:
            self._ask_around()

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Poll: this happens once in a broker's life, and what is awaited has many causes.

        Raises KafkaError if we are taken out of the cluster meanwhile: nobody would tell us more.
        """
        told_at = self._loop.time() + TELL_S
        while not condition():
            if self.failure is not None:
                raise self.failure
            self.farewell.tick()
            if self.stopped.is_set():
                raise KafkaError(
                    ErrorCode.BROKER_ID_NOT_REGISTERED,
                    "this broker was taken out of its cluster while it started. To take part again it "
                    "joins with an empty data directory",
                )
            if self._loop.time() >= told_at:
                told_at += TELL_S
                log.info("still %s", what)
                self._ask_again()
            await asyncio.sleep(POLL_S)

    def _begin_serving(self) -> None:
        self._compactor = CompactorProcess(self.config.data_dir, self.workers.submit)
        self._housekeeping = Housekeeping(
            self.store, self.parts.replicas, self.parts.metadata_partition, self._compactor
        )
        self._watch = Watch(self.parts.metadata.replica, self._is_linked)
        for listener in self.config.kafka_listeners:
            door = self._ways.kafka(self, listener, self._bound.pop(listener.name))
            self._doors.append(door)
            door.open()
        self._tick = self._loop.call_later(TICK_MS / 1000, self._on_tick)

    def warm(self, piece: Readable, warmed: Callable[[BaseException | None], None]) -> None:
        """Read what is to be sent in a worker, so that its pages are in memory: the loop waits for no
        disk. What a disk does not give back is mended; whoever asked for it asks again."""

        def done(error: BaseException | None) -> None:
            if is_unreadable(error) and isinstance(piece, FileSlice):
                self.parts.node.unreadable(piece)
            warmed(error)

        def read() -> None:
            if len(piece.pread()) < len(piece):
                raise OSError(errno.EIO, "a log file is shorter than its log")

        self.workers.submit(read, done)

    # --- what the metadata change ---------------------------------------------------------------

    def _brokers_changed(self) -> None:
        """Brokers registered or left, or all was just read."""
        state, me = self.parts.changes.state, self.service.identity.node_id
        if self.whereabouts is not None:
            self.whereabouts.know(peer_addresses(state, but=me))
        epoch = self.service.broker_epoch
        if epoch >= 0 and is_unregistered(state, me, epoch):
            self._leave()
        elif epoch >= 0 and is_fenced(state, me, epoch):
            self._fenced()
        else:
            self.parts.controller.changed(steady_ms())

    def _leave(self) -> None:
        """This broker was unregistered: it holds nothing that anybody needs, and ends in order."""
        if not self.stopped.is_set():
            log.warning("this broker is no longer part of its cluster: it stops")
            self.stopped.set()

    def _fenced(self) -> None:
        """Of two processes with one number the older one stops."""
        me = self.service.identity.node_id
        self.fail(FencedError(f"another process is broker {me} now"))

    def _open_more(self) -> None:
        """Partitions wait to be opened: a few after the turns that the last few caused."""
        if not self._is_opening:
            self._is_opening = True
            self._loop.call_later(OPEN_PAUSE_S, self._open_some)

    def _open_some(self) -> None:
        self._is_opening = False
        if self.failure is None:
            with self._or_fail():
                self.parts.replicas.open_some()

    def _take_settings(self, settings: Settings) -> None:
        level = settings.effective.logging_level
        if level != self.parts.settings.effective.logging_level:
            logging.getLogger("dmq").setLevel(level.upper())
        for door in self._doors:
            door.configure(settings.effective)

    # --- time ----------------------------------------------------------------------------------

    def _turn_now(self) -> None:
        """Whole turns in this thread: only while nobody is connected, for frames don't leave."""
        if self._driver is not None and (self._entrance is not None or self._driver.is_syncing):
            return
        while (turn := self.parts.node.begin_turn(steady_ms())) is not None:
            if turn.needs_sync:
                turn.sync()
            self.parts.node.end_turn(steady_ms(), turn)
            self.parts.turn_ended()

    def _on_tick(self) -> None:
        """What is due now and then, beside the turns."""
        if self.failure is not None:
            return
        with self._or_fail():
            self._housekeeping.tick(wall_ms())
            self.farewell.tick()
            self.parts.tick()
            self._watch.tick(steady_ms())
        self._tick = self._loop.call_later(TICK_MS / 1000, self._on_tick)

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
            if self._driver is not None:
                self._driver.stop()
            self._close_doors()
            self.stopped.set()

    def abandon(self) -> None:
        """The start failed: let go of threads and doors; what is on disk stays as it is."""
        if self._driver is not None:
            self._driver.stop()
        if self._files is not None:
            self._files.unlock()
        self._close_doors()
        self.workers.close()
        self._openers.close()
        self._syncer.close()

    def _close_doors(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        for door in self._doors:
            door.close()
        for bound in self._bound.values():
            bound.close()
        self._bound.clear()
        if self._entrance is not None:
            self._entrance.peers.close()

    async def stop(self) -> None:
        """Hand leaderships over, take no more, answer what is under way, flush, close."""
        assert self._driver is not None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._handed_over(), HAND_OVER_PATIENCE_S)
        for door in self._doors:
            door.stop_taking()
        self._driver.wake()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drained(), STOP_PATIENCE_S)
        self._close_doors()
        if self._tick is not None:
            self._tick.cancel()
        self._driver.stop()
        while self._driver.is_syncing:  # However long: what was begun can't be taken back.
            self._turn_ended.clear()
            await self._turn_ended.wait()
        self._compactor.kill()
        self.workers.close()
        self._openers.close()
        self._syncer.close()
        await asyncio.sleep(0)  # Let the threads' last reports arrive: one may be a failure.
        self._close_store()
        self.stopped.set()

    async def _handed_over(self) -> None:
        """Nobody has to find out that we are gone."""
        assert self._driver is not None
        has_given = False
        while self.failure is None and self.parts.node.hand_over_all(steady_ms()):
            has_given = True
            self._driver.wake()
            await asyncio.sleep(DRAIN_POLL_S)
        if has_given:
            await asyncio.sleep(HEARD_S)

    async def _drained(self) -> None:
        """Nobody waits for an append, and every answer is with its client."""
        while self.failure is None and (  # noqa: ASYNC110  At the end only; answers have no event.
            self.parts.node.has_waiting or any(door.has_unsent for door in self._doors)
        ):
            await asyncio.sleep(DRAIN_POLL_S)

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
