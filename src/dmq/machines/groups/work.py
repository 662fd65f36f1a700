"""One command or tick being worked off: the moment it happens, and what comes of it.

Made by the machine for each call, filled by the rules of groups, turned into an outcome by the
machine. Nothing here outlives the call.
"""

from typing import Any, TypeVar

from dmq.machines.groups.facts import Codec, Fact
from dmq.machines.groups.outcome import GroupOutcome, Later, Settled, TransactionalProducer

R = TypeVar("R")


class Work:
    """See the module. `now` is for deadlines, `wall_ms` for stamps in records."""

    __slots__ = ("facts", "now", "settled", "wall_ms")

    def __init__(self, now: int, wall_ms: int) -> None:
        self.now = now
        self.wall_ms = wall_ms
        self.facts: list[Fact] = []
        self.settled: list[Settled] = []

    def write(self, *facts: Fact) -> None:
        """Have facts recorded, in this order."""
        self.facts.extend(facts)

    def settle(self, later: Later, response: Any) -> None:
        """Give an answer that was waited for."""
        self.settled.append(Settled(later, response))

    def outcome(
        self, response: R, codec: Codec, producer: TransactionalProducer | None = None
    ) -> GroupOutcome[R]:
        """All of it, for the host."""
        records = [codec.encode(fact) for fact in self.facts]
        return GroupOutcome(response, records, tuple(self.settled), producer)
