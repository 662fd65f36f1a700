"""What `dmq doctor` checks on this machine: Python, wheels, limits, the disk, the port.

Each check is a function that returns a `Finding` and leaves no trace. Never talks to a cluster
except to see whether the port is taken by one.
"""

import asyncio
import os
import platform
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

from dmq.cli.doctor import Check, Finding
from dmq.cli.output import human_size
from dmq.cli.raw import api_versions
from dmq.cli.version import installed
from dmq.errors import ProtocolError

PYTHON_MIN = (3, 11)
WHEELS = {
    "crc32c": "crc32c",
    "cramjam": "cramjam",
    "lz4": "lz4.frame",
    "uvloop": "uvloop",
    "confluent-kafka": "confluent_kafka",
    "pyyaml": "yaml",
}
FILES_GOOD = 65_536
FILES_MIN = 1_024
"""A partition takes about three files, a connection one."""

SPACE_GOOD_BYTES = 10 << 30
SPACE_MIN_BYTES = 1 << 30
SYNC_COUNT = 50
SYNC_GOOD_MS = 5.0
SYNC_MAX_MS = 50.0
"""Every acknowledgement waits for one sync: above this, a database would complain too."""

_IN_MEMORY = {"tmpfs", "ramfs"}


def checks(data: str, port: int) -> list[Check]:
    """Every check of the machine, in the order of the report."""
    directory = Path(data).expanduser()
    return [
        python,
        wheels,
        checksum,
        event_loop,
        file_limit,
        partial(data_directory, directory),
        partial(free_space, directory),
        partial(sync_speed, directory),
        partial(port_free, port),
    ]


def python() -> Finding:
    """Version and mode of the interpreter."""
    version = platform.python_version()
    if sys.version_info < PYTHON_MIN:
        return Finding("python", "fail", version, "Install Python 3.11 or newer.")
    if not __debug__:
        advice = "Run without -O and PYTHONOPTIMIZE: assertions guard the data."
        return Finding("python", "fail", f"{version}, assertions are off", advice)
    return Finding("python", "ok", f"{version} ({platform.python_implementation()})")


def wheels() -> Finding:
    """The libraries with native code can be imported."""
    broken = []
    for name, module in WHEELS.items():
        try:
            import_module(module)
        except ImportError as error:
            broken.append(f"{name} ({error})")
    if broken:
        advice = f"Reinstall with `{sys.executable} -m pip install --force-reinstall dmq`."
        return Finding("wheels", "fail", f"can't import {', '.join(broken)}", advice)
    return Finding("wheels", "ok", ", ".join(f"{name} {installed(name)}" for name in WHEELS))


def checksum() -> Finding:
    """CRC-32C gives the right answer, with the processor's instruction."""
    import crc32c

    if crc32c.crc32c(b"123456789") != 0xE3069283:
        return Finding("checksum", "fail", "CRC-32C is wrong", "Reinstall the package crc32c.")
    if not getattr(crc32c, "hardware_based", True):
        advice = "Expect less throughput: this processor has no CRC-32C instruction."
        return Finding("checksum", "warn", "CRC-32C in software", advice)
    return Finding("checksum", "ok", "CRC-32C in hardware")


def event_loop() -> Finding:
    """uvloop makes a loop that runs."""
    try:
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    except (ImportError, OSError, RuntimeError) as error:
        advice = "Install uvloop; without it the broker runs on asyncio's slower loop."
        return Finding("event loop", "warn", f"uvloop does not work: {error}", advice)
    try:
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()
    return Finding("event loop", "ok", f"uvloop {installed('uvloop')}")


