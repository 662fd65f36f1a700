"""A small process that ends what its owner leaves behind: it outlives it by one read.

Run by path, with nothing imported of dmq. Lines on its standard input are JSON: {"hold": PID},
{"release": PID}, {"run": [COMMAND…]}. When the input ends, however the owner ended, held processes
are killed, also stopped ones, and then the commands are run. `close` is the orderly way: it sends
the releases first.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Any


class Leash:
    """The owner's end."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C in the owner's terminal is not meant for it.
        )

    def hold(self, pid: int) -> None:
        self._tell({"hold": pid})

    def release(self, pid: int) -> None:
        self._tell({"release": pid})

    def run_at_end(self, command: list[str]) -> None:
        """Also run after an orderly `close`."""
        self._tell({"run": command})

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()


def main() -> None:
    held: set[int] = set()
    commands: list[list[str]] = []
    for text in sys.stdin:
        line = json.loads(text)
        if "hold" in line:
            held.add(line["hold"])
        elif "release" in line:
            held.discard(line["release"])
        else:
            commands.append(line["run"])
    for pid in held:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for command in commands:
        subprocess.run(command, check=False, capture_output=True)  # noqa: S603


if __name__ == "__main__":
    main()
