"""Who is inside a client: calls that are under way, and a close that waits until they have left.

librdkafka must not be closed while another thread is in one of its calls: both could wait for ever.
Any thread may come in until one closes; from then on only that one may, for what it does on its way
out (callbacks that commit).
"""

import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Gate:
    """Open until somebody closes it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: Counter[int] = Counter()
        self._closer: int | None = None

    def lets_in(self) -> bool:
        """Whether this thread may call."""
        return self._closer is None or self._closer == threading.get_ident()

    def call(self, refuse: Callable[[], Exception], function: Callable[[], T]) -> T:
        """Call it inside. Raises what `refuse` makes, when somebody has closed."""
        me = threading.get_ident()
        with self._changed:
            if not self.lets_in():
                raise refuse()
            self._inside[me] += 1
        try:
            return function()
        finally:
            with self._changed:
                self._inside[me] -= 1
                if not self._inside[me]:
                    del self._inside[me]
                    self._changed.notify_all()

    def close(self) -> bool:
        """Let nobody else in, and wait until all others have left; False: somebody has closed it."""
        me = threading.get_ident()
        with self._changed:
            if self._closer is not None:
                return False
            self._closer = me
            self._changed.wait_for(lambda: not self._inside.keys() - {me})
            return True
