"""The process that compacts, seen from both ends: the broker's handle on it, and its own `main`.

Compaction is minutes of work on single bytes: in a thread it would hold the interpreter's lock. So
it runs in a child of lower priority, one job at a time: a line of JSON in, a line out (an error is
an answer too). The child only reads segments and makes `.swap` files; what becomes of them the
broker decides. It stays for the next job until told to `rest`, and ends by itself when the broker
is gone: its standard input closes. Called by the runtime; `broker/compaction.py` gives the jobs.
"""

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Protocol

from dmq.errors import StorageError
from dmq.storage.compaction_job import Job, Outcome, Result
from dmq.storage.compaction_run import compact
from dmq.storage.files import OsFiles
from dmq.storage.items import Damage
from dmq.storage.segment import BadBatchError

log = logging.getLogger("dmq.broker")

NICENESS = 10
"""Half of what there is: compaction takes what the broker leaves, but is not starved."""

Submit = Callable[[Callable[[], object], Callable[[BaseException | None], None]], None]
"""Runs the first in a thread, then the second in the loop, with what it raised."""


class Compactor(Protocol):
    """Who does the work; one job at a time."""

    def start(self, job: Job, done: Callable[[Outcome], None]) -> None:
        """`done` comes later, with None if it failed, with a place if bytes there are bad (both were
        logged)."""
        ...

    def rest(self) -> None:
        """There is nothing to do for a while."""
        ...


class CompactorProcess:
    """The broker's handle. All from the loop; `kill` at the end, before the threads are joined."""

    def __init__(self, root: str, submit: Submit) -> None:
        self._root = root
        self._submit = submit
        self._process: subprocess.Popen[str] | None = None
        self._resting: list[subprocess.Popen[str]] = []
        self._is_busy = False
        """A thread has the process, and will see to its end."""
        self._is_killed = False

    def start(self, job: Job, done: Callable[[Outcome], None]) -> None:
        answers: list[Outcome] = []
        self._is_busy = True

        def finish(error: BaseException | None) -> None:
            self._is_busy = False
            if error is not None:
                raise error
            done(answers[0])

        self._submit(lambda: answers.append(self._ask(job)), finish)

    def _ask(self, job: Job) -> Outcome:
        """Blocks until the child has answered or is dead."""
        try:
            process = self._process or self._spawn()
        except OSError as error:
            log.warning("the compactor can't be started: %s", error)
            return None
        answer = _exchange(process, job)
        if "result" in answer:
            return Result.from_json(answer["result"])
        if not answer:
            self._process = None
            answer = {"error": f"the compactor ended with {_end(process)}"}
        if not self._is_killed:
            log.warning("compaction of %s failed: %s", job.directory, answer["error"])
        return Damage(*json.loads(answer["bad"])) if "bad" in answer else None

    def _spawn(self) -> "subprocess.Popen[str]":
        process = self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "dmq.broker.compactor", self._root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._is_killed:  # Before there was a process to kill.
            process.kill()
        return process

    def rest(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._resting.append(process)
            self._submit(lambda: _end(process), lambda error: self._resting.remove(process))

    def kill(self) -> None:
        """Let go of the child, whatever it does; a job under way fails."""
        self._is_killed = True
        process = self._process
        for resting in self._resting:
            _end(resting)
        if process is not None:
            process.kill()
            if not self._is_busy:
                _end(process)


def _exchange(process: "subprocess.Popen[str]", job: Job) -> dict[str, str]:
    """The child's answer; empty if it is dead."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(job.to_json() + "\n")
        process.stdin.flush()
        reply = process.stdout.readline()
    except OSError:
        return {}
    answer: dict[str, str] = json.loads(reply) if reply.endswith("\n") else {}
    return answer


def _end(process: "subprocess.Popen[str]") -> int:
    """Close the pipes and wait: the child ends when its input does."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # What it did not read any more.
                pipe.close()
    return process.wait()


# --- in the child --------------------------------------------------------------------------------


class Pace:
    """Keeps to a rate, and ends the process when the broker is gone."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._began = time.monotonic()
        self._bytes = 0

    def __call__(self, byte_count: int) -> None:
        self._bytes += byte_count
        ahead_s = self._bytes / self._rate - (time.monotonic() - self._began)
        # Nobody writes to us during a job, so input that can be read is the end of it.
        if select.select([sys.stdin], [], [], max(ahead_s, 0.0))[0]:
            os._exit(1)


def main() -> None:
    """Answer jobs until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which then ends us.
    os.nice(NICENESS)
    files = OsFiles(sys.argv[1])
    while line := sys.stdin.readline():
        job = Job.from_json(line)
        try:
            answer = {"result": compact(files, job, Pace(job.bytes_per_second)).to_json()}
        except BadBatchError as error:
            answer = {"error": str(error), "bad": json.dumps(error.place)}
        except (StorageError, OSError) as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
