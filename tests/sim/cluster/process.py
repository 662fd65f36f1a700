"""One simulated broker with all its parts: `broker/assembly.py` on a fake disk, clock, loop and network.

Does what `broker/runtime.py` does in reality, with the production driver: a directory that belongs
nowhere founds the cluster or joins it; then it is registered, opens what the metadata place here, and is
ticked. Decides nothing. A paused process's events wait for it; a dead one's never happen.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from sim.batches import WALL_MS
from sim.coordination.peers import SimPeers
from sim.disk import make_disk
from sim.host import SimHost
from sim.notes import Note

from dmq.broker.answer import Answer
from dmq.broker.assembly import Assembly, Ground
from dmq.broker.driver import Done, GroupDriver
from dmq.broker.farewell import Farewell
from dmq.broker.introduction import FEATURES, FINALIZED
from dmq.broker.member import ThisMember
from dmq.broker.peers import PeerError
from dmq.broker.producing import Snapshots
from dmq.broker.service import Clocks, Identity
from dmq.config.broker import BrokerConfig
from dmq.errors import RETRIABLE, DmqError, ErrorCode, FatalStorageError, KafkaError, ProtocolError
from dmq.machines.brokers import PEER_LISTENER, is_fenced, is_unregistered
from dmq.machines.codec import decode_result, encode_command
from dmq.machines.commands import FormCluster, RegisterBroker
from dmq.machines.records import Endpoint
from dmq.storage.producer_files import ProducerFiles
from dmq.storage.store import Store, StoreSettings
from dmq.types import Voter

if TYPE_CHECKING:
    from sim.cluster.world import ClusterWorld

CLUSTER = "simulated"
TICK_MS = 50
RETRY_MS = 100
SILENCE_MAX_MS, SILENCE_LOOK_MS = 3000, 500
"""As of the peer door: a session on which nothing was heard for so long is ended."""
UNREGISTERED = ErrorCode.BROKER_ID_NOT_REGISTERED
STORE = StoreSettings(journal_bytes=64 * 1024, journal_file_bytes=8 * 1024, quarantine_ms=300)


class Timer:
    """Something that happens later, unless cancelled."""

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._callback, self._args = callback, args
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True

    def ring(self) -> None:
        if not self._is_cancelled:
            self._callback(*self._args)


class Loop:
    """A process's event loop."""

    def __init__(self, member: "Member") -> None:
        self._member = member

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._member.later(0, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(callback, args)
        self._member.later(round(delay * 1000), timer.ring)
        return timer


class Threads:
    """Work beside the loop: it takes a while, and is reported a little later."""

    def __init__(self, member: "Member", takes_ms: tuple[int, int]) -> None:
        self._member, self._takes_ms = member, takes_ms

    def submit(self, work: Callable[[], object], done: Done) -> None:
        self._member.later(self._member.rng.randint(*self._takes_ms), self._run, work, done)

    def soon(self, callback: Callable[[], None]) -> None:
        self._member.later(0, callback)

    def _run(self, work: Callable[[], object], done: Done) -> None:
        failure: BaseException | None = None
        try:
            work()
        except (DmqError, OSError) as error:
            failure = error
        self._member.later(self._member.rng.randrange(2), done, failure)


class Place(NamedTuple):
    """Where an empty directory belongs."""

    broker_epoch: int
    """-1: the cluster is to be founded."""
    voters: tuple[Voter, ...] = ()


class Member(SimHost):
    """See the module; it outlives its processes."""

    parts: Assembly
    peers: SimPeers
    store: Store

    def __init__(self, world: "ClusterWorld", number: int) -> None:
        super().__init__(world, number)
        self.is_serving = False
        self.has_left = False
        """It was unregistered and has ended: for good."""
        self.is_kept_broken = False
        """Whatever was to mend it has no effect."""
        self.looked_at = -1
        """How much metadata it had applied when it was last compared with others."""
        self._heard: dict[int, tuple[int, int]] = {}
        """By peer: the session, and when something was last heard on it."""

    def wall(self) -> int:
        return WALL_MS + self.world.clock.now

    # ---- the start

    def boot(self) -> None:
        """Start a process on this disk, if none runs."""
        if self.is_running or self.has_left or self.is_kept_broken:
            return
        self.has_power = True
        self.life += 1
        self.world.say(self, "starts")
        self.store = Store.open(self.disk, STORE, now=self.now)
        self.is_running, self.is_paused = True, False
        self.incarnation = self.world.new_id()
        if self.store.cluster_id is not None:
            self._assemble(None)
        elif self.world.is_founded:
            self._ask_for_place()
        else:
            self.world.is_founded = True
            self._assemble(Place(-1))

    def _ask_for_place(self) -> None:
        """Strangers ask whoever leads the metadata, as doors/peer/joining.py does, until it answers."""
        self.later(RETRY_MS + self.rng.randrange(50), self._ask_again)
        command = encode_command(self._registration(None))
        for other in self.world.within_reach(self):
            if other.is_serving and other.parts.metadata.replica.is_leader:
                other.arrive(self._register_at, other, command, self.life)
                return

    def _ask_again(self) -> None:
        if not self.is_up:
            self._ask_for_place()

    def _register_at(self, other: "Member", command: bytes, life: int) -> None:
        """In the process of `other`."""
        parts = other.parts
        member = ThisMember(parts.service, parts.forwarding, parts.metadata, lambda: other.now)

        def registered(done: Answer[bytes]) -> None:
            try:
                result = decode_result(done.get())
            except DmqError as error:
                self.world.say(self, "is refused by", other, error)
                return
            place = Place(result.epoch, member.metadata_voters())
            delay_ms = self.rng.randrange(20)
            self.world.clock.after(delay_ms, self._in_life, life, self._joined, place)

        member.register(command).on_done(registered)

    def _joined(self, place: Place) -> None:
        if not self.is_up:
            self._assemble(place)

    def _registration(self, cluster_id: str | None) -> RegisterBroker:
        return RegisterBroker(
            self.number,
            self.store.directory_id,
            self.incarnation,
            (Endpoint(PEER_LISTENER, f"host{self.number}", 9093, "PLAINTEXT"),),
            None,
            FEATURES,
            self.store.seq,
            cluster_id,
        )

    def _assemble(self, place: Place | None) -> None:
        is_founder = place is not None and place.broker_epoch < 0
        if not is_founder:
            self.store.identify(CLUSTER, self.number)
        threads = Threads(self, (1, 20))
        self.peers = SimPeers(self)  # type: ignore[arg-type]
        ground = Ground(
            Identity(CLUSTER, self.number, None),
            BrokerConfig(node_id=self.number, log_segment_bytes=4096),
            self.store,
            Clocks(self.wall, lambda: self.now),
            self.rng,
            self.world.new_id,
            threads,
            Snapshots(ProducerFiles(self.disk), threads),
            self.peers,  # type: ignore[arg-type]
            FEATURES,
        )
        self.parts = Assembly(
            ground,
            place.voters if place is not None else (),
            is_founding=is_founder,
            on_settings=lambda settings: None,
            on_brokers=self._brokers_changed,
        )
        self.service = self.parts.service
        self._farewell = Farewell(
            self.service,
            self.parts.metadata,
            self.peers,
            lambda: self.now,
            self._leave,
            self._fenced,  # type: ignore[arg-type]
        )
        self._take_part(place, is_founder=is_founder)

    def _take_part(self, place: Place | None, *, is_founder: bool) -> None:
        parts = self.parts
        parts.metadata.moved()
        if is_founder:
            while (turn := parts.node.begin_turn(self.now)) is not None:
                if turn.needs_sync:
                    turn.sync()
                parts.node.end_turn(self.now, turn)
            self.store.identify(CLUSTER, self.number)
            self.service.submit(FormCluster(CLUSTER, FINALIZED))
        self.driver = GroupDriver(
            parts.node,
            Loop(self),
            clock=lambda: self.now,
            syncer=Threads(self, self.world.sync_ms),
            workers=Threads(self, (1, 20)),
            send=self._send,
            on_failure=self._failed,
        )
        self.driver.on_ended = self._turn_ended
        self.driver.start()
        self.is_up = True
        self.world.network.start(self)
        self.later(SILENCE_LOOK_MS, self._end_silent_sessions)
        if place is not None and place.broker_epoch >= 0:
            self.service.broker_epoch = place.broker_epoch
            self._await_registration()
        else:
            self._register()

    def _register(self) -> None:
        self.service.submit(self._registration(CLUSTER)).on_done(self._registered)

    def _registered(self, done: Answer[Any]) -> None:
        try:
            self.service.broker_epoch = done.get().epoch
        except (KafkaError, PeerError) as error:
            if self.number == self.world.retiring and error.code is UNREGISTERED:
                self._leave()  # While it was down.
            elif error.code not in RETRIABLE and error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            else:
                self.later(RETRY_MS, self._register)
        else:
            self._await_registration()

    def _await_registration(self) -> None:
        record = self.parts.changes.state.brokers.get(self.number)
        if record is not None and record.epoch >= self.service.broker_epoch:
            self._begin()
        else:
            self._farewell.tick()
            self.later(5, self._await_registration)

    def _begin(self) -> None:
        parts = self.parts
        self.world.truths.registered(self.number, self.service.broker_epoch)
        parts.leadership.begin(self.service.broker_epoch)
        parts.replicas.on_more = lambda: self.later(5, parts.replicas.open_some)
        parts.replicas.on_opened = parts.topic_changed
        parts.changes.loaded()
        self._await_open()

    def _await_open(self) -> None:
        if self.parts.replicas.has_unopened:
            self.later(5, self._await_open)
            return
        self.is_serving = True
        self.later(TICK_MS, self._tick)

    # ---- what happens in it

    def _tick(self) -> None:
        self._farewell.tick()
        self.parts.tick()
        self.later(TICK_MS, self._tick)

    def _turn_ended(self) -> None:
        self.parts.turn_ended()
        self.world.truths.look(self)

    def _brokers_changed(self) -> None:
        state, epoch = self.parts.changes.state, self.service.broker_epoch
        if epoch >= 0 and is_unregistered(state, self.number, epoch):
            self._leave()
        elif epoch >= 0 and is_fenced(state, self.number, epoch):
            self._fenced()
        else:
            self.parts.controller.changed(self.now)

    def _leave(self) -> None:
        """Unregistered: this broker ends, and nobody starts it again."""
        if not self.has_left:
            self.world.say(self, "has left")
            self.world.reached["left"] += 1
            self.has_left = True
            self.world.clock.after(0, self.kill)

    def _fenced(self) -> None:
        """Another process has its number."""
        self.world.reached["fenced"] += 1
        self.world.clock.after(0, self.kill)

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, FatalStorageError):
            raise error
        self.world.say(self, "stops:", error)
        self.world.clock.after(0, self.kill)

    # ---- the end

    def kill(self) -> None:
        """The process ends; the page cache stays, and the kernel closes its connections."""
        if self.is_running:
            self._end()
            self.disk.kill()
            self.world.network.died(self.number, says_so=True)

    def power_cut(self) -> None:
        """What was not synced is lost, in the worst order; nobody is told."""
        if self.is_running:
            self._end()
            self.has_power = False
            self.world.network.died(self.number, says_so=False)
        self.disk.power_cut()

    def _end(self) -> None:
        self.is_running = self.is_up = self.is_serving = self.is_paused = False
        self.life += 1
        self.looked_at = -1
        self._heard = {}
        self._forget_process()

    def wipe(self) -> None:
        """A new disk: its next process has another directory id."""
        self.kill()
        self.disk = make_disk(self.rng, self.number)

    def resume(self) -> None:
        if not self.is_kept_broken:
            super().resume()

    def _wake(self) -> None:
        """Its timers wait with the rest."""

    # ---- connections

    def hello(self) -> Any:
        return self.parts.node.hello

    def _connected(self, peer: int, hello: Any, session: int) -> None:
        self.known[peer] = hello.me
        self._heard[peer] = session, self.now
        try:
            self.driver.connected(hello, session)
        except ProtocolError as error:
            self._hang_up(peer, session, error)
        self.peers.connected(peer, session)

    def _closed(self, peer: int, session: int) -> None:
        if self._heard.get(peer, (session,))[0] == session:
            self._heard.pop(peer, None)
        if peer in self.known:
            self.driver.closed(self.known[peer], session)
            self.peers.closed(peer, session)

    def _refused(self, peer: int) -> None:
        self.driver.refused(self.known[peer])

    def _end_silent_sessions(self) -> None:
        """Whoever waits for an answer on one is told that none comes."""
        self.later(SILENCE_LOOK_MS, self._end_silent_sessions)
        for peer, (session, at) in [*self._heard.items()]:
            if self.now - at > SILENCE_MAX_MS:
                del self._heard[peer]
                self.world.reached["silent session ended"] += 1
                self.world.network.hang_up(self.number, peer, session)

    def _receive(self, peer: int, session: int, frame: Any) -> None:
        self._heard[peer] = session, self.now
        if isinstance(frame, Note):
            self.peers.receive(peer, session, frame)
        else:
            self.driver.receive(self.known[peer], session, frame)


def new_id_from(rng: random.Random) -> UUID:
    return UUID(int=rng.getrandbits(128) | 1)
