"""Which disks may be spoiled without asking more of the cluster than it promises.

A majority of voters keeps its disk, in every configuration of every group that may be in force. A wiped
or rotten disk counts as spoiled until its name has left the group or its log is whole again; a power cut
counts in the same way for a group with `async` records. Crashes and power cuts of `sync` groups need no
permission: they may hit anybody, and everybody at once.
"""

from typing import TYPE_CHECKING

from sim.ledger import GroupFacts

from dmq.raft.quorum import majority
from dmq.types import Voter

if TYPE_CHECKING:
    from sim.broker import Broker
    from sim.world import World


class Atlas:
    """See the module."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.rot_read = 0

    def is_spoiled(self, facts: GroupFacts, voter: Voter) -> bool:
        """Whether what this voter promised may be gone."""
        if self._world.metadata.directories.get(voter.node) != voter.directory:
            return True
        broker = self._world.brokers[voter.node]
        return voter in facts.shaken or voter in facts.damaged or broker.will_be_renamed

    def may_spoil(self, broker: "Broker", *, async_only: bool = False) -> bool:
        """Whether every group that this broker is in can bear the loss of its disk."""
        for topic in self._world.metadata.live:
            if async_only and not topic.is_async:
                continue
            for voters in topic.facts.configurations():
                if broker.me in voters:
                    good = [
                        v for v in voters if v != broker.me and not self.is_spoiled(topic.facts, v)
                    ]
                    if len(good) < majority(len(voters)):
                        return False
        return True

    def has_all_names(self, broker: "Broker") -> bool:
        """Whether no voter of the groups that this broker is in has lost its name."""
        world = self._world
        groups = [
            voters for topic in world.metadata.live for voters in topic.facts.configurations()
        ]
        return not any(
            world.metadata.directories.get(voter.node) != voter.directory
            or world.brokers[voter.node].will_be_renamed
            for voters in groups
            if broker.me in voters
            for voter in voters
        )

    def has_quorum(self, facts: GroupFacts, inside: set[int]) -> bool:
        """Whether these brokers, well as they are, can elect and commit in every configuration."""
        for voters in facts.configurations():
            good = [v for v in voters if v.node in inside and not self.is_spoiled(facts, v)]
            if len(good) < majority(len(voters)):
                return False
        return True

    def can_recover(self, facts: GroupFacts) -> bool:
        """Whether all brokers together can: with too few well voters, only if no name is gone and no
        log was flipped. All must vote then, and the longest log wins; if it has bad bytes that nobody
        else has, it can't lead, and an operator must say what is to be given up."""
        directories = self._world.metadata.directories
        if self.has_quorum(facts, set(directories)):
            return True
        names = [v for voters in facts.configurations() for v in voters]
        return all(directories[v.node] == v.directory and v not in facts.damaged for v in names)

    def rot_was_read(self, broker: "Broker", facts: GroupFacts) -> None:
        """A client got bytes with a wrong CRC: fair only if a bit of this log was flipped."""
        if broker.me not in facts.damaged:
            raise AssertionError(f"{broker} served bytes with a wrong CRC")
        self.rot_read += 1
        self._world.reached["rot read by a client"] += 1
