"""A simulated host: its disk and clock outlive its processes, of which it has one at a time.

What happens outside comes in by `arrive`, what a process plans by `later`: a paused process finds it when
it goes on, a dead one's plans never happen. A kind of host says how a process begins and ends, and what
it does with a frame.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from sim.clock import SkewedClock
from sim.disk import make_disk

from dmq.errors import ProtocolError
from dmq.types import Voter

Action = Callable[..., object]


class SimHost(ABC):
    """See the module."""

    def __init__(self, world: Any, number: int) -> None:
        self.world = world
        self.rng: random.Random = world.rng
        self.number = number
        self.disk = make_disk(world.rng, number)
        self.local = SkewedClock(world.clock, 1_000_000 + 1000 * number)
        self.is_running = False
        self.is_up = False
        """Others can reach it: its process runs and takes part."""
        self.is_paused = False
        self.has_power = True
        self.life = 0
        self.known: dict[int, Voter] = {}
        """Whom this process had a session with, by number."""
        self._inbox: list[tuple[Action, tuple[Any, ...]]] = []

    def __repr__(self) -> str:
        return f"broker{self.number}"

    @property
    def now(self) -> int:
        return self.local.now()

    # ---- the only ways into the process

    def arrive(self, action: Action, *args: Any) -> None:
        """Something came to this host: for a paused process it lies in a socket."""
        if not self.is_running:
            return
        if self.is_paused:
            self._inbox.append((action, args))
        else:
            self._run(action, *args)

    def later(self, delay_ms: int, action: Action, *args: Any) -> None:
        """What this process plans; its clock may be wrong, but not by much in so short a time."""
        self.world.clock.after(delay_ms, self._in_life, self.life, action, *args)

    def _in_life(self, life: int, action: Action, *args: Any) -> None:
        if self.life == life:
            self.arrive(action, *args)

    def _run(self, action: Action, *args: Any) -> None:
        action(*args)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """First what lies in the sockets is read, then timers are looked at (SPEC §5)."""
        if not (self.is_running and self.is_paused):
            return
        self.is_paused = False
        inbox, self._inbox = self._inbox, []
        life = self.life
        for action, args in inbox:
            self._in_life(life, action, *args)
        self._in_life(life, self._wake)

    @abstractmethod
    def _wake(self) -> None:
        """All that lay in the sockets was read: look at the time."""

    def _forget_process(self) -> None:
        """It ended: nothing of what was under way is left."""
        self._inbox = []
        self.known = {}

    # ---- connections (network.Host)

    def connected(self, peer: int, hello: Any, session: int) -> None:
        self.arrive(self._connected, peer, hello, session)

    def closed(self, peer: int, session: int) -> None:
        self.arrive(self._closed, peer, session)

    def refused(self, peer: int) -> None:
        if peer in self.known:
            self.arrive(self._refused, peer)

    def receive(self, peer: int, session: int, frame: Any) -> None:
        self.arrive(self._received, peer, session, frame)

    def _received(self, peer: int, session: int, frame: Any) -> None:
        if peer not in self.known:
            return
        try:
            self._receive(peer, session, frame)
        except ProtocolError as error:
            self._hang_up(peer, session, error)

    def _hang_up(self, peer: int, session: int, error: ProtocolError) -> None:
        self.world.say(self, "hangs up on", peer, error)
        self.world.reached["hung up"] += 1
        self.world.network.hang_up(self.number, peer, session)

    def _send(self, frames: list[Any]) -> None:
        send = self.world.network.send
        for to, session, is_bulk, frame in frames:
            send(self.number, to.node, session, is_bulk, frame)

    # ---- what a kind of host does

    @abstractmethod
    def hello(self) -> Any:
        """What a new connection says first."""

    @abstractmethod
    def _connected(self, peer: int, hello: Any, session: int) -> None: ...

    @abstractmethod
    def _closed(self, peer: int, session: int) -> None: ...

    @abstractmethod
    def _refused(self, peer: int) -> None: ...

    @abstractmethod
    def _receive(self, peer: int, session: int, frame: Any) -> None:
        """A frame of a peer that is known. Raises ProtocolError: hang up."""
