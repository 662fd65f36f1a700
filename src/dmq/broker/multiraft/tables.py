"""Who leads what, between us and each peer: kept as lists, summed up as digests.

For every group that we lead, each other replica of it is a peer that should follow us; for every group
that we follow, its leader is a peer that should lead us. Two brokers agree if the digest of what the one
leads is the digest of what the other follows. Digests change with the groups, not with the heartbeats:
an idle broker computes nothing. Called by node.py.
"""

from typing import TYPE_CHECKING

from dmq.broker.multiraft.frames import NO_GROUPS, Claim, Digest, GroupKey, Table
from dmq.types import Voter

if TYPE_CHECKING:
    from dmq.broker.multiraft.replica import Replica

_MASK = (1 << 64) - 1

Stance = tuple[int, tuple[Voter, ...], bool]
"""Epoch, the peers concerned, and whether we lead them (else: the one peer that we follow)."""


def mix(value: int) -> int:
    """A number that looks like dice, the same on every broker (the finisher of SplitMix64)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def key_hash(key: GroupKey) -> int:
    number = key.topic_id.int
    return mix((number & _MASK) ^ mix(number >> 64) ^ mix(key.partition))


class _Side:
    """Groups that one peer should follow us in, or that we follow it in."""

    __slots__ = ("digest", "groups")

    def __init__(self) -> None:
        self.groups: dict[Replica, int] = {}
        self.digest = NO_GROUPS

    def add(self, replica: "Replica", epoch: int, sign: int) -> None:
        if sign > 0:
            self.groups[replica] = epoch
        else:
            del self.groups[replica]
        count, total = self.digest
        one = mix(replica.key_hash ^ mix(epoch))
        self.digest = Digest(count + sign, (total + sign * one) & _MASK)

    def claims(self) -> tuple[Claim, ...]:
        return tuple(Claim(replica.key, epoch) for replica, epoch in self.groups.items())


class Tables:
    """See the module."""

    def __init__(self) -> None:
        self._leads: dict[Voter, _Side] = {}
        self._follows: dict[Voter, _Side] = {}

    def update(self, replica: "Replica", stance: Stance | None) -> None:
        """A group's role, leader, epoch or replicas changed."""
        if replica.stance is not None:
            self._add(replica, replica.stance, -1)
        replica.stance = stance
        if stance is not None:
            self._add(replica, stance, 1)

    def _add(self, replica: "Replica", stance: Stance, sign: int) -> None:
        epoch, peers, is_leader = stance
        sides = self._leads if is_leader else self._follows
        for peer in peers:
            side = sides.get(peer)
            if side is None:
                side = sides[peer] = _Side()
            side.add(replica, epoch, sign)

    def leads(self, peer: Voter) -> Digest:
        side = self._leads.get(peer)
        return side.digest if side is not None else NO_GROUPS

    def follows(self, peer: Voter) -> Digest:
        side = self._follows.get(peer)
        return side.digest if side is not None else NO_GROUPS

    def led(self, peer: Voter) -> "list[Replica]":
        """Groups in which we lead this peer."""
        side = self._leads.get(peer)
        return list(side.groups) if side is not None else []

    def followed(self, peer: Voter) -> "list[Replica]":
        """Groups in which we follow this peer."""
        side = self._follows.get(peer)
        return list(side.groups) if side is not None else []

    def table(self, peer: Voter, now: int, *, wants_reply: bool) -> Table:
        leads, follows = self._leads.get(peer), self._follows.get(peer)
        return Table(
            now,
            leads.claims() if leads is not None else (),
            follows.claims() if follows is not None else (),
            wants_reply,
        )
