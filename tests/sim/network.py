"""Connections between simulated brokers: what TCP does when networks are bad, and worse.

A connection is a session with a number that rises. Inside it frames arrive whole, in order and once, or
the connection ends; a cut direction holds frames back until it is healed or the connection breaks, so
they may arrive very late; the two ends learn of its end at different times, or never if the other host
lost its power. In `datagram` mode frames are lost, doubled, reordered and delivered after their session
has ended: no network does that to TCP, but no promise may rest on it.

Knows nothing of what is in a frame. Brokers are called by `Host`; faults.py cuts, slows and resets.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sim.clock import Clock

STALLED_MAX = 300
"""Frames that a cut direction holds back before the sender's buffers are full and it gives up."""


class Host(Protocol):
    """One end: a broker's process, alive or not."""

    number: int
    is_up: bool
    is_paused: bool
    has_power: bool
    life: int

    def hello(self) -> Any: ...
    def connected(self, peer: int, hello: Any, session: int) -> None: ...
    def closed(self, peer: int, session: int) -> None: ...
    def refused(self, peer: int) -> None: ...
    def receive(self, peer: int, session: int, frame: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Weather:
    """How good the network of a seed is when nothing special happens to it."""

    delay_ms: tuple[int, int] = (0, 2)
    redial_ms: tuple[int, int] = (5, 60)
    is_datagram: bool = False
    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    """How often a frame takes a detour; only of datagrams, for TCP keeps the order."""


class Way:
    """One direction between two hosts."""

    __slots__ = ("cuts", "extra_ms")

    def __init__(self) -> None:
        self.cuts = 0
        """How many faults cut it now."""
        self.extra_ms = 0


class Connection:
    """One session of two hosts."""

    __slots__ = ("is_broken", "last_arrival", "open_at", "session", "stalled")

    def __init__(self, session: int) -> None:
        self.session = session
        self.is_broken = False
        self.open_at: dict[int, int] = {}
        """The ends that have it open, and the life of their process."""
        self.last_arrival: dict[tuple[int, bool], int] = {}
        """Per end and stream: a session has a control stream and a bulk stream, each in order."""
        self.stalled: list[tuple[int, int, bool, Any]] = []


class Network:
    """See the module."""

    def __init__(self, clock: Clock, rng: random.Random, weather: Weather) -> None:
        self._clock = clock
        self._rng = rng
        self.weather = weather
        self.hosts: dict[int, Host] = {}
        self.ways: dict[tuple[int, int], Way] = {}
        self._connections: dict[tuple[int, int], Connection] = {}
        self._dialing: dict[tuple[int, int], None] = {}
        self._sessions = 0
        self.trace: Callable[..., None] | None = None
        self.frames = 0
        self.lost = 0
        self.copy: Callable[[Any], Any] | None = None
        """Encodes and decodes a frame, in the seeds that do so."""

    def add(self, host: Host) -> None:
        for other in self.hosts:
            self.ways[host.number, other] = Way()
            self.ways[other, host.number] = Way()
        self.hosts[host.number] = host

    def start(self, host: Host) -> None:
        """A process came up: it looks for all others."""
        for other in self.hosts:
            if other != host.number:
                self._dial_later(host.number, other)

    def _delay(self, src: int, dst: int) -> int:
        low, high = self.weather.delay_ms
        return self._rng.randint(low, high) + self.ways[src, dst].extra_ms

    # ---- connecting

    def _dial_later(self, src: int, dst: int) -> None:
        if (src, dst) not in self._dialing:
            self._dialing[src, dst] = None
            low, high = self.weather.redial_ms
            self._clock.after(self._rng.randint(low, high), self._dial, src, dst)

    def _dial(self, src: int, dst: int) -> None:
        del self._dialing[src, dst]
        caller, callee = self.hosts[src], self.hosts[dst]
        if not caller.is_up or self._is_open(src, dst):
            return
        is_reachable = not (self.ways[src, dst].cuts or self.ways[dst, src].cuts)
        if caller.is_paused or callee.is_paused or not is_reachable or not callee.has_power:
            self._dial_later(src, dst)
        elif not callee.is_up:
            self._clock.after(self._delay(dst, src), self._refuse, src, dst, caller.life)
            self._dial_later(src, dst)
        else:
            self._connect(caller, callee)

    def _is_open(self, src: int, dst: int) -> bool:
        found = self._connections.get(_pair(src, dst))
        return found is not None and found.open_at.get(src) == self.hosts[src].life

    def _refuse(self, src: int, dst: int, life: int) -> None:
        host = self.hosts[src]
        if host.is_up and host.life == life and not self._is_open(src, dst):
            host.refused(dst)

    def _connect(self, caller: Host, callee: Host) -> None:
        pair = _pair(caller.number, callee.number)
        former = self._connections.get(pair)
        if former is not None:
            former.is_broken = True
        self._sessions += 1
        made = self._connections[pair] = Connection(self._sessions)
        lives = {caller.number: caller.life, callee.number: callee.life}
        there = self._delay(caller.number, callee.number)
        back = there + self._delay(callee.number, caller.number)
        hellos = (caller.hello(), callee.hello())
        self._clock.after(there, self._opened, made, callee.number, caller.number, lives, hellos[0])
        self._clock.after(back, self._opened, made, caller.number, callee.number, lives, hellos[1])

    def _opened(
        self, made: Connection, here: int, there: int, lives: dict[int, int], hello: Any
    ) -> None:
        host, other = self.hosts[here], self.hosts[there]
        if not (host.is_up and host.life == lives[here]):
            return
        is_current = self._connections.get(_pair(here, there)) is made and not made.is_broken
        if not is_current:
            self._dial_later(here, there)  # It broke before it was there.
            return
        if other.life != lives[there] or not other.is_up:
            self._dial_later(here, there)
            return
        made.open_at[here] = host.life
        if self.trace is not None:
            self.trace("open", here, there, made.session)
        host.connected(there, hello, made.session)

    # ---- frames

    def send(
        self, src: int, dst: int, session: int, is_bulk: bool, frame: Any, *, in_order: bool = False
    ) -> None:
        """A frame leaves, if its session is the present one. `in_order`: its receiver rests on what
        TCP promises, also where others get datagrams."""
        made = self._connections.get(_pair(src, dst))
        if made is None or made.session != session or src not in made.open_at:
            return
        self.frames += 1
        if made.is_broken:
            self._learn_of_end(made, src, dst)
        elif self.weather.is_datagram and not in_order:
            self._send_datagram(made, src, dst, frame)
        elif self.ways[src, dst].cuts:
            self._stall(made, src, dst, is_bulk, frame)
        else:
            self._fly(made, src, dst, is_bulk, frame)

    def _fly(self, made: Connection, src: int, dst: int, is_bulk: bool, frame: Any) -> None:
        stream = (dst, is_bulk)
        at = max(self._clock.now + self._delay(src, dst), made.last_arrival.get(stream, 0))
        made.last_arrival[stream] = at
        self._clock.at(at, self._arrive, made, src, dst, is_bulk, frame)

    def _stall(self, made: Connection, src: int, dst: int, is_bulk: bool, frame: Any) -> None:
        made.stalled.append((src, dst, is_bulk, frame))
        if len(made.stalled) > STALLED_MAX:
            self._end(made, src, dst)

    def _arrive(self, made: Connection, src: int, dst: int, is_bulk: bool, frame: Any) -> None:
        host = self.hosts[dst]
        if made.is_broken or made.open_at.get(dst) != host.life or not host.is_up:
            self.lost += 1
            return
        if self.ways[src, dst].cuts:
            self._stall(made, src, dst, is_bulk, frame)
            return
        host.receive(src, made.session, frame if self.copy is None else self.copy(frame))

    def _send_datagram(self, made: Connection, src: int, dst: int, frame: Any) -> None:
        rng, weather = self._rng, self.weather
        if self.ways[src, dst].cuts or rng.random() < weather.lost:
            self.lost += 1
            return
        for _ in range(2 if rng.random() < weather.doubled else 1):
            delay = self._delay(src, dst)
            if rng.random() < weather.late:
                delay += rng.choice((3, 30, 300, 3000))
            self._clock.after(delay, self._arrive_datagram, made, src, dst, frame)

    def _arrive_datagram(self, made: Connection, src: int, dst: int, frame: Any) -> None:
        host = self.hosts[dst]
        if host.is_up and not self.ways[src, dst].cuts:
            host.receive(src, made.session, frame if self.copy is None else self.copy(frame))

    # ---- ends

    def reset(self, a: int, b: int) -> None:
        """The connection of these two breaks; what is under way is lost."""
        made = self._connections.get(_pair(a, b))
        if made is not None and not made.is_broken:
            self._end(made, a, b)

    def _end(self, made: Connection, a: int, b: int) -> None:
        made.is_broken = True
        made.stalled.clear()
        for here, there in ((a, b), (b, a)):
            self._learn_of_end(made, here, there)

    def _learn_of_end(self, made: Connection, here: int, there: int) -> None:
        """An end hears of it, unless the way to it is cut: then when it sends something again."""
        if not self.ways[there, here].cuts and self.hosts[there].has_power:
            self._clock.after(self._delay(there, here), self._closed, made, here, there)

    def _closed(self, made: Connection, here: int, there: int) -> None:
        host = self.hosts[here]
        life = made.open_at.pop(here, None)
        if life == host.life and host.is_up:
            if self.trace is not None:
                self.trace("close", here, there, made.session)
            host.closed(there, made.session)
            self._dial_later(here, there)

    def hang_up(self, src: int, dst: int, session: int) -> None:
        """The process at `src` closes its end by itself."""
        made = self._connections.get(_pair(src, dst))
        if made is not None and made.session == session:
            made.is_broken = True
            self._clock.after(0, self._closed, made, src, dst)
            self._learn_of_end(made, dst, src)

    def died(self, number: int, *, says_so: bool) -> None:
        """A process ended; with its host's power on, the kernel closes its connections."""
        for pair, made in self._connections.items():
            if number in pair and number in made.open_at:
                other = pair[0] if pair[1] == number else pair[1]
                made.is_broken = True
                made.stalled.clear()
                made.open_at.pop(number, None)
                if says_so:
                    self._learn_of_end(made, other, number)

    # ---- faults

    def is_cut_off(self, number: int) -> bool:
        """Whether this host and most others can't talk to each other."""
        lost = 0
        for other in self.hosts:
            if other != number:
                ways = (self.ways[number, other], self.ways[other, number])
                lost += any(way.cuts for way in ways)
        return 2 * lost > len(self.hosts) - 1

    def cut(self, ways: Sequence[tuple[int, int]]) -> None:
        for way in ways:
            self.ways[way].cuts += 1

    def heal(self, ways: Sequence[tuple[int, int]]) -> None:
        """Directions work again; what was held back arrives, late."""
        for src, dst in ways:
            way = self.ways[src, dst]
            if way.cuts:
                way.cuts -= 1
            if not way.cuts:
                self._thaw(src, dst)

    def _thaw(self, src: int, dst: int) -> None:
        made = self._connections.get(_pair(src, dst))
        if made is None:
            return
        frozen, made.stalled = made.stalled, []
        for item in frozen:
            if item[:2] == (src, dst):
                self._fly(made, *item)
            else:
                made.stalled.append(item)

    def heal_all(self, among: Sequence[int]) -> None:
        """Every direction between these hosts works and is quick."""
        for (src, dst), way in self.ways.items():
            if src in among and dst in among:
                way.extra_ms = 0
                if way.cuts:
                    way.cuts = 0
                    self._thaw(src, dst)


def _pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)
