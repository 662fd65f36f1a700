"""All partitions of this broker, and the turn that serves them together.

A turn writes what every partition staged: segments and one journal record for all, then one sync.
When the sync has returned, high watermarks move and those who waited are answered. The node only says
what is to be done; the runtime (or a simulator) performs it:

    turn = node.begin_turn(now)     writes into the page cache; None: nothing to do, or one is under way
    turn.sync()                     in a worker; only if turn.needs_sync
    node.end_turn(turn, now)        promises are kept from here on

Never blocks, never reads a clock, never iterates a set.
"""

from collections.abc import Callable

from dmq.broker.backlog import Backlog
from dmq.broker.partition import Partition
from dmq.broker.timers import Timers
from dmq.errors import ErrorCode
from dmq.storage.store import Store
from dmq.storage.turn import Turn

APPEND_SWEEP_MS = 100
"""How late a produce request may learn that its time is over."""


class Node:
    """See the module."""

    def __init__(self, store: Store, backlog: Backlog) -> None:
        self.store = store
        self.backlog = backlog
        self.timers = Timers()
        self.wake: Callable[[], None] = lambda: None
        """Called when there is work for a turn; the runtime sets it."""
        self._partitions: dict[int, Partition] = {}  # By uid of the log.
        self._waiting: dict[Partition, None] = {}  # With appends under way.

    def adopt(self, partition: Partition) -> None:
        self._partitions[partition.log.uid] = partition

    def release(self, partition: Partition) -> None:
        self._partitions.pop(partition.log.uid, None)
        self._waiting.pop(partition, None)

    def touched(self, partition: Partition) -> None:
        """A partition staged something."""
        if partition not in self._waiting:
            self._waiting[partition] = None
        self.wake()

    # --- the turn ----------------------------------------------------------------------------

    def begin_turn(self, now: int) -> Turn | None:
        turn = self.store.begin_turn(now)
        if turn is not None:
            for refused in turn.refused:
                partition = self._partitions.get(refused.log.uid)
                if partition is not None:
                    partition.refuse(refused.end, ErrorCode.KAFKA_STORAGE_ERROR)
                    self._rest(partition)
        return turn

    def end_turn(self, turn: Turn, now: int) -> None:
        for log in self.store.end_turn(turn, now):
            partition = self._partitions.get(log.uid)
            if partition is not None:
                partition.advance()
                self._rest(partition)
        self.backlog.relieve()

    def _rest(self, partition: Partition) -> None:
        if not partition.has_waiting_appends:
            self._waiting.pop(partition, None)

    def sweep(self, now: int) -> None:
        """Tell producers whose patience ended; called every APPEND_SWEEP_MS while some wait."""
        for partition in list(self._waiting):
            partition.expire_appends(now)

    @property
    def has_waiting_appends(self) -> bool:
        return bool(self._waiting)
