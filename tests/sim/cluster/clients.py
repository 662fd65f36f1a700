"""Clients of a simulated cluster: writers and readers.

Each asks some broker that is up, as a client does which knows one address of several. What it is told is
a promise (truths.py); without an answer nothing is known.
"""

from typing import TYPE_CHECKING

from sim import batches
from sim.checkers import BrokenPromiseError
from sim.cluster.truths import KnownTopic

from dmq.broker.fetching import FetchResult, FetchSpec
from dmq.broker.multiraft.waiting import ALL
from dmq.errors import DmqError, ErrorCode

if TYPE_CHECKING:
    from sim.cluster.process import Member
    from sim.cluster.world import ClusterWorld

FETCH_BYTES = 1500
ANY_RACK = "anywhere"
"""No broker is in it: a reader that names it may be served by followers, and is sent to none."""


class Writer:
    """Appends to partitions, one at a time, and remembers what was acknowledged."""

    def __init__(self, world: "ClusterWorld", every_ms: int) -> None:
        self._world, self._every_ms = world, every_ms
        world.clock.after(world.rng.randrange(every_ms), self._turn)

    def _turn(self) -> None:
        world = self._world
        if world.is_quiet:
            return
        world.clock.after(world.rng.randint(1, 2 * self._every_ms), self._turn)
        member, topics = world.any_serving(), world.truths.live
        if member is None or not topics:
            return
        topic = world.rng.choice(topics)
        partition = world.rng.randrange(topic.partitions)
        leader = member.service.leadership.of(topic.topic_id, partition).leader
        target = world.members.get(leader)
        world.operations += 1
        if target is not None and target.is_serving:
            target.arrive(self.write, target, topic, partition)

    def write(self, member: "Member", topic: KnownTopic, partition: int) -> None:
        """In the broker's process."""
        world = self._world
        number = world.truths.attempt(world.next_number(), topic, partition)
        try:
            found = member.service.find("", topic.topic_id, partition)
            append = found.append(memoryview(batches.make(number, 1, 0)), member.wall(), ALL)
        except DmqError:
            world.reached["write refused"] += 1
            return

        def told(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                world.truths.wrote(topic, partition, append.base_offset, number)

        append.deadline = member.now + 5000
        append.on_done = told


class Reader:
    """Reads every partition from the beginning, at its leader or, if it may, at any replica."""

    def __init__(self, world: "ClusterWorld", every_ms: int, *, reads_followers: bool) -> None:
        self._world, self._every_ms = world, every_ms
        self._reads_followers = reads_followers
        self._positions: dict[tuple[KnownTopic, int], int] = {}
        world.clock.after(world.rng.randrange(every_ms), self._turn)

    def _turn(self) -> None:
        world = self._world
        if world.is_quiet:
            return
        world.clock.after(world.rng.randint(1, 2 * self._every_ms), self._turn)
        member, topics = world.any_serving(), world.truths.live
        if member is None or not topics:
            return
        topic = world.rng.choice(topics)
        partition = world.rng.randrange(topic.partitions)
        if not self._reads_followers:
            leader = member.service.leadership.of(topic.topic_id, partition).leader
            target = world.members.get(leader)
        else:
            target = member
        if target is not None and target.is_serving:
            target.arrive(self.read, target, topic, partition)

    def read(self, member: "Member", topic: KnownTopic, partition: int) -> FetchResult:
        """In the broker's process: what it shows is judged now, whether or not it arrives."""
        position = self._positions.get((topic, partition), 0)
        spec = FetchSpec("", topic.topic_id, partition, position, FETCH_BYTES)
        results: list[FetchResult] = []
        member.service.fetcher.fetch(
            [spec],
            bytes_min=0,
            bytes_max=FETCH_BYTES,
            deadline=None,
            on_done=results.extend,
            rack=ANY_RACK if self._reads_followers else None,
        )
        self._judge(member, topic, partition, results[0])
        return results[0]

    def _judge(
        self, member: "Member", topic: KnownTopic, partition: int, told: FetchResult
    ) -> None:
        world, position = self._world, told.spec.offset
        if topic.may_lose(partition):
            self._positions.pop((topic, partition), None)  # What was seen may be gone: begin again.
        elif told.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise BrokenPromiseError(
                f"{member} says that {topic.name}-{partition} ends before {position}, "
                "up to where it was read"
            )
        elif told.code is ErrorCode.NONE and told.records is not None:
            raw = b"".join([piece.pread() for piece in told.records.slices])
            entries = batches.parse(raw, may_be_cut=True)
            world.truths.showed(topic, partition, position, entries, told.high_watermark)
            self._positions[topic, partition] = entries[-1].end
            is_leader = member.service.find("", topic.topic_id, partition).is_leader
            world.reached["read at a leader" if is_leader else "read at a follower"] += 1

    def read_to_the_end(self, member: "Member", topic: KnownTopic, partition: int) -> None:
        """When all is settled: whoever has the partition shows all of it to who may read there."""
        found = member.service.find("", topic.topic_id, partition)
        if not (self._reads_followers or found.is_leader):
            return
        while (position := self._positions.get((topic, partition), 0)) < found.high_watermark:
            told = self.read(member, topic, partition)
            if self._positions.get((topic, partition), 0) <= position:
                raise BrokenPromiseError(
                    f"a reader of {topic.name}-{partition} at {member} stays at {position}, "
                    f"before {found.high_watermark}: {told.code.name}"
                )
