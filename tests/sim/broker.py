"""A simulated broker as clients and metadata see it: the groups that it serves, and what it answers.

Its process is in process.py; every call here is made within it (`arrive`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from sim import batches, keyed
from sim.disk import flip_record
from sim.observer import Watched
from sim.process import Process

from dmq.broker.multiraft.replica import GroupSettings, NotLeaderError, Replica
from dmq.errors import ErrorCode, KafkaError, StorageError
from dmq.raft.state import Role
from dmq.storage import journal
from dmq.storage.log import LogSettings
from dmq.types import Position, Voter

if TYPE_CHECKING:
    from sim.metadata import Topic

OnDone = Callable[[ErrorCode, int], None]


class Fetched(NamedTuple):
    """An answer to a fetch."""

    code: ErrorCode
    raw: bytes
    high_watermark: int
    log_start: int


class Broker(Process):
    """See the module."""

    # ---- groups

    def _replica(self, topic: "Topic") -> Replica | None:
        return self.node.replica(topic.topic_id, 0) if self.is_up else None

    def holds(self, topic: "Topic") -> bool:
        return topic.name in self.watched

    def has_log(self, topic: "Topic") -> bool:
        """Served, or on disk since a former life."""
        return self.holds(topic) or any(k.topic_id == topic.topic_id for k in self.node.unclaimed)

    def host(self, topic: "Topic", target: tuple[Voter, ...]) -> None:
        """Serve a group, or learn that it shall have other voters."""
        replica = self._replica(topic)
        if replica is not None:
            if replica.target != target:
                replica.set_target(target, self.now)
            return
        had_log = self.has_log(topic)
        replica = self.node.create_group(
            self.now,
            topic.topic_id,
            0,
            topic.first_voters,
            _group_settings(self.world.mix, topic.is_async),
            is_founding=self.world.metadata.may_begin(topic, self.me),
            target=target,
        )
        watched = self.watched[topic.name] = Watched(topic, replica)
        if self.backend is not None:
            self.backend.opened(topic, replica)
        if self.disk.has_flips(replica.log.directory):
            topic.facts.damaged[self.me] = None  # Perhaps under a new name.
        if had_log or self.me in topic.facts.durable:
            self.world.observer.restarted(watched, is_exact=not self._had_turn)

    def drop(self, topic: "Topic") -> None:
        """The topic was deleted; others may not know it yet, and count on what this one had."""
        self.watched.pop(topic.name, None)
        self.node.drop_group(topic.topic_id, 0)
        if self.backend is not None:
            self.backend.deleted(topic)

    def leave(self, topic: "Topic") -> None:
        """A committed mark leaves this replica out: its records go, its epoch and vote stand."""
        if self.has_log(topic):
            self._forget(topic)
            self.node.leave_group(topic.topic_id, 0)
            if self.backend is not None:
                self.backend.left(topic)
            self.world.reached["replica left"] += 1

    def _forget(self, topic: "Topic") -> None:
        self.watched.pop(topic.name, None)
        facts = topic.facts
        for known in (facts.marks_of, facts.damaged, facts.durable, facts.tombstones):
            known.pop(self.me, None)

    def roles(self) -> list[str]:
        """What this broker is, over its groups, for the count of what faults have hit."""
        found: dict[str, None] = {}
        for watched in self.watched.values():
            state = watched.state
            role = state.role.value
            if state.role is Role.FOLLOWER:
                if state.is_recovering:
                    role = "recovering"
                elif state.is_damaged:
                    role = "damaged"
                elif state.me not in state.voters:
                    role = "learner"
            found[role] = None
        return [*found] or ["idle"]

    def leads_something(self) -> bool:
        return any(watched.core.is_leader for watched in self.watched.values())

    def leads(self, topic: "Topic") -> bool:
        return topic.name in self.watched and self.watched[topic.name].core.is_leader

    def leader_hint(self, topic: "Topic") -> int | None:
        watched = self.watched.get(topic.name)
        leader = watched.core.leader if watched is not None else None
        return leader.node if leader is not None else None

    def settled_end(self, topic: "Topic", target: tuple[Voter, ...]) -> Position | None:
        """Where the log ends, if nothing is left to be done for this replica."""
        watched = self.watched.get(topic.name)
        if watched is None or not self.is_serving:
            return None
        state, log = watched.state, watched.log
        if state.is_recovering or state.is_damaged or set(state.voters) != set(target):
            return None
        is_whole = log.stable_end == log.end and state.is_leader_live
        # The last word on what is committed is said once: a link that loses it breaks, but for datagrams.
        may_lack_it = self.world.mix.weather.is_datagram and state.leading is None
        is_told = state.log.commit == log.end or may_lack_it
        return log.end if is_whole and is_told else None

    def commit_offset(self, topic: "Topic") -> int:
        """All below it this replica has for certain."""
        return self.watched[topic.name].state.log.commit.offset if self.holds(topic) else 0

    def bytes_beyond(self, topic: "Topic", offset: int) -> int:
        """What this replica may have to send to one that has all below `offset`."""
        if not self.holds(topic):
            return 0
        segments = self.watched[topic.name].log.segments_list
        first = max((segment.base for segment in segments if segment.base <= offset), default=0)
        return sum(segment.size for segment in segments if segment.base >= first)

    def describe(self, topic: "Topic") -> str:
        watched = self.watched.get(topic.name)
        if watched is None:
            return f"{self}: {'up' if self.is_up else 'down'}, without it"
        state = watched.state
        voters = [f"{v.node}{'' if self._is_current(v) else '!'}" for v in state.voters]
        flags = [name for name in ("is_recovering", "is_damaged") if getattr(state, name)]
        leader = state.leader.node if state.leader is not None else "nobody"
        return (
            f"{self}: {state.role.value} of epoch {state.epoch} under {leader}"
            f"{'' if state.is_leader_live else ' (dead)'}, voters {','.join(voters)}, "
            f"{state.log.log_start}..{tuple(state.log.end)} commit {tuple(state.log.commit)} {flags}"
            f"{' paused' if self.is_paused else ''}"
        )

    def _is_current(self, voter: Voter) -> bool:
        return self.world.metadata.directories.get(voter.node) == voter.directory

    # ---- clients

    def produce(
        self, topic: "Topic", raw: bytearray, acks: int, timeout_ms: int, on_done: OnDone
    ) -> None:
        replica = self._replica(topic)
        if replica is None:
            on_done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
            return
        base = -1

        def told(code: ErrorCode) -> None:
            watched = self.watched.get(topic.name)
            if watched is not None:  # What it is told may be news of this very moment.
                self.world.observer.look(watched)
            on_done(code, base)

        try:
            append = replica.produce(
                memoryview(raw), self.now, acks=acks, timeout_ms=timeout_ms, on_done=told
            )
        except NotLeaderError:
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        except KafkaError as error:
            on_done(error.code, -1)
        except StorageError:
            on_done(ErrorCode.KAFKA_STORAGE_ERROR, -1)
        else:
            base = append.base_offset

    def probe(self, topic: "Topic") -> None:
        """Append something if we lead, to see whether it commits."""
        replica = self._replica(topic)
        if replica is not None and replica.core.can_append:
            if topic.is_internal:
                self.backend.probe(topic)
                return
            number = self.world.next_number()
            is_keyed = topic.facts.is_compacted
            raw = keyed.make(number) if is_keyed else batches.make(number, 1, 0)
            self.produce(topic, raw, 1, 1000, lambda code, base: None)

    def fetch(
        self, topic: "Topic", offset: int, bytes_max: int, *, may_follow: bool
    ) -> Fetched | None:
        """None: this broker does not know the topic."""
        replica = self._replica(topic)
        if replica is None:
            return None
        high, start = replica.high_watermark, replica.log_start_offset
        if replica.is_leader:
            self._look_at_lease(topic, replica)
        if not replica.is_leader and not may_follow:
            return Fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, b"", high, start)
        try:
            slices = replica.read(offset, bytes_max, self.now, whole_first_batch=True)
            raw = b"".join([part.pread() for part in slices])
        except NotLeaderError as not_leader:
            self.world.reached["end of a log not told"] += 1
            return Fetched(not_leader.code, b"", high, start)
        except KafkaError as error:
            return Fetched(error.code, b"", high, start)
        except StorageError:
            return Fetched(ErrorCode.KAFKA_STORAGE_ERROR, b"", high, start)
        return Fetched(ErrorCode.NONE, raw, high, start)

    def _look_at_lease(self, topic: "Topic", replica: Replica) -> None:
        """Whether it could answer a read that must be the newest; see `GroupNode.has_lease`."""
        world = self.world
        if not (replica.core.knows_latest and self.node.has_lease(replica, self.now)):
            world.reached["lease read refused"] += 1
            return
        world.reached["lease read"] += 1
        world.observer.look(self.watched[topic.name])
        self.check_lease(topic)

    def check_lease(self, topic: "Topic") -> None:
        """If it would answer by its lease now, that must be right."""
        replica = self._replica(topic)
        if "skew" in self.world.mix.faults or self.is_paused or replica is None:
            return  # Leases rest on clocks that run alike.
        core = replica.core
        if core.is_leader and core.knows_latest and self.node.has_lease(replica, self.now):
            for check in self.world.checkers.leased:
                check(topic.facts, self.me, core.epoch, replica.latest_offset())

    def list_latest(self, topic: "Topic") -> None:
        """A client asks where the log ends, as the verb list_offset does; what it is told is judged."""
        replica = self._replica(topic)
        if replica is None or not replica.core.can_append or not replica.core.knows_latest:
            return
        world, life, floor = self.world, self.life, topic.facts.high

        def told(code: ErrorCode) -> None:
            if code is ErrorCode.NONE and self.life == life and replica.core.knows_latest:
                world.observer.look(self.watched[topic.name])
                world.reached["latest told"] += 1
                for check in world.checkers.latest_told if "skew" not in world.mix.faults else ():
                    check(topic.facts, self.me, replica.latest_offset(), floor)

        replica.await_newest(self.now, told)

    def trim(self, topic: "Topic", share: float) -> None:
        """Retention takes a share of what is committed."""
        replica = self._replica(topic)
        if replica is None or not replica.core.can_append:
            return
        start, high = replica.log_start_offset, replica.high_watermark
        high = max(start, high - self.world.mix.trim_keeps)
        replica.trim(start + int((high - start) * share), self.now)

    def transfer(self, topic: "Topic", to: int) -> None:
        replica = self._replica(topic)
        if replica is None or not replica.is_leader:
            return
        for voter in replica.core.voters:
            if voter.node == to and replica.transfer(voter, self.now):
                self.world.reached["transfer under load"] += 1

    # ---- rot

    def flip_segment(self, topic: "Topic") -> bool:
        """Flip a bit in a batch of this log that a turn has made durable."""
        watched = self.watched[topic.name]
        log = watched.log
        segments = [s for s in log.segments_list if s.size and s.file is not None]
        if not segments or log.damage:
            return False
        segment = self.rng.choice(segments)
        name = f"{log.directory}/{segment.base:020d}.log"
        size = min(segment.size, self.disk.open(name).size())  # Some of it may be written late.
        if not size:
            return False
        self.disk.flip(name, self.rng.randrange(size), 1 << self.rng.randrange(8))
        watched.facts.damaged[self.me] = None
        watched.facts.was_rotten = True
        return True

    def flip_journal(self) -> None:
        """Rot that is noticed: under its name this broker is no more."""
        if flip_record(self.disk, self.me.directory, self.rng):
            self._forget_promises()

    def lose_journal(self) -> None:
        """All of it, while the rest of the directory stays: that is noticed, too."""
        for name in self.disk.list(journal.DIRECTORY):
            self.disk.unlink(f"{journal.DIRECTORY}/{name}")
        self.disk.is_sync_failing, fails = False, self.disk.is_sync_failing
        self.disk.sync_dir(journal.DIRECTORY)
        self.disk.is_sync_failing = fails
        self._forget_promises()

    def _forget_promises(self) -> None:
        self.has_rotten_journal = self.was_rotten = True
        self._lose_name()


def _group_settings(mix: Any, is_async: bool) -> GroupSettings:
    log = LogSettings(
        segment_bytes=mix.segment_bytes, index_interval_bytes=64, is_async=is_async, flush_ms=100
    )
    return GroupSettings(log=log, min_insync_replicas=mix.min_insync)
