"""Which groups must be looked at, and when: their timers, and what their peers did.

Bounded per turn: a dead peer makes thousands of groups stand, and they are served in slices, in their
order, while heartbeats and other groups go on. A group hears of its peers before anything else happens
to it. Holds no decision; node.py serves what this hands out.
"""

import heapq
from collections import deque
from itertools import count

from dmq.broker.multiraft.replica import Replica
from dmq.types import Voter


class Agenda:
    """See the module."""

    __slots__ = (
        "_changes_left",
        "_changes_max",
        "_deadlines",
        "_elections_left",
        "_elections_max",
        "_numbers",
        "_told",
        "_told_order",
    )

    def __init__(self, elections_max: int, changes_max: int) -> None:
        self._elections_max = self._elections_left = elections_max
        self._changes_max = self._changes_left = changes_max
        self._deadlines: list[tuple[int, int, Replica]] = []
        self._numbers = count()  # Equal deadlines are served in the order they were set.
        self._told: dict[Replica, dict[Voter, None]] = {}
        """Groups that must be told of changed peers."""
        self._told_order: deque[Replica] = deque()
        """The same in their order; some may have been told since."""

    def next_turn(self) -> None:
        """As much again may be handed out."""
        self._elections_left = self._elections_max
        self._changes_left = self._changes_max

    # ---- timers

    def set_timer(self, replica: Replica, deadline: int | None) -> None:
        if deadline is not None and deadline != replica.timer:
            heapq.heappush(self._deadlines, (deadline, next(self._numbers), replica))
        replica.timer = deadline

    def take_due(self, now: int) -> Replica | None:
        """A group whose time has come; its timer is off."""
        while self._elections_left and self._deadlines and self._deadlines[0][0] <= now:
            deadline, _, replica = heapq.heappop(self._deadlines)
            if replica.timer == deadline and not replica.is_retired:
                self._elections_left -= 1
                replica.timer = None
                return replica
        return None

    def deadline(self) -> int | None:
        """When the next one is due; None if none is, or no more may be handed out in this turn."""
        if not self._elections_left:
            return None
        while self._deadlines and self._deadlines[0][2].timer != self._deadlines[0][0]:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    # ---- peers

    def tell(self, replica: Replica, peer: Voter) -> None:
        """This group must hear of this peer."""
        peers = self._told.get(replica)
        if peers is None:
            peers = self._told[replica] = {}
            self._told_order.append(replica)
        peers[peer] = None

    def take_told(self) -> Replica | None:
        """A group that must hear of peers; what exactly says `peers_of`."""
        while self._told_order and self._changes_left:
            replica = self._told_order.popleft()
            if replica in self._told:
                self._changes_left -= 1
                return replica
        return None

    def peers_of(self, replica: Replica) -> list[Voter]:
        """The peers that this group has not been told of; it is told now."""
        peers = self._told.pop(replica, None)
        return list(peers) if peers is not None else []

    def forget(self, replica: Replica) -> None:
        self._told.pop(replica, None)
        replica.timer = None
