"""Producers are known though retention took their batches, whoever leads next; and starts are short."""

import errno
from collections.abc import Callable
from typing import Any

import pytest
from unit.broker.multiraft.wiring import Broker, World, produce

from dmq.broker import producer_loading
from dmq.broker.producer_loading import Piece
from dmq.broker.producing import ProducerBook, Snapshots
from dmq.errors import ErrorCode, KafkaError, StorageError
from dmq.machines.producers.state import Duplicate
from dmq.records import Record, build_batch, read_header
from dmq.storage.items import Damage
from dmq.storage.producer_files import DIRECTORY, ProducerFiles

TIME = 1_700_000_000_000


class Later:
    """Work beside the loop, done when the test says so."""

    def __init__(self) -> None:
        self.is_held = False
        self._waiting: list[Callable[[], None]] = []

    def submit(self, work: Any, done: Any) -> None:
        def both() -> None:
            try:
                work()
            except (OSError, StorageError) as error:
                done(error)
            else:
                done(None)

        self._waiting.append(both)
        if not self.is_held:
            self.go_on()

    def go_on(self) -> None:
        while self._waiting:
            self._waiting.pop(0)()


class Books:
    """The producers of every broker's replica."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asides = {number: Later() for number in world.brokers}
        self.of = {number: self.open(world[number]) for number in world.brokers}

    def open(self, broker: Broker) -> ProducerBook:
        aside = self.asides[broker.number]
        snapshots = Snapshots(ProducerFiles(broker.disk), aside)
        return ProducerBook(broker.replica, aside, 10**9, snapshots)

    def append(self, broker: Broker, sequence: int, producer_id: int = 7) -> None:
        self.begin(broker, sequence, producer_id)
        self.world.pass_time(30)

    def begin(self, broker: Broker, sequence: int, producer_id: int = 7) -> None:
        batch = idempotent(sequence, producer_id)
        header = read_header(batch)
        book = self.of[broker.number]
        assert book.check(header) is None
        append = broker.replica.append(batch, -1, -1, self.world.now)
        book.appended(header._replace(base_offset=append.base_offset), append.position)

    def keep(self) -> None:
        for book in self.of.values():
            book.keep(TIME)

    def trim(self, leader: Broker, log_start: int) -> None:
        answer = leader.replica.trim(log_start, self.world.now)
        self.world.pass_time(300)
        assert answer.get() == log_start
        for broker in self.world.brokers.values():
            assert broker.replica.log_start_offset == log_start

    def restart(self) -> Broker:
        """All processes end, and what they did beside their loops; whoever leads then."""
        brokers = self.world.brokers.values()
        for broker in brokers:
            broker.kill()
            self.asides[broker.number] = Later()
        for broker in brokers:
            broker.restart()
        for broker in brokers:
            self.world.reopen(broker)
            self.of[broker.number] = self.open(broker)
        leader = self.world.leader()
        self.world.pass_time(200)
        return leader

    def after(self, old: Broker) -> Broker:
        """Whoever leads when `old` is dead."""
        old.kill()
        others = self.world.others(old)
        self.world.until(lambda: any(broker.replica.is_leader for broker in others))
        self.world.pass_time(200)
        return next(broker for broker in others if broker.replica.is_leader)


def idempotent(sequence: int, producer_id: int = 7, size: int = 300) -> memoryview:
    record = Record(0, TIME, b"k", b"v" * size)
    return memoryview(
        build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    )


def verdict(books: Books, broker: Broker, sequence: int) -> object:
    try:
        return books.of[broker.number].check(read_header(idempotent(sequence)))
    except KafkaError as error:
        return error.code


@pytest.fixture
def world() -> World:
    return World(3)


def test_a_leader_knows_producers_whose_batches_retention_took(world: World) -> None:
    old = world.elected()
    books = Books(world)
    for sequence in range(6):
        books.append(old, sequence)
    books.keep()
    books.append(old, 0, producer_id=8)
    books.trim(old, 7)
    new = books.after(old)
    assert isinstance(verdict(books, new, 5), Duplicate)
    assert verdict(books, new, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(books, new, 6) is None


@pytest.mark.parametrize("brokers", [1, 3])
def test_batches_that_commit_together_with_a_new_start_are_known(brokers: int) -> None:
    world = World(brokers)
    old = world.elected()
    books = Books(world)
    for sequence in range(4):
        books.append(old, sequence)
    books.begin(old, 4)
    books.trim(old, 4)  # In the same turn.
    assert isinstance(verdict(books, old, 4), Duplicate)
    assert [name.partition("-")[2] for name in old.disk.list(DIRECTORY)] == [f"{5:020d}.snap"]
    if brokers > 1:
        new = books.after(old)
        assert isinstance(verdict(books, new, 4), Duplicate)
        assert verdict(books, new, 5) is None


def test_followers_take_note_of_what_is_deleted_before_they_had_a_look(world: World) -> None:
    old = world.elected()
    books = Books(world)
    for sequence in range(4):
        books.append(old, sequence)
    books.trim(old, 4)
    new = books.after(old)
    assert isinstance(verdict(books, new, 3), Duplicate)
    assert verdict(books, new, 4) is None


def test_files_that_go_while_a_follower_reads_them_are_read_to_their_end(world: World) -> None:
    old = world.elected()
    books = Books(world)
    for sequence in range(6):
        books.append(old, sequence)
    for aside in books.asides.values():
        aside.is_held = True
    books.keep()
    books.trim(old, 5)
    books.append(old, 6)
    books.trim(old, 7)
    for aside in books.asides.values():
        aside.go_on()
        aside.is_held = False
    new = books.after(old)
    books.asides[new.number].go_on()
    assert isinstance(verdict(books, new, 5), Duplicate)
    assert verdict(books, new, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("has_snapshot", [False, True])
@pytest.mark.parametrize("log_start", [7, 10])
def test_producers_are_known_if_all_end_before_a_snapshot_of_what_was_deleted(
    world: World, log_start: int, has_snapshot: bool
) -> None:
    old = world.elected()
    books = Books(world)
    for sequence in range(4):
        books.append(old, sequence)
    if has_snapshot:
        books.keep()
    for sequence in range(4, 6):
        books.append(old, sequence)
    for sequence in range(4):
        books.append(old, sequence, producer_id=8)
    hold(books)
    books.trim(old, log_start)
    new = books.restart()
    assert new.replica.log_start_offset == log_start
    assert isinstance(verdict(books, new, 5), Duplicate)
    assert verdict(books, new, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(books, new, 6) is None


def test_what_was_kept_for_a_snapshot_goes_with_it(world: World) -> None:
    leader = world.elected()
    books = Books(world)
    for sequence in range(6):
        books.append(leader, sequence)
    hold(books)
    books.trim(leader, 6)
    assert all(broker.replica.log.size_bytes for broker in world.brokers.values())
    books.begin(leader, 6)
    for aside in books.asides.values():
        aside.go_on()
    world.pass_time(50)
    for broker in world.brokers.values():
        assert [segment.base for segment in broker.replica.log.segments_list] == [6]


def test_what_was_kept_goes_after_a_restart_too(world: World) -> None:
    leader = world.elected()
    books = Books(world)
    for sequence in range(6):
        books.append(leader, sequence)
    hold(books)
    books.trim(leader, 6)
    books.restart()
    books.keep()
    world.pass_time(50)
    for broker in world.brokers.values():
        assert [segment.base for segment in broker.replica.log.segments_list] == [6]


def test_a_disk_that_takes_no_snapshot_gets_its_room_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = world.elected()
    books = Books(world)
    for sequence in range(6):
        books.append(leader, sequence)

    def refused(files: ProducerFiles, uid: int, offset: int, data: bytes) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(ProducerFiles, "write", refused)
    books.trim(leader, 6)
    assert not any(broker.replica.log.size_bytes for broker in world.brokers.values())


def test_a_log_with_bad_bytes_keeps_none_that_are_deleted(world: World) -> None:
    """Nobody has them any more: it would never be whole again."""
    leader = world.elected()
    books = Books(world)
    for sequence in range(6):
        books.append(leader, sequence)
    follower = world.others(leader)[0]
    follower.replica.log.damage = (Damage(0, 0, 100),)
    hold(books)
    follower.replica.log.trim(6, follower.replica.core.commit)
    books.of[follower.number].trim(6)
    follower.work()
    assert follower.replica.log.size_bytes == 0


def hold(books: Books) -> None:
    for aside in books.asides.values():
        aside.is_held = True


def test_a_start_reads_only_what_came_after_the_snapshot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = world.elected()
    books = Books(world)
    for sequence in range(20):
        books.append(old, sequence)
    books.keep()
    books.append(old, 20)
    read: list[int] = []
    look_at = producer_loading.look_at

    def count(data: bytes, start: int) -> Piece:
        read.append(len(data))
        return look_at(data, start)

    monkeypatch.setattr(producer_loading, "look_at", count)
    new = books.after(old)
    assert isinstance(verdict(books, new, 20), Duplicate)
    assert isinstance(verdict(books, new, 19), Duplicate)
    assert sum(read) < 5 * len(idempotent(0)), "more than the tail was read"


def test_what_nobody_with_an_id_wrote_is_not_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = world.elected()
    books = Books(world)
    read: list[int] = []
    look_at = producer_loading.look_at

    def count(data: bytes, start: int) -> Piece:
        read.append(start)
        return look_at(data, start)

    monkeypatch.setattr(producer_loading, "look_at", count)
    for _ in range(20):
        produce(old, b"v" * 300)
        world.pass_time(30)
    books.keep()
    assert read == []
    saved = {broker.number: broker.disk.list(DIRECTORY) for broker in world.brokers.values()}
    assert all(len(names) == 1 for names in saved.values()), "that nobody did is kept all the same"
    books.append(old, 0)
    for _ in range(20):
        produce(old, b"v" * 300)
        world.pass_time(30)
    books.keep()
    assert read, "one of them had an id"
    del read[:]
    for _ in range(20):
        produce(old, b"v" * 300)
        world.pass_time(30)
    new = books.after(old)
    assert isinstance(verdict(books, new, 0), Duplicate)
    assert not read


def test_a_snapshot_is_due_with_a_complete_segment_and_not_before(world: World) -> None:
    leader = world.elected()
    books = Books(world)
    books.append(leader, 0)
    books.keep()
    assert leader.disk.list(DIRECTORY) == []
    for sequence in range(1, 6):
        books.append(leader, sequence)
    books.keep()
    (name,) = leader.disk.list(DIRECTORY)
    assert name.endswith("-00000000000000000006.snap")
    books.keep()
    assert leader.disk.list(DIRECTORY) == [name]


def test_a_snapshot_with_a_gap_behind_it_is_not_believed(world: World) -> None:
    """What it says of a producer that wrote in the gap is old: its next batch would be refused."""
    old = world.elected()
    books = Books(world)
    for sequence in range(6):
        books.append(old, sequence)
    books.keep()
    new = next(iter(world.others(old)))
    kept = {name: content(new, name) for name in new.disk.list(DIRECTORY)}
    for sequence in range(6, 12):
        books.append(old, sequence)
    books.keep()
    books.trim(old, 12)
    for broker in world.others(old):
        put_back(broker, kept)
    books.of = {n: books.open(world[n]) for n in world.brokers}
    new = books.after(old)
    assert verdict(books, new, 12) is None


def test_a_snapshot_that_rots_is_not_believed(world: World) -> None:
    old = world.elected()
    books = Books(world)
    for sequence in range(8):
        books.append(old, sequence)
    books.keep()
    for broker in world.brokers.values():
        for name in broker.disk.list(DIRECTORY):
            broker.disk.flip(f"{DIRECTORY}/{name}", 30)
    new = books.after(old)
    assert isinstance(verdict(books, new, 7), Duplicate)
    assert verdict(books, new, 8) is None


def content(broker: Broker, name: str) -> bytes:
    file = broker.disk.open(f"{DIRECTORY}/{name}")
    return file.read_at(0, file.size())


def put_back(broker: Broker, kept: dict[str, bytes]) -> None:
    """As after a crash that lost the newer ones."""
    for name in broker.disk.list(DIRECTORY):
        broker.disk.unlink(f"{DIRECTORY}/{name}")
    uid = broker.replica.log.uid
    for name, data in kept.items():
        own = f"{uid}-{name.partition('-')[2]}"
        broker.disk.open(f"{DIRECTORY}/{own}", create=True).write_at(0, [data])


def test_a_leader_without_a_file_to_spare_reads_again_and_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = world.elected()
    books = Books(world)
    books.append(old, 0)
    real = producer_loading.Load.next_step

    def refused(load: producer_loading.Load) -> Any:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(producer_loading.Load, "next_step", refused)
    new = books.after(old)
    assert verdict(books, new, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    monkeypatch.setattr(producer_loading.Load, "next_step", real)
    books.of[new.number].moved()
    assert isinstance(verdict(books, new, 0), Duplicate)


@pytest.mark.parametrize(
    ("code", "is_believed"), [(errno.EMFILE, True), (errno.EIO, False), (errno.ENOENT, False)]
)
def test_a_snapshot_is_given_up_only_if_its_bytes_are_gone(
    world: World, monkeypatch: pytest.MonkeyPatch, code: int, is_believed: bool
) -> None:
    """Of what retention took from the log nothing else tells."""
    old = world.elected()
    books = Books(world)
    for sequence in range(12):
        books.append(old, sequence)
    books.keep()
    books.trim(old, 12)

    def refused(files: ProducerFiles, uid: int, offset: int) -> bytes:
        raise OSError(code, "not now")

    with monkeypatch.context() as patch:
        patch.setattr(ProducerFiles, "read", refused)
        new = books.after(old)
        unknown = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_believed else None
        assert verdict(books, new, 11) == unknown
    books.of[new.number].moved()
    if is_believed:
        assert isinstance(verdict(books, new, 11), Duplicate)


@pytest.mark.parametrize("code", [None, errno.EMFILE])
def test_a_follower_keeps_what_it_could_not_read_for_its_next_look(
    world: World, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    old = world.elected()
    books = Books(world)
    for sequence in range(12):
        books.append(old, sequence)
    books.keep()
    for sequence in range(12):
        books.append(old, sequence, producer_id=8)

    def refused(files: ProducerFiles, uid: int, offset: int) -> bytes:
        raise OSError(code, "not now")

    with monkeypatch.context() as patch:
        if code is not None:
            patch.setattr(ProducerFiles, "read", refused)
        books.trim(old, 20)
    world.pass_time(100)
    books.keep()
    world.pass_time(200)
    new = books.after(old)
    books.of[new.number].moved()
    assert isinstance(verdict(books, new, 11), Duplicate)


def test_batches_behind_those_that_came_while_the_log_was_read_are_refused_alike(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three that a client sends again after a failover the first is in the log. The third comes when
    the leader has read it: to hear that the second is missing would cost the client its epoch, and what
    it has in flight elsewhere would be written twice."""
    old = world.elected()
    books = Books(world)
    books.append(old, 0)
    hold(books)
    monkeypatch.setattr(producer_loading, "INLINE_BYTES", 0)
    new = books.after(old)
    for sequence in (0, 1):
        assert verdict(books, new, sequence) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        header = read_header(idempotent(sequence))
        books.of[new.number].refused(header, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    books.asides[new.number].is_held = False
    books.asides[new.number].go_on()
    assert verdict(books, new, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert isinstance(verdict(books, new, 0), Duplicate)
    books.append(new, 1)
    books.append(new, 2)
    assert verdict(books, new, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batches_behind_those_that_the_disk_did_not_take_are_refused_alike() -> None:
    world = World(1)
    leader = world.elected()
    books = Books(world)
    books.append(leader, 0)
    leader.disk.capacity = leader.disk.used_bytes()
    for sequence in (1, 2):
        books.begin(leader, sequence)
    world.settle()
    assert leader.replica.is_leader
    assert leader.replica.log_end_offset == 1
    assert verdict(books, leader, 3) == ErrorCode.KAFKA_STORAGE_ERROR
    leader.disk.capacity = None
    for sequence in (1, 2, 3):
        books.append(leader, sequence)
