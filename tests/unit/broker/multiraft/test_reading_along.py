"""Followers know which transactions are decided, for readers in their racks."""

import errno
from typing import Any

import pytest
from unit.broker.multiraft.test_producer_snapshots import Books, hold
from unit.broker.multiraft.wiring import Broker, World

from dmq.broker import producer_loading, reading_along
from dmq.broker.markers import _KEY, _VALUE
from dmq.broker.multiraft.waiting import FetchWaiter
from dmq.broker.producer_loading import Piece, look_at
from dmq.errors import KafkaError
from dmq.machines.producers.aborted import AbortedTxn
from dmq.machines.producers.entries import Marker
from dmq.records import CONTROL, TRANSACTIONAL, Record, build_batch, read_header, scan

TIME = 1_700_000_000_000
View = tuple[int, list[AbortedTxn]]


class Scene:
    """Three replicas, and transactions at whoever leads."""

    def __init__(self) -> None:
        self.world = World(3)
        self.leader = self.world.elected()
        self.books = Books(self.world)
        self.sequences: dict[int, int] = {}

    @property
    def followers(self) -> list[Broker]:
        return [b for b in self.world.brokers.values() if b.is_up and not b.replica.is_leader]

    def write(self, producer_id: int, *, at: Broker | None = None) -> int:
        """A batch in the producer's transaction; its offset."""
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + 1
        record = Record(0, TIME, b"k", b"v" * 100)
        batch = build_batch(
            [record],
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        return self.append(batch, None, at)

    def end(self, producer_id: int, *, is_commit: bool, at: Broker | None = None) -> int:
        record = Record(0, TIME, _KEY.pack(0, int(is_commit)), _VALUE.pack(0, 1))
        batch = build_batch(
            [record], attributes=TRANSACTIONAL | CONTROL, producer_id=producer_id, producer_epoch=0
        )
        return self.append(batch, Marker(is_commit, 1), at)

    def append(self, batch: bytearray, marker: Marker | None, at: Broker | None) -> int:
        leader = at or self.leader
        append = leader.replica.append(memoryview(batch), -1, -1, self.world.now)
        header = read_header(batch)._replace(base_offset=append.base_offset)
        self.books.of[leader.number].appended(header, append.position, marker)
        self.world.pass_time(100)
        return append.base_offset

    def some(self) -> None:
        """Committed, aborted and open ones, one within the other."""
        self.write(1)
        self.write(2)
        self.write(1)
        self.end(1, is_commit=False)
        self.write(3)
        self.end(2, is_commit=True)
        self.write(4)
        self.end(3, is_commit=False)
        self.write(1)

    def view(self, broker: Broker) -> View | None:
        """What a reader at the end of the log is told; None: it has to wait."""
        decided = self.books.of[broker.number].decided(broker.replica.high_watermark)
        if decided is None:
            return None
        start, stable = broker.replica.log_start_offset, decided.last_stable_offset
        return stable, decided.aborts.aborted(start, stable)

    def seen(self, broker: Broker) -> tuple[int, list[int]]:
        """The last stable offset, and the records below it that a reader sees."""
        view = self.view(broker)
        assert view is not None
        stable, aborted = view
        log, offsets = broker.replica.log, list[int]()
        slices = log.read(log.log_start, 1 << 20, stable) if log.log_start < stable else []
        for _, header in scan(b"".join(part.pread() for part in slices)):
            hidden = [
                txn
                for txn in aborted
                if txn.producer_id == header.producer_id
                and txn.first_offset <= header.base_offset < txn.last_offset
            ]
            if not header.is_control and not hidden:
                offsets.append(header.base_offset)
        return stable, offsets

    def check(self) -> View:
        """All say the same; only, who reads from the log's start does not know of transactions of
        which nothing is left, and may see what lies behind them."""
        stable, offsets = self.seen(self.leader)
        for follower in self.followers:
            own_stable, own_offsets = self.seen(follower)
            assert own_stable == stable or own_stable > stable == self.leader.replica.log.log_start
            assert [offset for offset in own_offsets if offset < stable] == offsets
        told = self.view(self.leader)
        assert told is not None
        return told


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch is read at once, no more."""
    monkeypatch.setattr(reading_along, "AT_ONCE_BYTES", 0)


def test_a_follower_says_what_the_leader_says(scene: Scene) -> None:
    scene.some()
    stable, aborted = scene.check()
    assert stable == 6, "where the transaction of producer 4 begins"
    assert [(txn.producer_id, txn.first_offset) for txn in aborted] == [(1, 0), (3, 4)]


def test_it_reads_on_when_it_is_asked_again(scene: Scene) -> None:
    scene.some()
    scene.check()
    scene.end(4, is_commit=False)
    stable, aborted = scene.check()
    assert stable == 8, "where the second transaction of producer 1 begins"
    assert len(aborted) == 3
    scene.end(1, is_commit=True)
    assert scene.check()[0] == 11


def test_who_asks_first_after_a_snapshot_is_told_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.some()
    for _ in range(10):
        scene.write(4)
    scene.books.keep()
    scene.end(4, is_commit=False)
    read: list[int] = []

    def count(data: bytes, start: int) -> Piece:
        read.append(len(data))
        return look_at(data, start)

    monkeypatch.setattr(producer_loading, "look_at", count)
    stable, aborted = scene.check()
    assert (stable, len(aborted)) == (8, 3)
    assert sum(read) < 500, "more than the tail was read"


@pytest.mark.parametrize("is_rotten", [False, True])
def test_a_snapshot_that_is_gone_or_rotten_is_done_without(scene: Scene, is_rotten: bool) -> None:
    scene.some()
    for _ in range(10):
        scene.write(4)
    scene.books.keep()
    for broker in scene.world.brokers.values():
        for name in broker.disk.list("producers"):
            if is_rotten:
                broker.disk.flip(f"producers/{name}", 30)
            else:
                broker.disk.unlink(f"producers/{name}")
    scene.end(4, is_commit=False)
    for follower in scene.followers:
        scene.view(follower)  # It may find out beside the loop.
    assert len(scene.check()[1]) == 3


def test_what_is_not_committed_decides_nothing(scene: Scene) -> None:
    """A deposed leader has the end of a transaction that nobody else has, and it is cut."""
    scene.write(1)
    old = scene.leader
    for other in scene.world.others(old):
        scene.world.cut(old.number, other.number)
    scene.end(1, is_commit=False)
    scene.world.until(lambda: not old.replica.is_leader)
    assert old.replica.log_end_offset == 2
    assert scene.view(old) == (0, [])
    scene.world.until(lambda: any(o.replica.is_leader for o in scene.world.others(old)))
    scene.leader = next(o for o in scene.world.others(old) if o.replica.is_leader)
    scene.world.pass_time(200)
    scene.end(1, is_commit=True)
    assert scene.view(old) == (0, [])
    scene.world.heal()
    scene.world.pass_time(500)
    assert scene.check() == (2, [])


def test_what_a_follower_knew_is_good_after_a_failover(scene: Scene) -> None:
    scene.some()
    scene.check()
    old = scene.leader
    scene.leader = scene.books.after(old)
    assert scene.books.of[scene.leader.number]._along is None, "a leader has more than that"
    scene.end(4, is_commit=False)
    assert len(scene.check()[1]) == 3


@pytest.mark.parametrize("log_start", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("was_asked", [False, True])
def test_the_log_may_begin_later(scene: Scene, log_start: int, was_asked: bool) -> None:
    scene.write(7)
    if was_asked:
        scene.check()
    scene.end(7, is_commit=False)
    scene.some()
    scene.books.trim(scene.leader, log_start)
    for follower in scene.followers:
        scene.view(follower)
    assert scene.check()[0] == max(8, log_start)
    scene.end(4, is_commit=True)
    scene.end(1, is_commit=True)
    assert scene.check()[0] == 13


@pytest.mark.usefixtures("is_slow")
def test_who_waits_is_woken_when_it_is_known(scene: Scene) -> None:
    scene.some()
    follower = scene.followers[0]
    replica = follower.replica
    hold(scene.books)
    assert scene.view(follower) is None
    woken: list[bool] = []
    replica.wait(FetchWaiter(1, lambda: woken.append(True)))
    scene.books.asides[follower.number].go_on()
    assert woken == [True]
    assert scene.view(follower) == scene.view(scene.leader)


@pytest.mark.usefixtures("is_slow")
def test_what_is_known_may_be_read_while_more_is_looked_at(scene: Scene) -> None:
    scene.write(1)
    scene.end(1, is_commit=False)
    follower = scene.followers[0]
    scene.view(follower)
    scene.some()
    hold(scene.books)
    decided = scene.books.of[follower.number].decided(0)
    assert decided is not None
    assert decided.last_stable_offset == 2
    assert len(decided.aborts.aborted(0, 2)) == 1
    assert scene.view(follower) is None, "the end is not where it stands"


@pytest.mark.usefixtures("is_slow")
@pytest.mark.parametrize("log_start", [1, 5, 9])
def test_the_start_may_move_while_it_is_read(scene: Scene, log_start: int) -> None:
    scene.some()
    hold(scene.books)
    for follower in scene.followers:
        assert scene.view(follower) is None
    scene.books.trim(scene.leader, log_start)
    for aside in scene.books.asides.values():
        aside.is_held = False
        aside.go_on()
    for follower in scene.followers:
        scene.view(follower)
    assert scene.check()[0] == max(6, log_start)


def test_a_snapshot_that_comes_when_the_log_begins_behind_it_is_too_late(scene: Scene) -> None:
    """A transaction that it says is open has ended in what it does not know and the log has not."""
    scene.some()
    for _ in range(10):
        scene.write(4)
    scene.books.keep()
    hold(scene.books)
    for follower in scene.followers:
        assert scene.view(follower) is None
    scene.end(4, is_commit=True)
    scene.end(1, is_commit=True)
    end = scene.write(5)
    scene.books.trim(scene.leader, end)
    for aside in scene.books.asides.values():
        aside.is_held = False
        aside.go_on()
    scene.end(5, is_commit=True)
    for follower in scene.followers:
        scene.view(follower)
        assert scene.seen(follower) == (end + 2, [end])


def test_the_log_may_begin_within_a_batch(scene: Scene) -> None:
    batch = build_batch(
        [Record(n, TIME, b"k", b"v" * 100) for n in range(3)],
        attributes=TRANSACTIONAL,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
    )
    scene.append(batch, None, None)
    hold(scene.books)  # Else there would be a snapshot.
    scene.books.trim(scene.leader, 2)
    for broker in scene.world.brokers.values():
        assert scene.view(broker) == (2, [])
    scene.end(1, is_commit=False)
    for broker in scene.world.brokers.values():
        assert scene.view(broker) == (4, [AbortedTxn(1, 0, 3, 4)])


@pytest.mark.usefixtures("is_slow")
def test_compaction_ahead_makes_it_begin_anew(scene: Scene) -> None:
    """The files that come next may lack a marker whose transaction was seen in those before."""
    scene.write(1)
    scene.some()
    for _ in range(10):
        scene.write(4)
    follower = scene.followers[0]
    assert follower.replica.log.segments_list[-1].base > 1
    hold(scene.books)
    scene.view(follower)
    along = scene.books.of[follower.number]._along
    assert along is not None
    assert along._at == 1
    follower.replica.log.swap_count += 1
    along._is_reading = False
    scene.view(follower)
    assert along._at == 1, "from the start again, by one batch"
    scene.books.asides[follower.number].go_on()
    scene.view(follower)
    scene.books.asides[follower.number].go_on()
    assert scene.view(follower) == scene.view(scene.leader)


@pytest.mark.usefixtures("is_slow")
def test_a_follower_without_a_file_to_spare_reads_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.some()
    follower = scene.followers[0]
    hold(scene.books)
    assert scene.view(follower) is None

    def refused(data: bytes, start: int) -> Any:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(producer_loading, "look_at", refused)
        scene.books.asides[follower.number].go_on()
    assert scene.view(follower) is None
    scene.books.asides[follower.number].go_on()
    assert scene.view(follower) == scene.view(scene.leader)


def test_it_costs_nothing_when_nobody_asks(scene: Scene) -> None:
    scene.some()
    follower = scene.followers[0]
    book = scene.books.of[follower.number]
    assert book._along is None
    scene.view(follower)
    book.expire(TIME, scene.world.now)
    assert book._along is not None, "somebody asked since the last look"
    book.expire(TIME, scene.world.now)
    assert book._along is None
    assert scene.view(follower) == scene.view(scene.leader)


def test_a_leader_that_reads_its_log_says_so(scene: Scene) -> None:
    scene.some()
    book = scene.books.of[scene.leader.number]
    book._state = None
    with pytest.raises(KafkaError):
        book.decided(0)
