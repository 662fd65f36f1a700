"""Brokers of real GroupNodes on fake disks, wired by hand: a clock that is set, frames in a list.

`World` is no simulator: nothing is random but the dice of elections. Tests say who can hear whom, when a
disk syncs, and what is lost.
"""

import random
from collections.abc import Callable
from uuid import UUID

from fakes.disk import FakeDisk

from dmq.broker.multiraft.codec import decode, encode
from dmq.broker.multiraft.frames import Frame, Outgoing
from dmq.broker.multiraft.node import GroupNode
from dmq.broker.multiraft.replica import GroupSettings, Replica
from dmq.broker.multiraft.turn import GroupTurn, NodeSettings
from dmq.errors import ErrorCode, KafkaError
from dmq.raft.settings import RaftSettings
from dmq.records import Record, build_batch, iterate, scan
from dmq.storage.log import LogSettings
from dmq.storage.store import Store, StoreSettings
from dmq.types import Position, Voter

TOPIC = UUID(int=77)
STORE = StoreSettings(
    journal_bytes=1024 * 1024, journal_file_bytes=64 * 1024, reserve_bytes=0, quarantine_ms=1000
)
SMALL = GroupSettings(log=LogSettings(segment_bytes=1000, index_interval_bytes=64))


class Broker:
    """One broker: a disk, and a node while it is up."""

    def __init__(self, world: "World", number: int, disk: FakeDisk | None = None) -> None:
        self.world = world
        self.number = number
        self.disk = disk or FakeDisk(random.Random(number))
        self.is_syncing_by_hand = False
        self.turn: GroupTurn | None = None
        self.is_up = False
        self.start()

    def __repr__(self) -> str:
        return f"<Broker {self.number}>"

    def start(self) -> None:
        world = self.world
        self.store = Store.open(self.disk, world.store_settings, now=world.now)
        self.store.identify("test", self.number)
        self.node = GroupNode(
            self.store,
            cluster_id="test",
            node_id=self.number,
            dice=random.Random(self.number * 1000 + world.now),
            now=world.now,
            raft=world.raft,
            settings=world.settings,
        )
        self.is_up = True

    @property
    def me(self) -> Voter:
        return self.node.me

    @property
    def replica(self) -> Replica:
        found = self.node.replica(TOPIC, 0)
        assert found is not None
        return found

    # ---- driving

    def send(self, frames: list[Outgoing]) -> None:
        for out in frames:
            self.world.post(self, out)

    def begin(self) -> bool:
        turn = self.node.begin_turn(self.world.now)
        if turn is None:
            return False
        self.turn = turn
        self.send(turn.frames_now)
        return True

    def end(self) -> None:
        turn, self.turn = self.turn, None
        assert turn is not None
        if turn.needs_sync:
            turn.sync()
        self.send(self.node.end_turn(self.world.now, turn))

    def work(self) -> int:
        """Turns until there is nothing to do; one that is held stays under way."""
        count = 0
        while self.is_up and self.turn is None and self.begin():
            if self.is_syncing_by_hand:
                break
            self.end()
            count += 1
            assert count < 1000, "turns without end"
        if self.is_up:
            self.send(self.node.outgoing(self.world.now))
        return count

    def run_jobs(self) -> None:
        for job in self.store.maintain(self.world.now):
            job.run()
            self.store.done(job)

    # ---- ends

    def kill(self, crash: Callable[[FakeDisk], None] = FakeDisk.kill) -> None:
        """The process ends; others are told that nobody listens any more."""
        self.is_up = False
        self.turn = None
        crash(self.disk)
        for other in self.world.brokers.values():
            self.world.disconnect(self, other)
            if other.is_up:
                other.node.refused(self.world.now, self.me)

    def restart(self) -> None:
        self.start()
        for other in self.world.brokers.values():
            self.world.connect(self, other)


