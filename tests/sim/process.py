"""The process of a simulated broker: a fake disk that outlives it, and the production node on it.

Does what `broker/runtime.py` does in reality: brings inputs to the node, performs its turns (a sync takes
simulated time), runs the store's jobs, calls `tick` at the deadline, and ends the process when the disk
can't be trusted. Decides nothing. Every call into the process may end in a crash: `_run` is the only
way in. What it serves is in broker.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fakes.disk import Crash
from sim.compaction import Cleaner, has_swap_file
from sim.disk import has_old_tail, make_disk
from sim.host import SimHost
from sim.notes import Note
from sim.observer import Watched

from dmq.broker.multiraft.bad_range import BATCH_COST, FILE_COST, RepairSettings
from dmq.broker.multiraft.node import GroupNode
from dmq.broker.multiraft.sending import SendSettings
from dmq.broker.multiraft.turn import NodeSettings
from dmq.errors import CorruptError, FatalStorageError, ProtocolError, StorageError
from dmq.raft.settings import RaftSettings
from dmq.storage import distrust
from dmq.storage.cleaner import Job
from dmq.storage.log import Log
from dmq.storage.store import Store, StoreSettings
from dmq.types import Voter

if TYPE_CHECKING:
    from sim.world import World

CLUSTER = "simulated"
PIECE_BYTES = 400
_NODE = NodeSettings(
    sending=SendSettings(piece_bytes=PIECE_BYTES, frame_bytes=1500, flying_bytes=4000),
    elections_max=2,
    repair=RepairSettings(slice_bytes=FILE_COST + 3 * BATCH_COST, asks_max=1),
)
"""Small enough that catching up takes many messages and work is left for later turns."""


class Process(SimHost):
    """See the module."""

    def __init__(self, world: "World", number: int) -> None:
        super().__init__(world, number)
        self.me = Voter(number, UUID(int=0))
        self.will_be_renamed = False
        """The disk was wiped or rots: the next process has another name."""
        self.sync_ms = world.mix.sync_ms
        self.watched: dict[str, Watched] = {}
        self._had_turn = False
        """The last process ended in the middle of a turn."""
        self.has_rotten_journal = False
        """A bit of its journal was flipped, and its name is the same still."""
        self.was_rotten = False
        """Its journal was rotten once: what else that said of its logs is gone, too."""
        self._forget_process()

    def _forget_process(self) -> None:
        super()._forget_process()
        self.store: Any = None
        self.node: Any = None
        self._turn: Any = None
        self._is_failing = False
        """The disk ends this process: in mid-turn nobody can tell what it was about to note."""
        self._is_turn_planned = False
        self._is_quiet = False
        """There was nothing to do for a turn; the next input may change that."""
        self._tick_at: int | None = None
        self._ticked_at = -1
        self.watched = {}
        self.backend: Any = None
        """What runs on the node: partitions with producers, coordinators; not in every world."""
        self.cleaner: Cleaner | None = None

    @property
    def is_serving(self) -> bool:
        return self.is_up and not self.is_paused

    # ---- the only way into the process

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
            self._distrust()
            self._is_failing = True
            self._end_by_accident(self.kill)

    def _distrust(self) -> None:
        """After a failed sync an async log may lack what it acknowledged out of the page cache."""
        if distrust.is_noted(self.disk):
            for topic in self.world.metadata.topics.values():
                facts = topic.facts
                if topic.is_async and (self.me in facts.durable or self.me in facts.marks_of):
                    topic.facts.shake(self.me)
                    self.world.reached["sync of an async log failed"] += 1

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
        self.is_running = self.is_up = True
        self.is_paused = False
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
                store = Store.open(disk, settings, now=self.now, accept_rotten=accept_rotten)
                store.identify(CLUSTER, self.number)
                return store
            except Crash:
                disk.power_cut()
                self.world.reached["crash in recovery"] += 1
                return None
            except CorruptError as rot:
                if accept_rotten:
                    raise
                self.world.say(self, "is rotten:", rot)
                self._doubt(f"its journal is rotten ({rot})", self.has_rotten_journal)
                disk.unlock()
            except (OSError, StorageError) as error:
                # The disk is full or its syncs fail; somebody looks after it.
                self.world.say(self, "can't start:", error)
                is_ill = disk.capacity is not None or disk.is_sync_failing
                self._doubt(f"it can't start ({error})", is_ill)
                self._distrust()
                disk.kill()
                disk.capacity, disk.is_sync_failing = None, False
                return None
        return None

    def _doubt(self, what: str, is_rotten: bool) -> None:
        for check in self.world.checkers.doubted:
            check(self.me, what, is_rotten)

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
            self.has_rotten_journal = False

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
                is_noting = self._is_failing or self._is_noting(watched.log)
                self.world.observer.ended(watched, is_noting=is_noting)
            self._had_turn = self._turn is not None
            self.is_running = self.is_up = False
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
            self.is_running = self.is_up = self.has_power = False
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
        self.has_rotten_journal = self.was_rotten = False

    def _lose_name(self) -> None:
        self.will_be_renamed = True
        for topic in self.world.metadata.topics.values():
            topic.facts.marks_of.pop(self.me, None)
            topic.facts.damaged.pop(self.me, None)

    def _wake(self) -> None:
        self._tick()

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

    def _connected(self, peer: int, hello: Any, session: int) -> None:
        try:
            self.node.connected(self.now, hello, session)
            self.known[peer] = hello.me
            if self.backend is not None:
                self.backend.peers.connected(peer, session)
        except ProtocolError as error:
            self._hang_up(peer, session, error)

    def _closed(self, peer: int, session: int) -> None:
        if peer in self.known:
            self.node.closed(self.now, self.known[peer], session)
            if self.backend is not None:
                self.backend.peers.closed(peer, session)

    def _refused(self, peer: int) -> None:
        self.node.refused(self.now, self.known[peer])

    def _receive(self, peer: int, session: int, frame: Any) -> None:
        if isinstance(frame, Note):
            self.backend.peers.receive(peer, session, frame)
        else:
            self.node.receive(self.now, self.known[peer], session, frame)

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


def _store_settings(file_bytes: int) -> StoreSettings:
    return StoreSettings(
        journal_bytes=8 * file_bytes,
        journal_file_bytes=file_bytes,
        turn_bytes_max=1000,
        late_bytes_min=150,
        uncached_bytes_min=150,
        fresh_bytes_max=3000,
        open_files_max=8,
        reserve_bytes=0,
        quarantine_ms=300,
    )
