"""Puts a broker and its doors together and runs them: `run_broker` for a process, `start_broker` for a
loop that is already there.

Owns the process's side of a broker: event loop, file limits, signals, logging. Called by the command
line and by `dmq.testing`.
"""

import asyncio
import contextlib
import cProfile
import ctypes
import gc
import logging
import os
import random
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvloop

from dmq.broker.membership import Entrance
from dmq.broker.renaming import NOTHING_ACCEPTED
from dmq.broker.renaming import Accepted as Accepted
from dmq.broker.runtime import Runtime
from dmq.config.broker import BrokerConfig
from dmq.config.listeners import Listener, host_port
from dmq.doors.fetch_sessions import FetchSessions
from dmq.doors.kafka import BoundSocket, KafkaDoor

log = logging.getLogger("dmq")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""glibc's names for two of its rules (malloc.h)."""
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

EXIT_FAILED = 70
"""The broker stopped itself because it could no longer keep its promises (sysexits' EX_SOFTWARE)."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A broker that takes requests."""

    node_id: int
    cluster_id: str
    data_dir: str
    endpoints: dict[str, tuple[str, int]]
    """By listener: host and port as clients are told."""
    seconds: float
    """From the call to the open door; `recovery` is what the store did in that time."""
    recovery: str

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(host_port(host, port) for host, port in self.endpoints.values())


async def start_broker(config: BrokerConfig, accepted: Accepted = NOTHING_ACCEPTED) -> Runtime:
    """A running broker on this loop; end it with `await runtime.stop()`."""
    runtime = Runtime(config, Ways(), accepted)
    try:
        await runtime.start()
    except BaseException:
        runtime.abandon()
        raise
    return runtime


def fail_on_bugs(runtime: Runtime) -> None:
    """Let every exception that nobody caught on this loop, which is the broker's own, end it."""
    asyncio.get_running_loop().set_exception_handler(partial(_on_bug, runtime))


def ready_of(runtime: Runtime, seconds: float) -> Ready:
    service = runtime.service
    return Ready(
        node_id=service.identity.node_id,
        cluster_id=service.cluster_id,
        data_dir=runtime.config.data_dir,
        endpoints=dict(service.endpoints),
        seconds=seconds,
        recovery=str(runtime.store.recovery),
    )


class Ways:
    """The doors of a broker, for its runtime, which lies below them."""

    def bind(self, config: BrokerConfig, listener: Listener) -> BoundSocket:
        """Raises OSError."""
        return BoundSocket(config, listener.host, listener.port)

    def kafka(self, runtime: Runtime, listener: Listener, bound: BoundSocket) -> KafkaDoor:
        slots = runtime.config.max_incremental_fetch_session_cache_slots
        sessions = FetchSessions(slots, random.SystemRandom())

        return KafkaDoor(runtime.service, listener.name, sessions, runtime.warm, bound)

    def entrance(self, config: BrokerConfig) -> Entrance | None:
        """The peer door; None if the settings want none."""
        if config.peer_address is None:
            return None
        from dmq.doors.peer.entrance import PeerEntrance  # Brokers that are alone don't need it.

        return PeerEntrance(config)


# --- a process -----------------------------------------------------------------------------------


def run_broker(
    config: BrokerConfig,
    on_ready: Callable[[Ready], None],
    accepted: Accepted = NOTHING_ACCEPTED,
) -> int:
    """Run a broker until SIGINT or SIGTERM; the process's exit code.

    `accepted`: losses that somebody knows of, and wants it to go on with.
    Raises what keeps it from starting: ConfigError, OSError, StorageError.
    """
    if not __debug__:
        raise SystemExit("dmq does not run under python -O: its assertions are part of it")
    raise_file_limit()
    _keep_memory()
    with _profile(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(config, on_ready, accepted))


async def _run(config: BrokerConfig, on_ready: Callable[[Ready], None], accepted: Accepted) -> int:
    began = time.monotonic()
    loop = asyncio.get_running_loop()
    wanted = asyncio.Event()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, wanted.set)
    runtime = await _started_unless(wanted, config, accepted)
    if runtime is None:
        return 0
    fail_on_bugs(runtime)
    _freeze()
    on_ready(ready_of(runtime, time.monotonic() - began))
    await _first_of(wanted, runtime.stopped)
    await runtime.stop()
    for number in _STOP_SIGNALS:  # Told again on its last steps, it would look as if it was killed.
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    return EXIT_FAILED if runtime.failure is not None else 0


async def _started_unless(
    wanted: asyncio.Event, config: BrokerConfig, accepted: Accepted
) -> Runtime | None:
    """The broker; None if it was told to stop before: a search for a cluster may never end."""
    starting = asyncio.ensure_future(start_broker(config, accepted))
    stopping = asyncio.ensure_future(wanted.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        log.info("told to stop before it was ready")
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return None
    return starting.result()


async def _first_of(*events: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _on_bug(runtime: Runtime, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception that nobody expected ends the broker: its state can't be trusted."""
    error = context.get("exception")
    runtime.fail(error if error is not None else RuntimeError(str(context.get("message"))))


def _freeze() -> None:
    """What lives as long as the broker is not worth scanning again and again (SPEC §9 c)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 1_000)


def _keep_memory() -> None:
    """Tell glibc to keep the memory of requests for the next ones.

    By its own rules it gives each megabyte back to the kernel and takes it anew, and a fresh page
    costs more than the copy into it: half of the system time of producing.
    """
    with contextlib.suppress(OSError, AttributeError):  # Another C library has other rules.
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # The most that it takes.
        libc.mallopt(_M_TRIM_THRESHOLD, 128 << 20)


def raise_file_limit() -> None:
    """Segments and connections each hold a descriptor: take what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # Some systems refuse the hard limit.
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def _profile() -> Any:
    """With DMQ_PROFILE=FILE the broker's thread is profiled into FILE (for cProfile's readers)."""
    path = os.environ.get("DMQ_PROFILE")
    if not path:
        yield
        return
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()
        profiler.dump_stats(path)
