"""The compactor's process, for real: jobs, failures, and how it ends."""

import os
import queue
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from compat.eventually import eventually

from dmq.broker.compactor import NICENESS, CompactorProcess
from dmq.records import Record, build_batch, iterate, scan
from dmq.storage.compaction_job import Job, Outcome, Result, Source
from dmq.storage.files import OsFiles
from dmq.storage.items import Damage

NOW = 1_700_000_000_000


class Threads:
    """Runs work in threads; `done` is called by whoever asks for the next answer."""

    def __init__(self) -> None:
        self._done: queue.Queue[Callable[[], None]] = queue.Queue()
        self._threads: list[threading.Thread] = []

    def submit(
        self, work: Callable[[], object], done: Callable[[BaseException | None], None]
    ) -> None:
        def run() -> None:
            work()
            self._done.put(lambda: done(None))

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def next(self) -> None:
        self._done.get(timeout=60)()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=60)
            assert not thread.is_alive()


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads()
    yield made
    made.join()


@pytest.fixture
def compactor(tmp_path: Path, threads: Threads) -> Iterator[CompactorProcess]:
    made = CompactorProcess(str(tmp_path), threads.submit)
    yield made
    made.kill()


def job_on(folder: Path, *, batches: int = 3, rate: float = 1e12) -> Job:
    """A log of one segment with one key."""
    files = OsFiles(str(folder))
    for name in ("logs", "logs/1"):
        files.make_dir(name)
    raw = b"".join(
        bytes(build_batch([Record(n, NOW, b"k", random.Random(n).randbytes(1000))]))
        for n in range(batches)
    )
    file = files.open(f"logs/1/{0:020d}.log", create=True)
    file.cut(0)
    file.write_at(0, [raw])
    source = Source(0, len(raw), NOW)
    return Job(1, "logs/1", (source,), batches, 0, 0, NOW, 0, 0, 1, 4096, 100, rate, ())


def run(compactor: CompactorProcess, threads: Threads, job: Job) -> Outcome:
    answers: list[Outcome] = []
    compactor.start(job, answers.append)
    threads.next()
    (answer,) = answers
    return answer


def children() -> list[psutil.Process]:
    return [c for c in psutil.Process().children() if c.status() != psutil.STATUS_ZOMBIE]


def test_it_does_jobs_one_after_the_other_in_one_process(
    tmp_path: Path, compactor: CompactorProcess, threads: Threads
) -> None:
    before = children()
    for _ in range(2):
        job = job_on(tmp_path)
        result = run(compactor, threads, job)
        assert isinstance(result, Result)
        assert (result.records_read, result.records_kept) == (3, 1)
        raw = (tmp_path / job.swap_name(0)).read_bytes()
        found = [r.offset for at, header in scan(raw) for r in iterate(raw, at, header)]
        assert found == [2]
    (child,) = [c for c in children() if c not in before]
    assert child.nice() == os.nice(0) + NICENESS


def test_a_failure_is_an_answer_and_the_next_job_works(
    tmp_path: Path,
    compactor: CompactorProcess,
    threads: Threads,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = job_on(tmp_path)
    path = tmp_path / f"logs/1/{0:020d}.log"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    second = [at for at, _ in scan(good)][-1]
    assert run(compactor, threads, job) == Damage(0, second, len(good))
    assert f"no batch at {second}" in caplog.text
    path.unlink()
    assert run(compactor, threads, job) is None
    path.write_bytes(good)
    assert run(compactor, threads, job) is not None


def test_a_child_that_dies_is_replaced(
    tmp_path: Path, compactor: CompactorProcess, threads: Threads
) -> None:
    before = children()
    job = job_on(tmp_path)
    assert run(compactor, threads, job) is not None
    (child,) = [c for c in children() if c not in before]
    child.kill()
    child.wait(30)
    assert run(compactor, threads, job) is None
    assert run(compactor, threads, job) is not None


def test_resting_it_ends(tmp_path: Path, compactor: CompactorProcess, threads: Threads) -> None:
    before = children()
    assert run(compactor, threads, job_on(tmp_path)) is not None
    compactor.rest()
    threads.next()
    assert [c for c in children() if c not in before] == []
    compactor.rest()


def is_at_work(child: psutil.Process) -> bool:
    return any(file.path.endswith(".log") for file in child.open_files())


def test_killed_it_ends_in_the_middle_of_a_job(
    tmp_path: Path, compactor: CompactorProcess, threads: Threads
) -> None:
    before = children()
    answers: list[Result | None] = []
    compactor.start(job_on(tmp_path, rate=0.01), answers.append)  # It takes days.
    (child,) = eventually(lambda: [c for c in children() if c not in before], "it is there")
    eventually(lambda: is_at_work(child), "it has begun")
    compactor.kill()
    threads.next()
    assert answers == [None]
    assert [c for c in children() if c not in before] == []


BROKER = """
import sys
from dmq.broker.compactor import CompactorProcess
from dmq.storage.compaction_job import Job
compactor = CompactorProcess(sys.argv[1], lambda work, done: work())
compactor.start(Job.from_json(sys.argv[2]), print)
"""


def test_it_ends_by_itself_when_the_broker_was_killed(tmp_path: Path) -> None:
    job = job_on(tmp_path, rate=0.01)
    broker = subprocess.Popen([sys.executable, "-c", BROKER, str(tmp_path), job.to_json()])
    try:
        handle = psutil.Process(broker.pid)
        (child,) = eventually(handle.children, "it is there")
        eventually(lambda: is_at_work(child), "it has begun")
    finally:
        broker.kill()
        broker.wait()
    eventually(lambda: is_gone(child), "it is gone")


def is_gone(process: psutil.Process) -> bool:
    """Nobody may have taken note of its end yet: it has no parent of its own any more."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