def file_limit() -> Finding:
    """How many files and connections this process may have open."""
    try:
        import resource
    except ImportError:
        return Finding("open files", "ok", "this system has no such limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    advice = f"Raise it: `ulimit -n {FILES_GOOD}`, or LimitNOFILE={FILES_GOOD} in the service."
    detail = f"at most {soft:,} (the system allows {'any' if hard < 0 else f'{hard:,}'})"
    if soft < 0 or soft >= FILES_GOOD:
        return Finding("open files", "ok", detail)
    return Finding("open files", "fail" if soft < FILES_MIN else "warn", detail, advice)


def data_directory(directory: Path) -> Finding:
    """A broker could write there, and the data would survive."""
    try:
        with tempfile.TemporaryFile(dir=_nearest(directory)) as file:
            file.write(b"dmq")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        advice = "Choose another with --data, or change its owner: `chown`."
        return Finding("data directory", "fail", f"{directory}: {error.strerror}", advice)
    kind = _file_system(_nearest(directory))
    where = f"{directory}" + ("" if directory.exists() else " (to be made)")
    if kind in _IN_MEMORY:
        advice = "Choose a directory on a disk: this one is lost when the machine stops."
        return Finding("data directory", "warn", f"{where} is in memory ({kind})", advice)
    return Finding(
        "data directory", "ok", f"{where} can be written" + (f" ({kind})" if kind else "")
    )


def free_space(directory: Path) -> Finding:
    """Room for records."""
    try:
        usage = shutil.disk_usage(_nearest(directory))
    except OSError as error:
        return Finding("free space", "fail", f"unknown: {error.strerror}", "Check the disk.")
    detail = f"{human_size(usage.free)} of {human_size(usage.total)}"
    if usage.free >= SPACE_GOOD_BYTES:
        return Finding("free space", "ok", detail)
    verdict = "fail" if usage.free < SPACE_MIN_BYTES else "warn"
    return Finding("free space", verdict, detail, "Free some, or choose another disk with --data.")


def sync_speed(directory: Path) -> Finding:
    """How long a small write takes to be on the disk: the floor of every acknowledgement."""
    try:
        times_ms = sorted(_sync_times_ms(_nearest(directory)))
    except OSError as error:
        return Finding("sync speed", "fail", f"unknown: {error.strerror}", "Check the disk.")
    median, slowest = statistics.median(times_ms), times_ms[-1]
    detail = f"4 KiB in {median:.2f} ms (slowest of {SYNC_COUNT}: {slowest:.1f} ms)"
    advice = "Use a faster disk, or `durability=async` where losing the last moments is fine."
    if median > SYNC_MAX_MS:
        return Finding("sync speed", "fail", detail, advice)
    return Finding(
        "sync speed", *(("ok", detail) if median <= SYNC_GOOD_MS else ("warn", detail, advice))
    )


def _sync_times_ms(directory: Path) -> Iterator[float]:
    block = bytes(4096)
    sync = getattr(os, "fdatasync", os.fsync)
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(SYNC_COUNT):
            started = time.perf_counter()
            file.write(block)
            file.flush()
            sync(file.fileno())
            yield (time.perf_counter() - started) * 1000


def port_free(port: int) -> Finding:
    """A broker could listen there, or one does."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            advice = "Choose a port from 1024 on with --port."
            return Finding("port", "fail", f"{port} needs privileges", advice)
        except OSError as error:
            return _port_taken(port, error)
    return Finding("port", "ok", f"{port} is free")


def _port_taken(port: int, error: OSError) -> Finding:
    try:
        apis = api_versions("127.0.0.1", port)
    except (OSError, ProtocolError):
        advice = "Choose another with --port, or stop what holds it."
        return Finding("port", "warn", f"{port} is taken: {(error.strerror or '').lower()}", advice)
    return Finding("port", "ok", f"{port} is taken by a broker that speaks {len(apis)} Kafka APIs")


def _nearest(directory: Path) -> Path:
    """The directory, or the nearest above that exists: where it would be made."""
    found = directory.absolute()
    while not found.is_dir() and found != found.parent:
        found = found.parent
    return found


def _file_system(directory: Path) -> str:
    """The kind of file system, from the longest mount point above; empty where unknown."""
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    path = str(directory.resolve())
    for line in mounts:
        _, point, this_kind, *_ = line.split(" ")
        above = path == point or path.startswith(point.rstrip("/") + "/")
        if above and len(point) >= len(best):
            best, kind = point, this_kind
    return kind
