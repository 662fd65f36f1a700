"""`dmq up --brokers N`: a cluster of `dmq serve` processes in one terminal.

Owns the children: their ports, folders and output, one banner when all are ready, the report of one
that ends, and their common end. Brokers run in processes of their own, so that one of them can be
killed or paused to see what a cluster does then. They end with this process, however it ends (on
Linux). Called by `start` for more than one broker.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from dmq.cli.exits import CommandError, Exit, usage
from dmq.cli.start import FOLDER_PREFIX

PORT_MAX = 65535
PORT_STEP = 10
"""Between the ports of two brokers; a broker's peer door is one above its Kafka door."""
START_PATIENCE_S = 60.0
STOP_PATIENCE_S = 30.0
LAST_WORDS_MAX = 100
"""Lines of a broker that are kept for the case that it does not stop in order."""
IMPATIENT_AFTER_S = 1.0
"""Signals often come in pairs: to the process and to its group. Only a later one is a second one."""
_HOST = "127.0.0.1"
_PR_SET_PDEATHSIG = 1


class Event(NamedTuple):
    """What happened: `ready` and `ended` of a broker, or a `signal` to us; `value` says more."""

    kind: str
    node: int
    value: Any


class Broker:
    """One child: where it listens, where its data is, its process."""

    def __init__(self, node: int, port: int, peer_port: int, data_dir: str) -> None:
        self.node = node
        self.port = port
        self.peer_port = peer_port
        self.data_dir = data_dir
        self.ready: dict[str, Any] | None = None
        self.process: subprocess.Popen[str] | None = None
        self.last_words: deque[str] = deque(maxlen=LAST_WORDS_MAX)
        """Lines that were not told yet."""

    @property
    def address(self) -> str:
        """Of the Kafka door."""
        return f"{_HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def settings(self, peers: str) -> dict[str, str]:
        """What this broker has of its own."""
        return {
            "node.id": str(self.node),
            "host": _HOST,
            "port": str(self.port),
            "peer.listener": f"{_HOST}:{self.peer_port}",
            "cluster.peers": peers,
            "log.dirs": self.data_dir,
        }

    def tell_last_words(self) -> None:
        """Pass on what it said."""
        while self.last_words:
            line = self.last_words.popleft()
            print(f"[{self.node}] {line}", end="", file=sys.stderr, flush=True)

    def signal(self, number: int) -> None:
        if self.is_running:
            assert self.process is not None
            self.process.send_signal(number)


