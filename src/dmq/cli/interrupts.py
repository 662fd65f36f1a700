"""Ctrl-C and SIGTERM, both as KeyboardInterrupt, and never inside librdkafka.

Owns the two signal handlers of a command. A KeyboardInterrupt that is raised while librdkafka calls
back into Python (a delivery report, a log line) is lost in its C code and comes out as something
else. So calls that may call back are made `with held():`, which keeps an interrupt until they have
returned. Never used by a broker, which has handlers of its own.
"""

import signal
from types import FrameType, TracebackType


class _Held:
    """Keeps interrupts that come while the block runs, and raises one at its end."""

    __slots__ = ("_depth", "_is_pending")

    def __init__(self) -> None:
        self._depth = 0
        self._is_pending = False

    def interrupt(self, signal_number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self._depth == 0:
            raise KeyboardInterrupt
        self._is_pending = True

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0 and self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt


_held = _Held()


def held() -> _Held:
    """`with held():` around a call that is short and may call back."""
    return _held


def take_over() -> None:
    """Make Ctrl-C and SIGTERM end a command in the same way. Only in the main thread."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _held.interrupt)
