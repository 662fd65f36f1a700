"""What the rules of groups work with: the log's state, and what only the leader knows.

The leader's part (classic groups as they live, timers) is soft: `resign` throws it away, and the
next leader begins with what the log says. Owned by the machine, passed to the rules.
"""

from collections.abc import Callable

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.classic_group import ClassicGroup
from dmq.machines.groups.outcome import Later
from dmq.machines.groups.patterns import Pattern
from dmq.machines.groups.state import GroupsState
from dmq.machines.groups.surroundings import Limits, Surroundings
from dmq.machines.groups.timers import Timers


class Context:
    """See the module."""

    __slots__ = (
        "_later",
        "expiring",
        "limits",
        "live",
        "new_id",
        "patterns",
        "state",
        "surroundings",
        "timers",
        "topics_seen",
    )

    def __init__(
        self, limits: Limits, surroundings: Surroundings, new_id: Callable[[], str]
    ) -> None:
        self.limits = limits
        self.surroundings = surroundings
        self.new_id = new_id
        """Ids of members: what makes them random is the caller's."""
        self.state = GroupsState()
        self.timers = Timers()
        self.live: dict[str, ClassicGroup] = {}
        """Classic groups with members, or with a rebalance on. Others are made from the log's state
        when somebody asks: there may be very many."""
        self.expiring: list[str] = []
        """Groups that the look for expired offsets has not come to."""
        self.topics_seen: dict[str, int] = {}
        """By consumer group: the version of the topics that its epoch counts in."""
        self.patterns: dict[str, Pattern] = {}
        """Compiled, by their text."""
        self._later = 0

    def later(self) -> Later:
        """A place for an answer that comes later."""
        self._later += 1
        return Later(self._later)

    def classic(self, group_id: str) -> ClassicGroup | None:
        """A classic group; None if there is none of that name. Offsets alone make one."""
        group = self.live.get(group_id)
        if group is not None:
            return group
        if group_id in self.state.consumer:
            return None
        value = self.state.classic.get(group_id)
        if value is None and not self.state.offsets.has_group(group_id):
            return None
        return ClassicGroup(group_id, value)

    def is_classic(self, group_id: str) -> bool:
        """Whether the log knows a classic group of that name."""
        return group_id in self.state.classic or self.state.offsets.has_group(group_id)

    def bring_to_life(self, group_id: str) -> ClassicGroup:
        """A classic group that can change, made if there is none of that name."""
        group = self.classic(group_id) or ClassicGroup(group_id)
        self.live[group_id] = group
        return group

    def check_new_group(self, group_id: str) -> None:
        """Raises POLICY_VIOLATION for a group that would be one too many."""
        most = self.limits.groups_max
        if not self.state.has_group(group_id) and self.state.is_full(most):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"This coordinator has {most} groups already. Delete groups that nobody uses, or raise "
                f"group.coordinator.max.groups.",
            )

    def check_member_bytes(self, size: int) -> None:
        """Raises POLICY_VIOLATION for a member that says too much of itself."""
        most = self.limits.member_bytes_max
        if size > most:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"A member may say {most} bytes of itself, this one says {size}. Subscribe to fewer "
                f"topics, by a pattern perhaps, or raise group.member.metadata.max.bytes.",
            )