class World:
    """Brokers, and what is between them."""

    def __init__(
        self,
        count: int = 3,
        *,
        raft: RaftSettings | None = None,
        settings: NodeSettings | None = None,
        store: StoreSettings = STORE,
        is_encoding: bool = False,
    ) -> None:
        self.now = 1_700_000_000_000
        self.raft = raft or RaftSettings()
        self.settings = settings or NodeSettings()
        self.store_settings = store
        self.is_encoding = is_encoding
        self.net: list[tuple[int, int, int, Frame]] = []
        self.sessions: dict[tuple[int, int], int] = {}
        self.session_count = 0
        self.cuts: dict[tuple[int, int], None] = {}
        self.drops: Callable[[int, int, Frame], bool] = lambda sender, to, frame: False
        self.sent: list[tuple[int, int, Frame]] = []
        self.brokers: dict[int, Broker] = {}
        for number in range(1, count + 1):
            self.brokers[number] = Broker(self, number)
        self.connect_all()

    def __getitem__(self, number: int) -> Broker:
        return self.brokers[number]

    @property
    def voters(self) -> tuple[Voter, ...]:
        return tuple(broker.me for broker in self.brokers.values())

    # ---- links

    def connect_all(self) -> None:
        brokers = list(self.brokers.values())
        for index, a in enumerate(brokers):
            for b in brokers[index + 1 :]:
                self.connect(a, b)

    def connect(self, a: Broker, b: Broker) -> None:
        if a is b or not (a.is_up and b.is_up):
            return
        self.session_count += 1
        self.sessions[a.number, b.number] = self.sessions[b.number, a.number] = self.session_count
        a.node.connected(self.now, b.node.hello, self.session_count)
        b.node.connected(self.now, a.node.hello, self.session_count)

    def disconnect(self, a: Broker, b: Broker) -> None:
        for here, there in ((a, b), (b, a)):
            session = self.sessions.pop((here.number, there.number), None)
            if here.is_up and session is not None:
                here.node.closed(self.now, there.me, session)
        self.net = [f for f in self.net if {f[0], f[1]} != {a.number, b.number}]

    def cut(self, a: int, b: int, *, is_one_way: bool = False) -> None:
        """Frames from a to b vanish; so do those from b to a, unless the cut is one-way."""
        self.cuts[a, b] = None
        if not is_one_way:
            self.cuts[b, a] = None

    def heal(self) -> None:
        """Whoever was cut off connects anew, as after a connection that timed out."""
        cuts, self.cuts = self.cuts, {}
        for a, b in cuts:
            if a < b or (b, a) not in cuts:
                self.disconnect(self[a], self[b])
                self.connect(self[a], self[b])

    def post(self, sender: Broker, out: Outgoing) -> None:
        assert out.frame != Frame(), "a frame that says nothing"
        to = out.to.node
        self.sent.append((sender.number, to, out.frame))
        if self.sessions.get((sender.number, to)) == out.session:
            self.net.append((sender.number, to, out.session, out.frame))

    def deliver(self) -> bool:
        """Let all arrive that is under way now."""
        under_way, self.net = self.net, []
        for sender, to, session, frame in under_way:
            broker = self.brokers[to]
            if (sender, to) in self.cuts or not broker.is_up or self.drops(sender, to, frame):
                continue
            if self.is_encoding:
                frame = decode(encode(frame))
            broker.node.receive(self.now, self[sender].me, session, frame)
        return bool(under_way)

    # ---- time

    def settle(self) -> None:
        """All turns, all frames, until nothing happens any more."""
        for _ in range(1000):
            worked = sum(broker.work() for broker in self.brokers.values() if broker.is_up)
            if not self.deliver() and not worked:
                return
        raise AssertionError("no end")

    def pass_time(self, ms: int, step: int = 10) -> None:
        """Let time pass in steps; timers are served and everything settles in each."""
        end = self.now + ms
        while self.now < end:
            self.now = min(self.now + step, end)
            for broker in self.brokers.values():
                if broker.is_up:
                    broker.node.tick(self.now)
                    broker.run_jobs()
            self.settle()

    def until(self, condition: Callable[[], bool], ms: int = 10_000) -> None:
        end = self.now + ms
        while not condition():
            assert self.now < end, "it did not happen in time"
            self.pass_time(10)

    # ---- groups

    def create(
        self,
        settings: GroupSettings = SMALL,
        *,
        voters: tuple[Voter, ...] | None = None,
        partition: int = 0,
    ) -> None:
        for broker in self.brokers.values():
            if broker.me in (voters or self.voters):
                broker.node.create_group(
                    self.now, TOPIC, partition, voters or self.voters, settings
                )

    def reopen(self, broker: Broker, settings: GroupSettings = SMALL) -> Replica:
        """After a restart: the group that its disk has."""
        return broker.node.create_group(self.now, TOPIC, 0, self.voters, settings)

    @property
    def leaders(self) -> list[Broker]:
        return [
            broker
            for broker in self.brokers.values()
            if broker.is_up and (r := broker.node.replica(TOPIC, 0)) is not None and r.is_leader
        ]

    def leader(self) -> Broker:
        """The one leader, once its mark is committed."""
        self.until(
            lambda: len(self.leaders) == 1 and self.leaders[0].replica.core.knows_latest
            and self.leaders[0].replica.core.commit.epoch == self.leaders[0].replica.core.epoch
        )  # fmt: skip
        return self.leaders[0]

    def others(self, broker: Broker) -> list[Broker]:
        return [other for other in self.brokers.values() if other is not broker]

    def elected(self, settings: GroupSettings = SMALL) -> Broker:
        self.create(settings)
        return self.leader()


class Reply:
    """What a producer hears."""

    def __init__(self) -> None:
        self.code: ErrorCode | None = None
        self.position: Position | None = None

    def __call__(self, code: ErrorCode) -> None:
        assert self.code is None, "answered twice"
        self.code = code


def batch(*values: bytes, time: int = 1_700_000_000_000) -> memoryview:
    records = [Record(n, time, b"k", value) for n, value in enumerate(values)]
    return memoryview(build_batch(records))


def produce(broker: Broker, *values: bytes, acks: int = -1, timeout_ms: int = 5000) -> Reply:
    """Append; the code comes when it comes. Refusals that are definite are codes too."""
    reply = Reply()
    try:
        append = broker.replica.produce(
            batch(*(values or (b"v",))),
            broker.world.now,
            acks=acks,
            timeout_ms=timeout_ms,
            on_done=reply,
        )
    except KafkaError as error:
        reply.code = error.code
    else:
        reply.position = append.position
    return reply


def values(broker: Broker, *, is_all: bool = False) -> list[bytes]:
    """What a reader sees; or all that the log holds."""
    replica, found = broker.replica, []
    log = replica.log
    offset, end = log.log_start, log.end_offset if is_all else replica.high_watermark
    while offset < end:
        slices = log.read(offset, 1 << 20, end, whole_first_batch=True)
        before = offset
        for piece in slices:
            data = piece.pread()
            for at, header in scan(data):
                found += [r.value for r in iterate(data, at, header) if r.offset >= log.log_start]
                offset = header.next_offset
        if offset == before:
            break
    return [value for value in found if value is not None]
