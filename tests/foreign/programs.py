"""Foreign Kafka clients as small programs (Node, Go, Java): building them, and talking to them.

A program gets the broker's address as its argument, then one JSON command per line on stdin, and
answers each with one JSON line on stdout, `{"error": {"code", "message"}}` when it failed:

    produce  topic, partition (null: the client chooses), compression, acks, idempotent, records
             -> offsets and partitions, one per record (kafkajs: base_offsets)
    consume  topic, partition, offset, count, max_bytes -> records
    offsets  topic, partition, timestamp_ms (or null) -> beginning, end, for_time
    topics   -> topics, the names of all
    join     (Java, Go) id, topic, group, how, instance: a member of a group under that id
    poll     id -> records, assigned;  commit: what was polled;  leave
    txn_start  id, name: a transactional producer; then txn_begin, txn_send (topic, values),
             txn_commit, txn_abort, txn_close
    chain    topic, target, group, name, how, count: consume, transform, produce in transactions, each
             batch aborted once before it is committed -> moved, aborted
    tail     (Java) topic, partitions, rounds -> rounds, the records seen as the assignment changes

Bytes travel in base64, null stays null. Versions are pinned beside the sources. What is built goes
to `.cache/foreign` under a name made from the sources, so it is built once per machine. Called by
the compat tests; `python tests/foreign/programs.py` builds all of them beforehand.
"""

import fcntl
import hashlib
import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent
CACHE = SOURCES.parents[1] / ".cache" / "foreign"
BUILD_TIMEOUT_S = 900
# A client JVM lives for seconds: the quick compiler and a small heap suit it best.
JAVA = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class BuildError(Exception):
    """A program could not be built; the message ends with the tool's own words."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one program is built and started."""

    tools: tuple[str, ...]
    build: Callable[[Path, Path], None]
    start: Callable[[Path], tuple[str, ...]]


def _run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stdout[-4000:]}")


def _build_kafkajs(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)
    _run("npm", "ci", "--no-audit", "--no-fund", cwd=target)


def _build_franz(source: Path, target: Path) -> None:
    _run("go", "build", "-buildvcs=false", "-o", str(target / "program"), ".", cwd=source)


def _copy_jars(source: Path, target: Path) -> None:
    # Maven writes beside the pom: a copy keeps the sources clean.
    shutil.copy(source / "pom.xml", target)
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    _run("mvn", "-q", "-B", "-f", str(target / "pom.xml"), goal, f"-DoutputDirectory={target}/libs")


def _build_java(source: Path, target: Path) -> None:
    _copy_jars(source, target)
    sources = [str(path) for path in sorted((source / "src").rglob("*.java"))]
    _run("javac", "-d", str(target / "classes"), "-cp", f"{target}/libs/*", *sources)


RECIPES = {
    "kafkajs": Recipe(
        ("node", "npm"), _build_kafkajs, lambda home: ("node", str(home / "program.js"))
    ),
    "franz": Recipe(("go",), _build_franz, lambda home: (str(home / "program"),)),
    "java": Recipe(
        ("java", "javac", "mvn"),
        _build_java,
        lambda home: (*JAVA, "-cp", f"{home}/classes:{home}/libs/*", "dmq.foreign.Program"),
    ),
    "dumplog": Recipe(
        ("java", "mvn"),
        _copy_jars,
        lambda home: (*JAVA, "-cp", f"{home}/libs/*", "org.apache.kafka.tools.DumpLogSegments"),
    ),
}


def missing_tools(name: str) -> list[str]:
    """The commands that `name` needs and this machine does not have."""
    return [tool for tool in RECIPES[name].tools if shutil.which(tool) is None]


def _fingerprint(source: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(source)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def command(name: str, say: Callable[[str], None]) -> tuple[str, ...]:
    """The command line that starts `name`, after building it if it was not built before.

    Raises:
        BuildError: the build failed.
    """
    source = SOURCES / name
    home = CACHE / f"{name}-{_fingerprint(source)}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Tests in another process may want the same one.
        if not home.exists():
            say(f"building {name} into {home.relative_to(CACHE.parents[1])} ...")
            _build(name, source, home)
            say(f"building {name}: done")
    return RECIPES[name].start(home)


def _build(name: str, source: Path, home: Path) -> None:
    """Whole or not at all."""
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        target = Path(scratch) / "home"
        target.mkdir()
        RECIPES[name].build(source, target)
        target.rename(home)


class ProgramError(Exception):
    """The program answered with an error; `code` is the wire's, or -1."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


class Program:
    """One running program; calls are answered one at a time, each within a deadline."""

    def __init__(self, command_line: tuple[str, ...], bootstrap: str) -> None:
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            (*command_line, bootstrap),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="program-reader", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def call(self, op: str, timeout_s: float = 30.0, **arguments: Any) -> dict[str, Any]:
        """Raises `ProgramError` when the program says that the operation failed."""
        assert self._process.stdin is not None
        order = {"op": op, "timeout_ms": int(timeout_s * 1000), **arguments}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._lines.get(timeout=timeout_s + 10)
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"the program ended: {self._errors.read()[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ProgramError(answer["error"]["code"], answer["error"]["message"])
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._errors.close()


def main() -> None:
    """Builds every program whose tools are here."""
    for name in RECIPES:
        if missing := missing_tools(name):
            print(f"{name}: not built, needs {', '.join(missing)}", flush=True)
            continue
        try:
            command(name, lambda line: print(line, flush=True))
            print(f"{name}: ready", flush=True)
        except BuildError as error:  # The tests that need it will fail with the same.
            print(f"{name}: not built: {error}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
