"""Transactional ids of tasks: few, and each used by one process only, for one batch at a time.

Brokers remember an id for a week, so a fresh one per task would fill their memory; one id per partition
would let a task that everybody thinks dead end the transaction of its successor. So an id belongs to a
Python worker: it has a random name, and numbers its ids. A worker runs one task at a time; within a
batch each task takes the next number, and the next batch of the same run begins again at 0, when all
of the batch before has been committed. A task of an older batch than the worker has seen gets no id.
"""

import os
import uuid

from dmq.spark.failures import SparkSourceError


class Identities:
    """The ids of this process."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._name = uuid.uuid4().hex[:12]
        self._last: dict[str, tuple[int, int]] = {}
        """By the beginning of ids: the batch and how many it has taken."""

    def has_seen(self, beginning: str) -> bool:
        """Has this process written for that run already?"""
        return self._is_ours() and beginning in self._last

    def take(self, beginning: str, batch: int) -> str:
        """An id that no other task has. Raises SparkSourceError for a batch that is over."""
        if not self._is_ours():
            self.__init__()  # type: ignore[misc]  # A fork must not use its parent's ids.
        last, taken = self._last.get(beginning, (batch, 0))
        if batch < last:
            raise SparkSourceError(
                f"this task belongs to batch {batch}, but batch {last} has begun: it is not needed"
            )
        taken = taken if batch == last else 0
        self._last[beginning] = (batch, taken + 1)
        return f"{beginning}.{self._name}.{taken}"

    def _is_ours(self) -> bool:
        return self._process == os.getpid()


IDENTITIES = Identities()
"""Workers live as long as their executor wishes; so do their ids."""
