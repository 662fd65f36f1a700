"""One simulated broker: a fake disk that outlives its processes, and the production node on it.

Does what `broker/runtime.py` does in reality: brings inputs to the node, performs its turns (a sync takes
simulated time), runs the store's jobs, calls `tick` at the deadline, and ends the process when the disk
can't be trusted. Decides nothing. Every call into the process may end in a crash: `_run` is the only
way in.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from fakes.disk import Crash
from sim import batches, keyed
from sim.clock import SkewedClock
from sim.compaction import Cleaner, has_swap_file
from sim.disk import flip_record, has_old_tail, make_disk
from sim.notes import Note
from sim.observer import Watched

from dmq.broker.multiraft.node import GroupNode
from dmq.broker.multiraft.replica import GroupSettings, NotLeaderError, Replica
from dmq.broker.multiraft.sending import SendSettings
from dmq.broker.multiraft.turn import NodeSettings
from dmq.errors import (
    CorruptError,
    ErrorCode,
    FatalStorageError,
    KafkaError,
    ProtocolError,
    StorageError,
)
from dmq.raft.settings import RaftSettings
from dmq.raft.state import Role
from dmq.storage.cleaner import Job
from dmq.storage.log import Log, LogSettings
from dmq.storage.store import Store, StoreSettings
from dmq.types import Position, Voter

if TYPE_CHECKING:
    from sim.metadata import Topic
    from sim.world import World

OnDone = Callable[[ErrorCode, int], None]
CLUSTER = "simulated"
PIECE_BYTES = 400
_NODE = NodeSettings(
    sending=SendSettings(piece_bytes=PIECE_BYTES, frame_bytes=1500, flying_bytes=4000),
    elections_max=2,
)
"""Small enough that catching up takes many messages and work is left for later turns."""


class Fetched(NamedTuple):
    """An answer to a fetch."""

    code: ErrorCode
    raw: bytes
    high_watermark: int
    log_start: int


class Broker:
    """See the module."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.rng: random.Random = world.rng
        self.number = number
        self.disk = make_disk(world.rng, number)
        self.local = SkewedClock(world.clock, 1_000_000 + 1000 * number)
        self.is_up = False
        self.is_paused = False
        self.has_power = True
        self.life = 0
        self.me = Voter(number, UUID(int=0))
        self.will_be_renamed = False
        """The disk was wiped or rots: the next process has another name."""
        self.sync_ms = world.mix.sync_ms
        self.watched: dict[str, Watched] = {}
        self.inbox: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._had_turn = False
        """The last process ended in the middle of a turn."""
        self._forget_process()

    def __repr__(self) -> str:
        return f"broker{self.number}"

    def _forget_process(self) -> None:
        self.store: Any = None
        self.node: Any = None
        self._turn: Any = None
        self._is_turn_planned = False
        self._is_quiet = False
        """There was nothing to do for a turn; the next input may change that."""
        self._tick_at: int | None = None
        self._ticked_at = -1
        self.watched = {}
        self.inbox = []
        self.peers: dict[int, Voter] = {}
        """Whom we had a session with, by number."""
        self.backend: Any = None
        """What runs on the node: partitions with producers, coordinators; not in every world."""
        self.cleaner: Cleaner | None = None

    @property
    def now(self) -> int:
        return self.local.now()

    @property
    def is_serving(self) -> bool:
        return self.is_up and not self.is_paused

    # ---- the only way into the process

    def arrive(self, action: Callable[..., None], *args: Any) -> None:
        """Something came to this host: for a paused process it lies in a socket."""
        if not self.is_up:
            return
        if self.is_paused:
            self.inbox.append((action, args))
        else:
            self._run(action, *args)

    def _run(self, action: Callable[..., Any], *args: Any) -> None:
        try:
            action(*args)
            self._after_input()
        except Crash:
            self.world.say(self, "loses power in a write")
            self.world.reached["power lost in a write"] += 1
            self._end_by_accident(self.power_cut)
        except FatalStorageError as error:
            self.world.say(self, "stops:", error)
            self.world.reached["stopped by its disk"] += 1
            self._end_by_accident(self.kill)

    def _end_by_accident(self, end: Callable[[], None]) -> None:
        end()
        if self.world.faults.is_over:
            self.world.clock.after(50, self.boot)
        else:
            self.world.clock.after(self.rng.randint(*self.world.mix.downtime_ms), self.boot)

    def _after_input(self) -> None:
        look = self.world.observer.look
        for watched in self.watched.values():
            look(watched)
        self._plan_turn()
        self.plan_tick()

    def look(self) -> None:
        """What it is about to tell may be news of this very moment."""
        for watched in self.watched.values():
            self.world.observer.look(watched)

    def _in_life(self, life: int, action: Callable[..., None], *args: Any) -> None:
        """Something that this process planned; for a paused one, it happens when it goes on."""
        if self.is_up and self.life == life:
            self.arrive(action, *args)

    def later(self, delay_ms: int, action: Callable[..., None], *args: Any) -> None:
        self.world.clock.after(delay_ms, self._in_life, self.life, action, *args)

    # ---- the process's beginning and end

    def boot(self) -> None:
        """Start a process on this disk, if none runs."""
        if self.is_up:
            return
        self.has_power = True
        self.life += 1
        store = self._open_store()
        if store is None:
            self.world.clock.after(100, self.boot)
            return
        self.is_up, self.is_paused = True, False
        self.store = store
        before = self.me
        self.me = Voter(self.number, store.directory_id)
        self.will_be_renamed = False
        self.world.say(self, "starts:", store.recovery)
        self._count_recovery(before)
        self._run(self._begin_process)
        if self.is_up:
            self.world.network.start(self)

    def _open_store(self) -> Store | None:
        disk = self.disk
        settings = _store_settings(self.world.mix.journal_file_bytes)
        if self.world.mix.compaction is not None:
            self.world.reached["start with a swap file"] += has_swap_file(disk)
        for accept_rotten in (False, True):
            try:
                return Store.open(disk, settings, now=self.now, accept_rotten=accept_rotten)
            except Crash:
                disk.power_cut()
                self.world.reached["crash in recovery"] += 1
                return None
            except CorruptError as error:
                if accept_rotten:
                    raise
                self.world.say(self, "is rotten:", error)
                disk.unlock()
            except (OSError, StorageError) as error:
                # The disk is full or its syncs fail; somebody looks after it.
                self.world.say(self, "can't start:", error)
                disk.kill()
                disk.capacity, disk.is_sync_failing = None, False
                return None
        return None

    def _count_recovery(self, before: Voter) -> None:
        report, reached = self.store.recovery, self.world.reached
        reached["torn record"] += report.torn is not None
        reached["rotten journal"] += report.rotten is not None
        reached["damaged at start"] += bool(report.damaged)
        reached["recovering at start"] += bool(report.recovering)
        reached["clean start"] += report.is_clean
        if not (report.is_clean or report.is_new):
            has_old = has_old_tail(self.disk, self.store.directory_id)
            reached["journal file with an old tail"] += has_old
            reached["torn record before old ones"] += has_old and report.torn is not None
        if before.directory.int and before != self.me:
            reached["new directory id"] += 1

    def _begin_process(self) -> None:
        world = self.world
        self.node = GroupNode(
            self.store,
            cluster_id=CLUSTER,
            node_id=self.number,
            dice=world.rng,
            now=self.now,
            raft=RaftSettings(window=world.mix.window),
            settings=_NODE,
        )
        self.backend = world.new_backend(self)
        world.metadata.register(self.number, self.me.directory)
        world.metadata.tell(self)
        if world.mix.compaction is not None:
            self.cleaner = Cleaner(self, world.mix.compaction)

    def kill(self) -> None:
        """The process ends; the page cache stays, and the kernel closes its connections."""
        if self.is_up:
            self._note_compaction()
            for watched in self.watched.values():
                self.world.observer.ended(watched, is_noting=self._is_noting(watched.log))
            self._had_turn = self._turn is not None
            self.is_up = False
            self.disk.kill()
            self._forget_process()
            self.world.network.died(self.number, says_so=True)

    def _is_noting(self, log: Log) -> bool:
        """Whether a STATE of this log is asked for, being flushed or written, and not yet durable."""
        cleaner, turn = self.store._cleaner, self._turn
        if log.is_recovering or log in cleaner._requested:
            return True
        notes = [*cleaner.notes, *(cleaner._running.notes if cleaner._running is not None else ())]
        if any(note.log is log and note.is_state for note in notes):
            return True
        begun = turn.store_turn if turn is not None else None
        return begun is not None and any(fact.uid == log.uid for fact in begun.facts)

    def power_cut(self) -> None:
        """What was not synced is lost, in the worst order; nobody is told."""
        if self.is_up:
            self._note_compaction()
            for watched in self.watched.values():
                if watched.log.is_async:
                    watched.facts.shake(self.me)
            self._had_turn = self._turn is not None
            self.is_up = self.has_power = False
            self._forget_process()
            self.world.network.died(self.number, says_so=False)
        self.disk.power_cut()

    def _note_compaction(self) -> None:
        if self.cleaner is not None and self.cleaner.is_busy:
            self.world.reached["crash in a compaction"] += 1

    def stop(self) -> None:
        """An orderly end: all is flushed, the journal closed; a turn under way is finished first."""
        self._run(self._stop)
        if self.is_up:
            self.kill()

    def _stop(self) -> None:
        if self._turn is not None:
            turn = self._turn
            if turn.needs_sync:
                turn.sync()
                self._note_durable(is_synced=True)
            self._end_turn(turn)
        self.store.close(self.now)
        self.world.reached["closed"] += 1

    def crash_after(self, operations: int) -> None:
        self.disk.budget = operations

    def wipe(self) -> None:
        """A new disk."""
        self.kill()
        self.has_power = False
        self._lose_name()
        self.disk = make_disk(self.world.rng, self.number)

    def _lose_name(self) -> None:
        self.will_be_renamed = True
        for topic in self.world.metadata.topics.values():
            topic.facts.marks_of.pop(self.me, None)
            topic.facts.damaged.pop(self.me, None)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """First what lies in the sockets is read, then timers are looked at (SPEC §5)."""
        if not (self.is_up and self.is_paused):
            return
        self.is_paused = False
        inbox, self.inbox = self.inbox, []
        life = self.life
        for action, args in inbox:
            self._in_life(life, action, *args)
        self._in_life(life, self._tick)

    def cure(self) -> None:
        """Everything that ails this host ends."""
        self.disk.capacity = None
        self.disk.is_sync_failing = False
        self.disk.budget = None
        if self.cleaner is not None:
            self.cleaner.put_out_fuse()
        self.sync_ms = self.world.mix.sync_ms
        self.local.set_rate(1000)
        self.resume()
        self.boot()

    # ---- connections

    def hello(self) -> Any:
        return self.node.hello

    def connected(self, peer: int, hello: Any, session: int) -> None:
        self.arrive(self._connected, peer, hello, session)

    def _connected(self, peer: int, hello: Any, session: int) -> None:
        try:
            self.node.connected(self.now, hello, session)
            self.peers[peer] = hello.me
            if self.backend is not None:
                self.backend.peers.connected(peer, session)
        except ProtocolError as error:
            self._hang_up(peer, session, error)

    def _hang_up(self, peer: int, session: int, error: ProtocolError) -> None:
        self.world.say(self, "hangs up on", peer, error)
        self.world.reached["hung up"] += 1
        self.world.network.hang_up(self.number, peer, session)

    def closed(self, peer: int, session: int) -> None:
        self.arrive(self._closed, peer, session)

    def _closed(self, peer: int, session: int) -> None:
        if peer in self.peers:
            self.node.closed(self.now, self.peers[peer], session)
            if self.backend is not None:
                self.backend.peers.closed(peer, session)

    def refused(self, peer: int) -> None:
        if peer in self.peers:
            self.arrive(self._refused, peer)

    def _refused(self, peer: int) -> None:
        self.node.refused(self.now, self.peers[peer])

    def receive(self, peer: int, session: int, frame: Any) -> None:
        self.arrive(self._receive, peer, session, frame)

    def _receive(self, peer: int, session: int, frame: Any) -> None:
        if peer not in self.peers:
            return
        try:
            if isinstance(frame, Note):
                self.backend.peers.receive(peer, session, frame)
            else:
                self.node.receive(self.now, self.peers[peer], session, frame)
        except ProtocolError as error:
            self._hang_up(peer, session, error)

    def _send(self, frames: list[Any]) -> None:
        send = self.world.network.send
        for to, session, is_bulk, frame in frames:
            send(self.number, to.node, session, is_bulk, frame)

    # ---- turns and time

    def _plan_turn(self) -> None:
        if self._turn is not None:
            self._send(self.node.outgoing(self.now))
        elif self._is_quiet:
            self._is_quiet = False
        elif not self._is_turn_planned:
            self._is_turn_planned = True
            self.later(self.rng.randrange(2), self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_turn_planned = False
        if self._turn is not None:
            return
        turn = self.node.begin_turn(self.now)
        if turn is None:
            self._is_quiet = True
            return
        self._turn = turn
        if self.cleaner is not None:
            self.cleaner.turn_began()
        self._send(turn.frames_now)
        if turn.needs_sync:
            first, rest = self.rng.randint(*self.sync_ms), self.rng.randrange(2)
            self.later(first, self._sync, turn, rest)
        else:
            self._note_durable(is_synced=False)
            self._end_turn(turn)

    def _sync(self, turn: Any, rest_ms: int) -> None:
        """The disk has done it; its thread reports a little later."""
        turn.sync()
        self._note_durable(is_synced=True)
        self.later(rest_ms, self._end_turn, turn)

    def _note_durable(self, *, is_synced: bool) -> None:
        durable = self.world.observer.durable
        for watched in self.watched.values():
            durable(watched, is_synced=is_synced)

    def _end_turn(self, turn: Any) -> None:
        self._turn = None
        self._send(self.node.end_turn(self.now, turn))
        if self.backend is not None:
            self.backend.turn_ended()
        self._maintain()

    def _maintain(self) -> None:
        for job in self.store.maintain(self.now):
            self.later(self.rng.randint(*self.sync_ms), self._run_job, job)

    def _run_job(self, job: Job) -> None:
        job.run()
        self.later(self.rng.randrange(3), self.store.done, job)

    def plan_tick(self) -> None:
        """At the node's deadline, by its own clock."""
        if not self.is_up:
            return
        at = self.local.to_world(self.node.next_deadline())
        if at <= self._ticked_at:
            at = self._ticked_at + 1  # The turn that it asks for comes first.
        if self._tick_at is None or at < self._tick_at:
            self._tick_at = at
            self.world.clock.at(at, self._tick_due, self.life, at)

    def _tick_due(self, life: int, at: int) -> None:
        if self.life == life and self._tick_at == at:
            self._tick_at = None
            self._ticked_at = at
            self._in_life(life, self._tick)

    def _tick(self) -> None:
        self.node.tick(self.now)
        if self._turn is None:
            self._maintain()

    # ---- groups

    def _replica(self, topic: "Topic") -> Replica | None:
        return self.node.replica(topic.topic_id, 0) if self.is_up else None

    def holds(self, topic: "Topic") -> bool:
        return topic.name in self.watched

    def has_log(self, topic: "Topic") -> bool:
        """Served, or on disk since a former life."""
        return self.holds(topic) or any(k.topic_id == topic.topic_id for k in self.node.unclaimed)

    def host(self, topic: "Topic", target: tuple[Voter, ...]) -> None:
        """Serve a group, or learn that it shall have other voters."""
        replica = self._replica(topic)
        if replica is not None:
            if replica.target != target:
                replica.set_target(target, self.now)
            return
        had_log = self.has_log(topic)
        replica = self.node.create_group(
            self.now,
            topic.topic_id,
            0,
            topic.first_voters,
            _group_settings(self.world.mix, topic.is_async),
            is_founding=self.world.metadata.may_begin(topic, self.me),
            target=target,
        )
        watched = self.watched[topic.name] = Watched(topic, replica)
        if self.backend is not None:
            self.backend.opened(topic, replica)
        if self.disk.has_flips(replica.log.directory):
            topic.facts.damaged[self.me] = None  # Perhaps under a new name.
        if had_log or self.me in topic.facts.durable:
            self.world.observer.restarted(watched, is_exact=not self._had_turn)

    def drop(self, topic: "Topic") -> None:
        """The topic was deleted; others may not know it yet, and count on what this one had."""
        self.watched.pop(topic.name, None)
        self.node.drop_group(topic.topic_id, 0)
        if self.backend is not None:
            self.backend.deleted(topic)

    def leave(self, topic: "Topic") -> None:
        """A committed mark leaves this replica out: its records go, its epoch and vote stand."""
        if self.has_log(topic):
            self._forget(topic)
            self.node.leave_group(topic.topic_id, 0)
            if self.backend is not None:
                self.backend.left(topic)
            self.world.reached["replica left"] += 1

    def _forget(self, topic: "Topic") -> None:
        self.watched.pop(topic.name, None)
        facts = topic.facts
        for known in (facts.marks_of, facts.damaged, facts.durable, facts.tombstones):
            known.pop(self.me, None)

    def roles(self) -> list[str]:
        """What this broker is, over its groups, for the count of what faults have hit."""
        found: dict[str, None] = {}
        for watched in self.watched.values():
            state = watched.state
            role = state.role.value
            if state.role is Role.FOLLOWER:
                if state.is_recovering:
                    role = "recovering"
                elif state.is_damaged:
                    role = "damaged"
                elif state.me not in state.voters:
                    role = "learner"
            found[role] = None
        return [*found] or ["idle"]

    def leads_something(self) -> bool:
        return any(watched.core.is_leader for watched in self.watched.values())

    def leads(self, topic: "Topic") -> bool:
        return topic.name in self.watched and self.watched[topic.name].core.is_leader

    def leader_hint(self, topic: "Topic") -> int | None:
        watched = self.watched.get(topic.name)
        leader = watched.core.leader if watched is not None else None
        return leader.node if leader is not None else None

    def settled_end(self, topic: "Topic", target: tuple[Voter, ...]) -> Position | None:
        """Where the log ends, if nothing is left to be done for this replica."""
        watched = self.watched.get(topic.name)
        if watched is None or not self.is_serving:
            return None
        state, log = watched.state, watched.log
        if state.is_recovering or state.is_damaged or set(state.voters) != set(target):
            return None
        is_whole = log.stable_end == log.end and state.is_leader_live
        # The last word on what is committed is said once: a link that loses it breaks, but for datagrams.
        may_lack_it = self.world.mix.weather.is_datagram and state.leading is None
        is_told = state.log.commit == log.end or may_lack_it
        return log.end if is_whole and is_told else None

    def commit_offset(self, topic: "Topic") -> int:
        """All below it this replica has for certain."""
        return self.watched[topic.name].state.log.commit.offset if self.holds(topic) else 0

    def bytes_beyond(self, topic: "Topic", offset: int) -> int:
        """What this replica may have to send to one that has all below `offset`."""
        if not self.holds(topic):
            return 0
        segments = self.watched[topic.name].log.segments_list
        first = max((segment.base for segment in segments if segment.base <= offset), default=0)
        return sum(segment.size for segment in segments if segment.base >= first)

    def describe(self, topic: "Topic") -> str:
        watched = self.watched.get(topic.name)
        if watched is None:
            return f"{self}: {'up' if self.is_up else 'down'}, without it"
        state = watched.state
        voters = [f"{v.node}{'' if self._is_current(v) else '!'}" for v in state.voters]
        flags = [name for name in ("is_recovering", "is_damaged") if getattr(state, name)]
        leader = state.leader.node if state.leader is not None else "nobody"
        return (
            f"{self}: {state.role.value} of epoch {state.epoch} under {leader}"
            f"{'' if state.is_leader_live else ' (dead)'}, voters {','.join(voters)}, "
            f"{state.log.log_start}..{tuple(state.log.end)} commit {tuple(state.log.commit)} {flags}"
            f"{' paused' if self.is_paused else ''}"
        )

    def _is_current(self, voter: Voter) -> bool:
        return self.world.metadata.directories.get(voter.node) == voter.directory

    # ---- clients

    def produce(
        self, topic: "Topic", raw: bytearray, acks: int, timeout_ms: int, on_done: OnDone
    ) -> None:
        replica = self._replica(topic)
        if replica is None:
            on_done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
            return
        base = -1

        def told(code: ErrorCode) -> None:
            watched = self.watched.get(topic.name)
            if watched is not None:  # What it is told may be news of this very moment.
                self.world.observer.look(watched)
            on_done(code, base)

        try:
            append = replica.produce(
                memoryview(raw), self.now, acks=acks, timeout_ms=timeout_ms, on_done=told
            )
        except NotLeaderError:
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        except KafkaError as error:
            on_done(error.code, -1)
        except StorageError:
            on_done(ErrorCode.KAFKA_STORAGE_ERROR, -1)
        else:
            base = append.base_offset

    def probe(self, topic: "Topic") -> None:
        """Append something if we lead, to see whether it commits."""
        replica = self._replica(topic)
        if replica is not None and replica.core.can_append:
            if topic.is_internal:
                self.backend.probe(topic)
                return
            number = self.world.next_number()
            is_keyed = topic.facts.is_compacted
            raw = keyed.make(number) if is_keyed else batches.make(number, 1, 0)
            self.produce(topic, raw, 1, 1000, lambda code, base: None)

    def fetch(
        self, topic: "Topic", offset: int, bytes_max: int, *, may_follow: bool
    ) -> Fetched | None:
        """None: this broker does not know the topic."""
        replica = self._replica(topic)
        if replica is None:
            return None
        high, start = replica.high_watermark, replica.log_start_offset
        if replica.is_leader:
            self._look_at_lease(topic, replica)
        if not replica.is_leader and not may_follow:
            return Fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, b"", high, start)
        try:
            slices = replica.read(offset, bytes_max, whole_first_batch=True)
            raw = b"".join([part.pread() for part in slices])
        except KafkaError as error:
            return Fetched(error.code, b"", high, start)
        except StorageError:
            return Fetched(ErrorCode.KAFKA_STORAGE_ERROR, b"", high, start)
        return Fetched(ErrorCode.NONE, raw, high, start)

    def _look_at_lease(self, topic: "Topic", replica: Replica) -> None:
        """Whether it could answer a read that must be the newest; see `GroupNode.has_lease`."""
        world = self.world
        if not (replica.core.knows_latest and self.node.has_lease(replica, self.now)):
            world.reached["lease read refused"] += 1
            return
        world.reached["lease read"] += 1
        world.observer.look(self.watched[topic.name])
        self.check_lease(topic)

    def check_lease(self, topic: "Topic") -> None:
        """If it would answer by its lease now, that must be right."""
        replica = self._replica(topic)
        if "skew" in self.world.mix.faults or self.is_paused or replica is None:
            return  # Leases rest on clocks that run alike.
        core = replica.core
        if core.is_leader and core.knows_latest and self.node.has_lease(replica, self.now):
            for check in self.world.checkers.leased:
                check(topic.facts, self.me, core.epoch, replica.latest_offset())

    def list_latest(self, topic: "Topic") -> None:
        """A client asks where the log ends, as the verb list_offset does; what it is told is judged."""
        replica = self._replica(topic)
        if replica is None or not replica.core.can_append or not replica.core.knows_latest:
            return
        world, life, floor = self.world, self.life, topic.facts.high

        def told(code: ErrorCode) -> None:
            if code is ErrorCode.NONE and self.life == life and replica.core.knows_latest:
                world.observer.look(self.watched[topic.name])
                world.reached["latest told"] += 1
                for check in world.checkers.latest_told if "skew" not in world.mix.faults else ():
                    check(topic.facts, self.me, replica.latest_offset(), floor)

        replica.await_newest(self.now, told)

    def trim(self, topic: "Topic", share: float) -> None:
        """Retention takes a share of what is committed."""
        replica = self._replica(topic)
        if replica is None or not replica.core.can_append:
            return
        start, high = replica.log_start_offset, replica.high_watermark
        high = max(start, high - self.world.mix.trim_keeps)
        replica.trim(start + int((high - start) * share), self.now)

    def transfer(self, topic: "Topic", to: int) -> None:
        replica = self._replica(topic)
        if replica is None or not replica.is_leader:
            return
        for voter in replica.core.voters:
            if voter.node == to and replica.transfer(voter, self.now):
                self.world.reached["transfer under load"] += 1

    # ---- rot

    def flip_segment(self, topic: "Topic") -> bool:
        """Flip a bit in a batch of this log that a turn has made durable."""
        watched = self.watched[topic.name]
        log = watched.log
        segments = [s for s in log.segments_list if s.size and s.file is not None]
        if not segments or log.damage:
            return False
        segment = self.rng.choice(segments)
        name = f"{log.directory}/{segment.base:020d}.log"
        size = min(segment.size, self.disk.open(name).size())  # Some of it may be written late.
        if not size:
            return False
        self.disk.flip(name, self.rng.randrange(size), 1 << self.rng.randrange(8))
        watched.facts.damaged[self.me] = None
        watched.facts.was_rotten = True
        return True

    def flip_journal(self) -> None:
        """Rot that is noticed: under its name this broker is no more."""
        if flip_record(self.disk, self.me.directory, self.rng):
            self._lose_name()


def _store_settings(file_bytes: int) -> StoreSettings:
    return StoreSettings(
        journal_bytes=8 * file_bytes,
        journal_file_bytes=file_bytes,
        turn_bytes_max=1000,
        late_bytes_min=150,
        open_files_max=8,
        reserve_bytes=0,
        quarantine_ms=300,
    )


def _group_settings(mix: Any, is_async: bool) -> GroupSettings:
    log = LogSettings(
        segment_bytes=mix.segment_bytes, index_interval_bytes=64, is_async=is_async, flush_ms=100
    )
    return GroupSettings(log=log, min_insync_replicas=mix.min_insync)
