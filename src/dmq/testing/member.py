"""One broker of a test cluster: its `dmq serve` process in all its lives, its folder and its log.

Owns the command line, the wait for the ready line, signals and exit codes. Knows nothing of the
other brokers. Called by `cluster`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dmq.testing.defaults import START_PATIENCE_S, BrokerFailedError
from dmq.testing.networks import Place

_LOOK_EACH_S = 0.005
_LAST_WORDS_BYTES = 4000


class Member:
    """A broker process that can be started, stopped, killed, paused and started again."""

    def __init__(self, place: Place, folder: Path, settings: Mapping[str, Any]) -> None:
        self.place = place
        self.node = 0
        """Its node id; 0 until it is known."""
        self.data_dir = folder / f"broker-{place.slot}"
        self.log_file = folder / f"broker-{place.slot}.log"
        self._ready_file = folder / f"broker-{place.slot}.ready"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.is_paused = False

    @property
    def pid(self) -> int:
        assert self._process is not None, "this broker was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Also while paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    @property
    def address(self) -> tuple[str, int]:
        return self.place.host, self.place.kafka_port

    @property
    def bootstrap(self) -> str:
        return f"{self.place.host}:{self.place.kafka_port}"

    # --- lives

    def spawn(self, way_in: Mapping[str, Any], options: Sequence[str] = ()) -> int:
        """Start the process and return its id without waiting for the broker. `way_in` are the
        settings by which it finds the others, `options` more words for `dmq serve`."""
        assert not self.is_running, f"broker {self.node} is running already"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DMQ_")}
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log, self._ready_file.open("wb") as ready:
            self._process = subprocess.Popen(  # noqa: S603
                [*self.place.prefix, *self._command(way_in), *options],
                stdin=subprocess.DEVNULL,
                stdout=ready,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C stops the tests, and they stop the brokers.
            )
        self.is_paused = False
        return self._process.pid

    def _command(self, way_in: Mapping[str, Any]) -> list[str]:
        settings = {**self._all_settings(), **way_in}
        words = [f"--set={name}={_text(value)}" for name, value in settings.items()]
        return [sys.executable, "-m", "dmq", "serve", "--json", *words]

    def _all_settings(self) -> dict[str, Any]:
        place = self.place
        host, port = place.peer_advertised
        return {
            **self._settings,
            "host": place.host,
            "port": place.kafka_port,
            "peer.listener": f"{place.host}:{place.peer_port}",
            "peer.advertised": f"{host}:{port}",
            "log.dirs": self.data_dir,
        }

    def wait_for_ready_line(self, patience_s: float = START_PATIENCE_S) -> None:
        """Until it takes requests. Raises BrokerFailedError."""
        deadline = time.monotonic() + patience_s
        while (facts := self._ready_facts()) is None:
            if not self.is_running:
                raise self.failure(f"ended with {self.exit_code} before it was ready")
            if time.monotonic() > deadline:
                raise self.failure(f"was not ready within {patience_s:.0f} s")
            time.sleep(_LOOK_EACH_S)
        self.node = int(facts["node_id"])

    def _ready_facts(self) -> dict[str, Any] | None:
        for line in self._ready_file.read_text().splitlines(keepends=True):
            if line.endswith("\n") and line.startswith("{"):
                facts: dict[str, Any] = json.loads(line)
                if facts.get("event") == "ready":
                    return facts
        return None

    def terminate(self) -> None:
        self.resume()
        self._signal(signal.SIGTERM)

    def wait_for_end(self, patience_s: float) -> None:
        """After `terminate`. Raises BrokerFailedError if it does not end, or ends badly."""
        assert self._process is not None
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            error = self.failure(f"did not stop within {patience_s:.0f} s")
            self.kill()
            raise error from None
        # A process that is told to stop before it has come to listen for that ends on the spot.
        was_early = code == -signal.SIGTERM and self._ready_facts() is None
        if code != 0 and not was_early:
            raise self.failure(f"ended with {code} when it was told to stop")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.is_paused = False

    def pause(self) -> None:
        """SIGSTOP; returns when every thread of it stands still. Nothing, if it does not run."""
        if not self.is_running:
            return
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.is_paused = True

    def resume(self) -> None:
        if self.is_paused and self.is_running:
            self._signal(signal.SIGCONT)
        self.is_paused = False

    def wipe(self) -> None:
        """Empty its disk; it must not run. What is mounted there stays mounted."""
        assert not self.is_running, f"broker {self.node} runs: stop or kill it first"
        for path in self.data_dir.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    # --- words

    def log(self) -> str:
        """All that it has printed so far, in all its lives."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def failure(self, what: str) -> BrokerFailedError:
        name = self.node or self.place.slot
        words = self.log()[-_LAST_WORDS_BYTES:].strip()
        return BrokerFailedError(f"broker {name} {what}; its last words:\n{words}")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