class Brokers:
    """All children, from the first start to the last end."""

    def __init__(self, count: int, base_port: int, folder: str) -> None:
        ports = _ports(count, base_port)
        self.folder = folder
        self.all = [
            Broker(node, *ports[node - 1], str(Path(folder) / f"{FOLDER_PREFIX}{node}"))
            for node in range(1, count + 1)
        ]
        self.events: SimpleQueue[Event] = SimpleQueue()
        self._handlers: dict[int, Any] = {}
        self._listeners: list[threading.Thread] = []
        self._is_stopping = False

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.all)

    @property
    def cluster_id(self) -> str | None:
        """Known when they are ready."""
        return None if self.all[0].ready is None else self.all[0].ready["cluster_id"]

    def run(self, flags: Mapping[str, Any], on_ready: Callable[["Brokers"], None]) -> int:
        """Start all, call `on_ready`, go on until a signal comes or none is left; the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._on_signal)
        try:
            self._spawn(flags)
            if self._all_ready():
                on_ready(self)
                self._watch()
            return self._stop()
        finally:
            for broker in self.all:
                broker.signal(signal.SIGKILL)
            for listener in self._listeners:
                listener.join()
            for restored, handler in self._handlers.items():
                signal.signal(restored, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self.events.put(Event("signal", 0, number))

    def _spawn(self, flags: Mapping[str, Any]) -> None:
        peers = ",".join(f"{b.node}@{_HOST}:{b.peer_port}" for b in self.all)
        for broker in self.all:  # All of them first: a fork is no friend of threads.
            settings = {**flags, **broker.settings(peers)}
            broker.process = _start(settings)
        for broker in self.all:
            assert broker.process is not None
            relay = threading.Thread(target=self._relay, args=(broker,), daemon=True)
            listener = threading.Thread(target=self._listen, args=(broker, relay), daemon=True)
            self._listeners.append(listener)
            relay.start()
            listener.start()

    def _listen(self, broker: Broker, relay: threading.Thread) -> None:
        """In a thread: turn what a child prints, and its end, into events."""
        assert broker.process is not None
        assert broker.process.stdout is not None
        with broker.process.stdout as lines:
            for line in lines:
                with suppress(ValueError):
                    facts = json.loads(line)
                    if facts.get("event") == "ready":
                        self.events.put(Event("ready", broker.node, facts))
        code = broker.process.wait()
        relay.join()  # Its last words come before the report of its end.
        self.events.put(Event("ended", broker.node, code))

    def _relay(self, broker: Broker) -> None:
        """In a thread: what a child complains about, with its number before each line. That the
        others go is no news while all are being stopped: it is kept for the case that one fails."""
        assert broker.process is not None
        assert broker.process.stderr is not None
        with broker.process.stderr as lines:
            for line in lines:
                broker.last_words.append(line)
                if not self._is_stopping:
                    broker.tell_last_words()

    def _all_ready(self) -> bool:
        """Wait for all; False if somebody asked us to stop. Raises CommandError if one can't."""
        deadline = time.monotonic() + START_PATIENCE_S
        while any(broker.ready is None for broker in self.all):
            try:
                event = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                waiting = [str(b.node) for b in self.all if b.ready is None]
                raise CommandError(
                    f"Not ready within {START_PATIENCE_S:.0f} s: broker {', '.join(waiting)}"
                ) from None
            if event.kind == "signal":
                return False
            if event.kind == "ended":
                raise CommandError(
                    f"Broker {event.node} {_ending(event.value)} before it was ready",
                    hint="What it said is above; lines begin with the broker's number.",
                )
            self.all[event.node - 1].ready = event.value
        clusters = {broker.ready["cluster_id"] for broker in self.all if broker.ready is not None}
        if len(clusters) > 1:  # Folders of an older day, for one.
            raise CommandError(
                f"The brokers belong to {len(clusters)} different clusters: {', '.join(clusters)}",
                hint="Give --data a folder that is empty, or that one cluster has left.",
            )
        return True

    def _watch(self) -> None:
        """Report who ends, until a signal comes or none is left."""
        while any(broker.is_running for broker in self.all):
            event = self.events.get()
            if event.kind == "signal":
                return
            if event.kind == "ended":
                self.report_end(event.node, event.value)

    def report_end(self, node: int, code: int) -> None:
        """Tell that a broker is gone."""
        left = [str(broker.node) for broker in self.all if broker.is_running]
        rest = f"; {', '.join(left)} go on" if left else "; it was the last one"
        print(f"warning: broker {node} {_ending(code)}{rest}", file=sys.stderr, flush=True)

    def _stop(self) -> int:
        """End all that still run; another signal a second later makes it short. The exit code of the
        whole."""
        running = [broker for broker in self.all if broker.is_running]
        if not running:
            return Exit.FAILURE
        self._is_stopping = True
        for broker in running:
            broker.signal(signal.SIGTERM)
        began = time.monotonic()
        deadline = began + STOP_PATIENCE_S
        while any(broker.is_running for broker in running):
            try:
                event = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                break
            if event.kind == "signal" and time.monotonic() - began > IMPATIENT_AFTER_S:
                break
        for broker in running:
            broker.signal(signal.SIGKILL)
        codes = [broker.process.wait() for broker in running if broker.process is not None]
        for broker, code in zip(running, codes, strict=True):
            if code:
                broker.tell_last_words()
                print(f"warning: broker {broker.node} {_ending(code)}", file=sys.stderr)
        return Exit.FAILURE if any(codes) else Exit.OK


def _ports(count: int, base: int) -> list[tuple[int, int]]:
    """Kafka and peer port of each broker; with base 0 whatever is free. Raises CommandError."""
    if base:
        step = PORT_STEP
        highest = PORT_MAX - step * (count - 1) - 1
        if base > highest:
            raise usage(
                f"Port {base} leaves no room for {count} brokers, whose ports are {step} apart",
                f"Choose --port {highest} or a lower one.",
            )
        return [(base + step * n, base + step * n + 1) for n in range(count)]
    with ExitStack() as held:  # All at once: none is given out twice.
        found: list[int] = []
        for _ in range(2 * count):
            probe = held.enter_context(socket.socket())
            probe.bind((_HOST, 0))
            found.append(probe.getsockname()[1])
    return list(zip(found[::2], found[1::2], strict=True))


def _start(settings: Mapping[str, Any]) -> "subprocess.Popen[str]":
    words = [f"--set={name}={value}" for name, value in settings.items() if value is not None]
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "dmq", "serve", "--json", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us; we end them in order.
        preexec_fn=_die_with_parent(),  # noqa: PLW1509  No threads yet.
    )


def _die_with_parent() -> Callable[[], None] | None:
    """What makes the kernel end a child when we are gone, even by kill -9; Linux only."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return ask


def _ending(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return "stopped" if code == 0 else f"ended with exit code {code}"
