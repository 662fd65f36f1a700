"""Drives a GroupNode on an event loop: inputs in, turns performed, frames out, time told.

    an input (frame, connection, client's verb)  ->  a turn soon, or what may leave while one is under way
    a turn that needs the disk                   ->  the sync thread; no other turn meanwhile
    the node's deadline                          ->  tick, the store's upkeep, a turn

All inputs of one pass of the loop share a turn. Decides nothing and knows no socket: frames go to
`send`, and loop, threads and clock are handed in. What nobody expected goes to `on_failure`: the
broker must stop then, for its state can't be trusted; the driver does nothing more.

Used by the runtime, and by tests of the peer door.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from dmq.broker.multiraft.frames import Frame, Hello, Outgoing
from dmq.broker.multiraft.node import GroupNode
from dmq.broker.multiraft.turn import GroupTurn
from dmq.errors import ProtocolError
from dmq.storage.cleaner import Job
from dmq.types import Voter

log = logging.getLogger("dmq.broker")

Done = Callable[[BaseException | None], None]


class Timer(Protocol):
    """Something that will happen, unless cancelled."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """What the driver needs of an event loop."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Any: ...
    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer: ...


class Threads(Protocol):
    """Runs `work` beside the loop, then `done` in it with what `work` raised, or None."""

    def submit(self, work: Callable[[], object], done: Done) -> None: ...


class GroupDriver:
    """See the module. `start`, then inputs; `stop`, then wait until `is_syncing` is over."""

    def __init__(
        self,
        node: GroupNode,
        loop: Loop,
        *,
        clock: Callable[[], int],
        syncer: Threads,
        workers: Threads,
        send: Callable[[list[Outgoing]], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.node = node
        self.failure: BaseException | None = None
        self.on_synced: Callable[[], None] = lambda: None
        """Called after each turn that needed the disk."""
        self.on_ended: Callable[[], None] = lambda: None
        """Called after each turn, when what waited for it was told."""
        self._loop = loop
        self._clock = clock
        self._syncer = syncer
        self._workers = workers
        self._send = send
        self._on_failure = on_failure
        self._turn: GroupTurn | None = None
        self._is_due = False
        self._is_stopped = True
        self._timer: Timer | None = None
        self._timer_at = 0

    @property
    def is_syncing(self) -> bool:
        """A turn is under way: the disk is at work."""
        return self._turn is not None

    def start(self) -> None:
        self._is_stopped = False
        self.node.wake = self.wake
        self.node.timers.on_earlier = self._sleep_less
        self.wake()

    def stop(self) -> None:
        """Begin nothing more; a sync under way can't be taken back, and its end is still noted."""
        self._is_stopped = True
        self.node.wake = lambda: None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- inputs (LinkEvents)

    @property
    def hello(self) -> Hello:
        return self.node.hello

    def connected(self, hello: Hello, session: int) -> None:
        self._input(self.node.connected, hello, session)

    def closed(self, peer: Voter, session: int) -> None:
        self._input(self.node.closed, peer, session)

    def refused(self, peer: Voter) -> None:
        self._input(self.node.refused, peer)

    def receive(self, peer: Voter, session: int, frame: Frame) -> None:
        self._input(self.node.receive, peer, session, frame)

    def _input(self, action: Callable[..., None], *args: Any) -> None:
        """Whatever comes of it: what follows from it is done soon. ProtocolError is the caller's."""
        if self.failure is not None:
            return
        try:
            action(self._clock(), *args)
        except ProtocolError:
            raise
        except Exception as error:  # noqa: BLE001
            self.fail(error)
        finally:
            self.wake()

    # ---- turns

    def wake(self) -> None:
        """There may be something to do; it is done in the loop's next pass."""
        if not self._is_due and not self._is_stopped:
            self._is_due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        if self._is_stopped or self.failure is not None:
            return
        with self._or_fail():
            if self._turn is None:
                self._begin_turn()
            else:
                self._leave(self.node.outgoing(self._clock()))
            self._sleep()

    def _begin_turn(self) -> None:
        """One turn, and the next in another pass of the loop: with thousands of groups there may be
        many in a row, and meanwhile sockets must be read and heartbeats leave."""
        turn = self.node.begin_turn(self._clock())
        if turn is None:
            return
        self._leave(turn.frames_now)
        if turn.needs_sync:
            self._turn = turn
            self._syncer.submit(turn.sync, partial(self._synced, turn))
            return
        self._leave(self.node.end_turn(self._clock(), turn))
        self.on_ended()
        self.wake()

    def _synced(self, turn: GroupTurn, error: BaseException | None) -> None:
        self._turn = None
        if error is not None:
            self.fail(error)
        if self.failure is None:  # Else promise nothing more, though this turn may be durable.
            with self._or_fail():
                now = self._clock()
                self._leave(self.node.end_turn(now, turn))
                self.on_ended()
                if self.node.store.has_jobs():
                    self._maintain(now)
            self._run()
        self.on_synced()

    def _leave(self, frames: list[Outgoing]) -> None:
        if frames:
            self._send(frames)

    # ---- time

    def _sleep(self) -> None:
        """Until the node's deadline. A timer that is set too early stays: it costs a look."""
        deadline = self.node.next_deadline()
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)

    def _sleep_less(self, deadline: int) -> None:
        if not self._is_stopped and (self._timer is None or deadline < self._timer_at):
            self._set_timer(deadline)

    def _set_timer(self, deadline: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        delay_ms = max(deadline - self._clock(), 0)
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._is_stopped or self.failure is not None:
            return
        with self._or_fail():
            now = self._clock()
            if now < self.node.next_deadline():
                self._sleep()
                return
            self.node.tick(now)
            self._maintain(now)
            self._run()

    def _maintain(self, now: int) -> None:
        """Let the store flush, free journal files, remove what was deleted."""
        if self._is_stopped:
            return
        for job in self.node.store.maintain(now):
            self._workers.submit(job.run, partial(self._job_done, job))
        if self.node.store.has_work():
            self.wake()

    def _job_done(self, job: Job, error: BaseException | None) -> None:
        if isinstance(error, OSError):  # What was deleted can't be removed: nothing depends on it.
            log.warning("files of a deleted log stay: %s", error)
        elif error is not None:
            self.fail(error)
        if self.failure is None and not self._is_stopped:
            with self._or_fail():
                self.node.store.done(job)
                self._maintain(self._clock())

    # ---- the end

    @contextlib.contextmanager
    def _or_fail(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            self.stop()
            self._on_failure(error)
