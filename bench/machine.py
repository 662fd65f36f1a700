"""What the machine is and what processes use of it: CPU seconds, RSS, PSS, versions.

Reads `/proc` and psutil; never changes anything but the page cache (`settle`, `touch_memory`).
Called by the suite and by the report.
"""

import datetime
import importlib.metadata
import os
import platform
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("dmq", "uvloop", "crc32c", "confluent-kafka", "cramjam", "lz4")


@dataclass(slots=True, frozen=True)
class Memory:
    """A process tree's memory in MB (10^6 bytes)."""

    rss_mb: float
    pss_mb: float
    anonymous_mb: float


def process_tree(pid: int) -> list[psutil.Process]:
    """The process and its children, as far as they still live."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds of the process tree so far."""
    total = 0.0
    for process in process_tree(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def memory(pid: int) -> Memory:
    """RSS, PSS and anonymous memory of the process tree."""
    sums = {"Rss": 0, "Pss": 0, "Anonymous": 0}
    for process in process_tree(pid):
        try:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for line in text.splitlines():
            name, _, rest = line.partition(":")
            if name in sums:
                sums[name] += int(rest.split()[0]) * 1024
    return Memory(sums["Rss"] / 1e6, sums["Pss"] / 1e6, sums["Anonymous"] / 1e6)


def settle() -> None:
    """Write back all dirty pages, so that one system's debts are not paid by the next."""
    os.sync()


def wait_until_quiet(pid: int, timeout_s: float = 10.0) -> None:
    """Wait until the process has (nearly) stopped working on what came before."""
    deadline = time.monotonic() + timeout_s
    before_s = cpu_seconds(pid)
    while time.monotonic() < deadline:
        time.sleep(0.25)
        now_s = cpu_seconds(pid)
        if now_s - before_s < 0.04:
            return
        before_s = now_s


def touch_memory(gigabytes: float) -> None:
    """Touch memory and let it go, so that whoever runs next finds pages that the machine has.

    On a virtual machine the first touch of a page is many times slower than later ones, and a
    host that is told of free memory takes it back within seconds. A machine whose memory is in
    use, as a broker's is after a day, knows nothing of that.
    """
    wanted = int(min(gigabytes * 2**30, psutil.virtual_memory().available * 0.6))
    step = 64 * 2**20
    blocks = []
    for _ in range(wanted // step):
        block = bytearray(step)
        block[::4096] = b"\1" * (step // 4096)
        blocks.append(block)


def command_output(*command: str) -> str:
    """The first line a command prints, or an empty string if there is no such command."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        return ""
    return (done.stdout or done.stderr).strip().partition("\n")[0]


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def facts(data_dir: Path) -> dict[str, Any]:
    """The machine and the versions, for the saved results."""
    disk = psutil.disk_usage(str(data_dir))
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": platform.release(),
        "file_system": command_output("stat", "-f", "-c", "%T", str(data_dir)),
        "disk_free_gb": round(disk.free / 1e9, 1),
        "load_average_at_start": os.getloadavg(),
        "python": platform.python_version(),
        "java": command_output("java", "-version"),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def memory_dict(pid: int) -> dict[str, float]:
    """`memory` as plain numbers for JSON."""
    return {name: round(value, 1) for name, value in asdict(memory(pid)).items()}
