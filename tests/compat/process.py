"""One `dmq up` process for tests: started on a free port, watched until it answers, ended for sure.

Owns the child process and its log; knows nothing of the broker but its command line and the wire.
Called by the fixtures of the compat and hostile tests.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from compat.eventually import eventually
from compat.wire import EndOfConnectionError, api_ranges

from dmq.testing.networks import free_port

READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 90.0


class BrokerProcess:
    """A broker in a child process; its data and its log are files in `folder`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.data = folder / "data"
        self._log = folder / "broker.log"
        self._options = options
        self._port = free_port()
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when the broker answers ApiVersions; fails with its log if it does not."""
        line = [sys.executable, "-m", "dmq", "up", "--port", str(self._port)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DMQ_")}
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [*line, "--data", str(self.data), *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**environment, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
            )
        try:
            eventually(self._has_answered_or_ended, "the broker answers", READY_TIMEOUT_S)
            assert self.is_running, "the broker ended"
        except AssertionError as error:
            self.kill()
            raise AssertionError(f"{error}:\n{self.log()[-6000:]}") from None

    def _has_answered_or_ended(self) -> bool:
        return not self.is_running or self._answers()

    def _answers(self) -> bool:
        try:
            return bool(api_ranges(self.bootstrap))
        except (EndOfConnectionError, OSError):
            return False

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def log(self) -> str:
        """All that the broker has printed so far, in all its lives."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def memory_bytes(self) -> int:
        """Resident memory of the process."""
        assert self._child is not None
        memory: Any = psutil.Process(self._child.pid).memory_info()
        return int(memory.rss)

    def stop(self) -> None:
        """A clean stop; fails if the broker does not end by itself, or ends badly."""
        assert self._child is not None
        self._child.send_signal(signal.SIGTERM)
        try:
            code = self._child.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the broker did not stop:\n{self.log()[-6000:]}") from None
        assert code == 0, f"the broker ended with {code}:\n{self.log()[-6000:]}"

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
