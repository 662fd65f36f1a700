"""`Broker`: a broker of one's own for a test, in a thread or in a child process.

Owns a temporary data directory unless it is given one. Ports are chosen by the system. Never used by
the broker itself.
"""

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvloop

from dmq.broker.runtime import Runtime
from dmq.config.broker import BrokerConfig
from dmq.doors.serve import fail_on_bugs, ready_of, start_broker
from dmq.errors import ConfigError
from dmq.testing.defaults import DEFAULTS, START_PATIENCE_S, BrokerFailedError


class Broker:
    """A running broker between `start` and `stop`, or as a context manager.

    settings    by their names, e.g. {"num.partitions": 3, "durability": "sync"}
    data_dir    kept after the stop; without it a temporary one, removed
    in_process  a thread of this process (quick), or a child process (can be killed)
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        data_dir: str | Path | None = None,
        in_process: bool = True,
    ) -> None:
        self._settings = DEFAULTS | dict(settings or {})
        self._own_dir = data_dir is None
        self._given_dir = None if data_dir is None else Path(data_dir)
        self._in_process = in_process
        self._carrier: _Thread | _Child | None = None
        self.data_dir: Path | None = self._given_dir
        self.bootstrap_servers = ""
        """host:port for clients, once started."""

    @property
    def pid(self) -> int:
        """The child's process id. Only with `in_process=False`."""
        assert isinstance(self._carrier, _Child), "a broker in a thread has no process of its own"
        return self._carrier.process.pid

    def start(self) -> Self:
        """Start and wait until it takes requests. Raises BrokerFailedError."""
        assert self._carrier is None, "the broker is running already"
        if self._given_dir is None:
            self.data_dir = Path(tempfile.mkdtemp(prefix="dmq-"))
        settings = self._settings | {"log.dirs": str(self.data_dir)}
        try:
            config = BrokerConfig.of(settings)
            carrier = _Thread(config) if self._in_process else _Child(settings)
            self.bootstrap_servers = carrier.start()
        except ConfigError as error:
            self._remove_own_dir()
            problems = "; ".join(error.problems)
            raise BrokerFailedError(f"the settings do not hold: {problems}") from error
        except BaseException:
            self._remove_own_dir()
            raise
        self._carrier = carrier
        return self

    def _remove_own_dir(self) -> None:
        if self._own_dir and self.data_dir is not None:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def stop(self) -> None:
        """Stop in order, as Ctrl-C does. A broker that is not running stays so."""
        carrier, self._carrier = self._carrier, None
        try:
            if carrier is not None:
                carrier.stop()
        finally:
            self._remove_own_dir()

    def kill(self) -> None:
        """kill -9, to try what survives; then `start` again. Only with `in_process=False` and a
        `data_dir` of your own."""
        assert isinstance(self._carrier, _Child), "only a child process can be killed"
        carrier, self._carrier = self._carrier, None
        carrier.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)


class _Thread:
    """A broker on a loop of its own in a daemon thread."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted_end: asyncio.Event | None = None
        self._ready = threading.Event()
        self._servers = ""
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="dmq-broker", daemon=True)

    def start(self) -> str:
        self._thread.start()
        if not self._ready.wait(START_PATIENCE_S):
            raise BrokerFailedError(f"the broker was not ready within {START_PATIENCE_S} s")
        if self._failure is not None:
            raise BrokerFailedError(
                f"the broker could not start: {self._failure}"
            ) from self._failure
        return self._servers

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001  Told to the thread that waits for us.
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wanted_end = asyncio.Event()
        began = time.monotonic()
        runtime: Runtime = await start_broker(self._config)
        fail_on_bugs(runtime)
        self._servers = ready_of(runtime, time.monotonic() - began).bootstrap_servers
        self._ready.set()
        ends = [asyncio.ensure_future(e.wait()) for e in (self._wanted_end, runtime.stopped)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        await runtime.stop()
        self._failure = runtime.failure

    def stop(self) -> None:
        if self._thread.is_alive():
            assert self._loop is not None
            assert self._wanted_end is not None
            with contextlib.suppress(RuntimeError):  # The loop has just closed by itself.
                self._loop.call_soon_threadsafe(self._wanted_end.set)
        self._thread.join()
        if self._failure is not None:
            raise BrokerFailedError(
                f"the broker stopped by itself: {self._failure}"
            ) from self._failure


class _Child:
    """A broker in a process of its own; its first line of output says where it listens."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._words = tempfile.TemporaryFile("w+")  # noqa: SIM115  Closed when the child has ended.
        """What it says. Not a pipe: nobody reads while it runs, and a full pipe would stop it."""
        self.process: subprocess.Popen[str]

    def start(self) -> str:
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "dmq.testing.child", json.dumps(self._settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise BrokerFailedError(f"the broker could not start: {self._last_words()}")
        return str(json.loads(line)["bootstrap_servers"])

    def stop(self) -> None:
        self.process.terminate()
        words = self._last_words()
        if self.process.returncode != 0:
            raise BrokerFailedError(f"the broker ended with {self.process.returncode}: {words}")

    def kill(self) -> None:
        self.process.kill()
        self._last_words()

    def _last_words(self) -> str:
        """Wait for the end; returns what it said."""
        self.process.communicate()
        with self._words:
            self._words.seek(0)
            return self._words.read().strip()
