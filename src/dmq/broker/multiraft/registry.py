"""The groups of this broker: their replicas by every name, their logs, and what is left of former ones.

A log on disk belongs to a replica as soon as the metadata ask for it; the newest log of a group is the
replica's. A replica that is moved away leaves its memory here: epoch, vote and the fact that it was a
voter, and where its log ended, without a record. Others may still count on what it promised, and it may
be moved back under the same name: then it keeps its word, and votes for nobody who has less than it
had. A deleted topic takes memory and all. Called by node.py.
"""

from typing import NamedTuple

from dmq.broker.multiraft.driven import BLANK, GroupSettings, parked
from dmq.broker.multiraft.frames import GroupKey
from dmq.broker.multiraft.replica import Replica
from dmq.storage.log import Log
from dmq.storage.store import Store
from dmq.types import Voter


class Claimed(NamedTuple):
    """A log for a replica."""

    log: Log
    memory: list[Log]
    is_new: bool
    has_staged: bool = False
    """It was told of a promise that a former one gave."""


class Registry:
    """See the module."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.by_uid: dict[int, Replica] = {}
        self.by_key: dict[GroupKey, Replica] = {}
        self.by_peer: dict[Voter, dict[Replica, None]] = {}
        """Groups that a peer has to do with."""
        self.unclaimed: dict[GroupKey, Log] = {}
        """Logs on disk that no replica was made for yet."""
        self._memory: dict[GroupKey, list[Log]] = {}
        self._tag = 0
        for uid in sorted(store.logs):
            self._found(store.logs[uid])

    def _found(self, log: Log) -> None:
        key = GroupKey(log.topic_id, log.partition)
        if key in self.unclaimed:
            self._memory.setdefault(key, []).append(self.unclaimed.pop(key))
        base = log.marks.base
        if base.voters or base == BLANK:
            self.unclaimed[key] = log
        else:
            self._memory.setdefault(key, []).append(log)

    # ---- logs

    def claim(
        self,
        key: GroupKey,
        me: Voter,
        voters: tuple[Voter, ...],
        settings: GroupSettings,
        *,
        is_founding: bool,
    ) -> Claimed:
        """The log that is on disk, or a new one: a founding voter's, or a learner's."""
        assert key not in self.by_key, key
        memory = self._memory.pop(key, [])
        log = self.unclaimed.pop(key, None)
        if log is not None:
            log.configure(settings.log)
            return Claimed(log, memory, False, _take_over(log, memory))
        is_voter = is_founding and me in voters and not memory
        log = self._store.create(
            *key, voters=voters, settings=settings.log, base=None if is_voter else BLANK
        )
        return Claimed(log, memory, True, _take_over(log, memory))

    def drop_logs(self, key: GroupKey) -> None:
        """All that this broker has of a group goes; its replica was removed before."""
        logs = self._memory.pop(key, [])
        if key in self.unclaimed:
            logs.append(self.unclaimed.pop(key))
        for log in logs:
            self._store.drop(log)

    def park(self, key: GroupKey) -> None:
        """The records go, the promises stay; its replica was removed before."""
        log = self.unclaimed.pop(key, None)
        if log is not None:
            log.reset(parked(log.end), log.end_offset)
            self._memory.setdefault(key, []).append(log)

    def begin_again(self, replica: Replica, now: int) -> None:
        """A new log for a replica whose old one can't be repaired; its promises stay."""
        old, core = replica.log, replica.core
        log = self._store.create(*replica.key, voters=(), settings=replica.settings.log, base=BLANK)
        log.set_hard(core.epoch, core.vote)
        old.reset(parked(old.end), old.end_offset)
        del self.by_uid[old.uid]
        self.by_uid[log.uid] = replica
        replica.begin_again(log, now)

    def forget_memory(self, replica: Replica) -> None:
        """The present log has all that a former one promised."""
        for old in replica.memory:
            self._store.drop(old)
        replica.memory = []

    # ---- replicas

    def add(self, replica: Replica) -> None:
        self.by_uid[replica.log.uid] = replica
        self.by_key[replica.key] = replica

    def remove(self, replica: Replica) -> None:
        """Its logs are unclaimed from here on."""
        del self.by_key[replica.key]
        del self.by_uid[replica.log.uid]
        self.set_members(replica, ())
        self.unclaimed[replica.key] = replica.log
        if replica.memory:
            self._memory[replica.key] = replica.memory

    def set_members(self, replica: Replica, members: tuple[Voter, ...]) -> None:
        """Others came to this group or left it."""
        for peer in replica.known_members:
            if peer not in members:
                del self.by_peer[peer][replica]
                del replica.our_tags[peer]
        for peer in members:
            if peer not in replica.our_tags:
                self._tag += 1
                replica.our_tags[peer] = self._tag
            self.by_peer.setdefault(peer, {})[replica] = None
        replica.known_members = members


def _take_over(log: Log, memory: list[Log]) -> bool:
    """What former logs promised last is the present one's word; whether it did not know. A crash may have
    come between the turn in which this log began and the one that was to say it."""
    last = max(memory, key=_promise, default=log)
    if _promise(last) <= _promise(log):
        return False
    log.set_hard(last.epoch, last.vote)
    return True


def _promise(log: Log) -> tuple[int, bool]:
    return log.epoch, log.vote is not None
