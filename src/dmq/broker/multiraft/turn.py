"""What a turn of all groups carries, and how much of it at once. Owned by node.py."""

from dataclasses import dataclass, field

from dmq.broker.multiraft.bad_range import RepairSettings
from dmq.broker.multiraft.frames import Outgoing
from dmq.broker.multiraft.links import LinkSettings
from dmq.broker.multiraft.replica import Replica
from dmq.broker.multiraft.sending import SendSettings
from dmq.storage.turn import Turn


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How much a turn does at once, and the times of links."""

    links: LinkSettings = field(default_factory=LinkSettings)
    sending: SendSettings = field(default_factory=SendSettings)
    repair: RepairSettings = field(default_factory=RepairSettings)
    elections_max: int = 200
    """Groups whose timers are served in one turn. Too low: slow failover of many groups; too
    high: turns take longer than a heartbeat."""
    changes_max: int = 500
    """Groups that are told of a changed peer in one turn."""
    sweep_ms: int = 100
    """How late a produce request may learn that its time is over."""
    read_patience_ms: int = 5000
    """A read that must be the newest waits for so long that a majority answers its leader. A leader
    that nobody answers resigns before; too low: reads fail where followers are slow to follow."""
    exchange_ms: int = 2000
    """Tables that did not bring two digests together are exchanged again after this."""
    slow_sync_ms: int = 1000
    """With a sync this old the broker hands its leaderships over and stands after others."""
    stuck_sync_ms: int = 10_000
    """With a sync this old the process must stop."""


class GroupTurn:
    """A turn under way."""

    __slots__ = ("frames_now", "replicas", "store_turn")

    def __init__(self, store_turn: Turn | None) -> None:
        self.store_turn = store_turn
        self.replicas: list[Replica] = []
        """Groups whose promises wait for the sync."""
        self.frames_now: list[Outgoing] = []

    @property
    def needs_sync(self) -> bool:
        return self.store_turn is not None and self.store_turn.needs_sync

    def sync(self) -> None:
        """Make it durable; blocks, for a worker thread. Raises FatalStorageError."""
        assert self.store_turn is not None
        self.store_turn.sync()
