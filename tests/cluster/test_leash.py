"""Brokers of a test end with the process that started them, however it ends."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
from compat.eventually import eventually

OWNER = """
import subprocess, sys, time
from dmq.testing.leash import Leash
leash = Leash()
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdout=-3)
released = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdout=-3)
leash.hold(child.pid)
leash.hold(released.pid)
leash.release(released.pid)
leash.run_at_end(["touch", sys.argv[1]])
print(child.pid, released.pid, flush=True)
sys.stdin.read()
"""


def test_what_is_held_ends_with_a_killed_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, f"{tmp_path}/ran"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    child, released = (int(word) for word in owner.stdout.readline().split())
    stopped = psutil.Process(child)
    stopped.send_signal(signal.SIGSTOP)
    owner.kill()
    owner.communicate()
    try:
        eventually(lambda: not stopped.is_running() or stopped.status() == "zombie", "it is dead")
        eventually(lambda: (tmp_path / "ran").exists(), "the command ran")
        assert psutil.pid_exists(released)
    finally:
        psutil.Process(released).kill()
