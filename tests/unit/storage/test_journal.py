"""The journal's format, its recycling, and torn told from rotten."""

from uuid import UUID

import pytest
from fakes.batches import (
    VOTERS,
    batch,
    fill,
    make_disk,
    make_log,
    offsets,
    open_store,
    run_jobs,
    turn,
)
from fakes.disk import Crash, FakeDisk, FakeFile

from dmq.errors import CorruptError, StorageError
from dmq.records import scan
from dmq.storage import journal, meta
from dmq.storage.items import Damage
from dmq.storage.journal import HEADER_SIZE, Body, Journal, Place
from dmq.storage.log import Log, LogSettings
from dmq.storage.store import Store
from dmq.storage.turn import Turn
from dmq.types import Mark, Position, Voter

SALT = journal.salt_of(UUID(int=5))
FILE_BYTES = 1000


def make_journal(disk: FakeDisk) -> Journal:
    disk.make_dir(journal.DIRECTORY)
    return Journal(disk, FILE_BYTES, 8 * FILE_BYTES, SALT)


def write(made: Journal, *parts: bytes) -> None:
    body = Body()
    for part in parts:
        body.add(part)
    made.write(body)
    made.became_durable(made.seq)


def read(disk: FakeDisk, number: int) -> list[tuple[Place, bytes]]:
    file = disk.open(journal.file_name(number))
    return [(place, bytes(body)) for place, body in journal.read_records(file, number, SALT)]


def test_records_come_back_as_they_went() -> None:
    disk = make_disk()
    made = make_journal(disk)
    write(made, b"small")
    write(made, b"a", b"L" * 300, b"b", b"")
    write(made)
    found = read(disk, 1)
    assert [body for _, body in found] == [b"small", b"a" + b"L" * 300 + b"b", b""]
    assert [(place.seq, place.durable_seq, place.oldest) for place, _ in found] == [
        (1, 0, 1),
        (2, 1, 1),
        (3, 2, 1),
    ]


def test_the_header_has_44_bytes() -> None:
    assert HEADER_SIZE == 44


def test_a_full_file_is_followed_by_the_next() -> None:
    disk = make_disk()
    made = make_journal(disk)
    for _ in range(5):
        write(made, b"x" * 400)
    assert [len(read(disk, number)) for number in (1, 2, 3)] == [2, 2, 1]


def test_a_record_larger_than_a_file_has_one_of_its_own_size() -> None:
    disk = make_disk()
    made = make_journal(disk)
    write(made, b"x" * 10)
    write(made, b"y" * 5000)
    write(made, b"z" * 10)
    assert [len(body) for _, body in read(disk, 2)] == [5000]
    assert [len(body) for _, body in read(disk, 3)] == [10]


def test_a_file_is_reused_one_durable_record_after_it_was_let_go() -> None:
    disk = make_disk()
    made = make_journal(disk)
    write(made, b"x" * 900)
    made.noted_state(0, made.seq, made.files[-1])
    write(made, b"y" * 900)
    made.release()
    assert len(made.files) == 2, "file 1 has the only state"
    made.noted_state(0, made.seq, made.files[-1])
    made.release()
    assert [file.number for file in made.files] == [2]
    assert made.spares == []
    write(made, b"z" * 10)
    assert made.spares == [journal.file_name(1)]
    write(made, b"w" * 900)
    assert made.spares == []
    assert not disk.exists(journal.file_name(1))


def test_old_bytes_in_a_reused_file_never_pass() -> None:
    disk = make_disk()
    made = make_journal(disk)
    for _ in range(4):
        write(made, b"x" * 100)
    made.spares.append(journal.file_name(1))
    made.files = []
    made.roll()
    write(made, b"x" * 100)
    assert disk.open(journal.file_name(2)).size() == FILE_BYTES
    assert [place.seq for place, _ in read(disk, 2)] == [5]


def test_records_of_another_directory_do_not_pass() -> None:
    disk = make_disk()
    write(make_journal(disk), b"x")
    file = disk.open(journal.file_name(1))
    assert [*journal.read_records(file, 1, journal.salt_of(UUID(int=6)))] == []


@pytest.mark.parametrize("position", range(0, HEADER_SIZE + 20, 3))
def test_any_flipped_bit_is_seen(position: int) -> None:
    disk = make_disk()
    write(make_journal(disk), b"x" * 20)
    disk.flip(journal.file_name(1), position)
    assert read(disk, 1) == []


def test_a_newer_version_is_refused_not_torn() -> None:
    disk = make_disk()
    made = make_journal(disk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "VERSION", 9)
        write(made, b"x")
    with pytest.raises(CorruptError, match="newer"):
        read(disk, 1)


def test_pressure_counts_what_may_be_used() -> None:
    made = make_journal(make_disk())
    write(made, b"x" * (FILE_BYTES - HEADER_SIZE))
    assert made.pressure == pytest.approx(1 / 6)
    made.is_short = True
    assert made.pressure == 1


def test_a_spare_is_never_the_spare_of_a_former_life() -> None:
    disk = make_disk()
    store = open_store(disk)
    for _ in range(3):
        store.close(0)
        store = open_store(disk)
        store._journal.add_spare()
        spares = store._journal.spares
        assert len(spares) == len(set(spares))


# ---- torn and rotten, in a whole store


def lived(turns: int) -> tuple[FakeDisk, Store]:
    """A store with one log and some votes, not closed."""
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    for epoch in range(1, turns + 1):
        log.set_hard(epoch, Voter(epoch, UUID(int=1)))
        turn(store)
    return disk, store


def places(disk: FakeDisk, store: Store) -> list[Place]:
    salt = journal.salt_of(store.directory_id)
    file = disk.open(journal.file_name(1))
    return [place for place, _ in journal.read_records(file, 1, salt)]


def test_a_bad_last_record_is_torn_and_dropped() -> None:
    disk, store = lived(5)
    last = places(disk, store)[-1]
    disk.flip(journal.file_name(1), last.position + last.length - 1)
    disk.kill()
    again = open_store(disk)
    assert again.recovery.torn == f"record {last.seq} in file 1"
    assert again.recovery.rotten is None
    (log,) = again.logs.values()
    assert log.epoch == 4


@pytest.mark.parametrize("victim", [0, 1, 4])
def test_a_bad_record_with_a_good_one_behind_it_is_rotten(victim: int) -> None:
    disk, store = lived(5)
    found = places(disk, store)[victim]
    disk.flip(journal.file_name(1), found.position)
    disk.kill()
    with pytest.raises(CorruptError, match="lost what it promised"):
        open_store(disk)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_bad_first_record_after_a_clean_stop_is_rotten(is_closed: bool) -> None:
    """The CLOSE before it is the last good record in a row, and not the end."""
    disk, store = lived(5)
    store.close(0)
    disk.kill()
    again = open_store(disk)
    assert again.recovery.is_clean
    (log,) = again.logs.values()
    log.set_hard(6, None)
    turn(again)
    last = [place for place in places(disk, again) if place.flags & journal.FLAG_CLOSE][-1]
    if is_closed:
        again.close(0)
    disk.flip(journal.file_name(1), last.end)
    disk.kill()
    with pytest.raises(CorruptError, match=f"records {last.seq + 1} to {last.seq + 1}"):
        open_store(disk)
    third = Store.open(disk, store._settings, now=0, accept_rotten=True)
    assert third.directory_id != store.directory_id
    assert third.recovery.is_clean is is_closed
    assert third.recovery.torn is None
    (log,) = third.logs.values()
    assert log.is_forgotten


def test_a_covered_last_record_is_rotten() -> None:
    disk, store = lived(5)
    last = places(disk, store)[-1]
    deadline = store.idle_deadline()
    assert deadline == 50
    turn(store, deadline)
    assert places(disk, store)[-1].length == 0
    disk.flip(journal.file_name(1), last.position)
    disk.kill()
    with pytest.raises(CorruptError, match=f"records {last.seq} to {last.seq}"):
        open_store(disk)


def test_one_empty_record_covers_and_then_there_is_silence() -> None:
    _, store = lived(2)
    assert store.begin_turn(49) is None
    store.maintain(49)
    assert not store.has_work()
    store.maintain(50)
    assert store.has_work()
    turn(store, 50)
    assert not store.has_work()
    assert store.idle_deadline() is None
    assert store.begin_turn(10_000) is None


def test_a_missing_file_is_rotten() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    for epoch in range(1, 120):
        log.set_hard(epoch, None)
        turn(store)
    numbers = [file.number for file in store._journal.files]
    assert len(numbers) > 1
    disk.unlink(journal.file_name(numbers[0]))
    disk.kill()
    with pytest.raises(CorruptError, match="is missing"):
        open_store(disk)


@pytest.mark.parametrize("keeps_folder", [True, False])
def test_a_journal_that_is_gone_is_rotten(keeps_folder: bool) -> None:
    """All that is left is who this was: what it promised is forgotten, and its bytes name nobody."""
    disk = make_disk()
    store = open_store(disk)
    store.identify("cluster", 3)
    log = make_log(store)
    fill(store, log, 3)
    old_id = store.directory_id
    disk.kill()
    for name in disk.list(journal.DIRECTORY):
        disk.unlink(f"{journal.DIRECTORY}/{name}")
    if not keeps_folder:
        disk.remove_dir(journal.DIRECTORY)
    for _ in range(2):  # Refusing it changes nothing: it is refused again.
        with pytest.raises(CorruptError, match=f"not one record .* --accept-rotten {old_id}"):
            open_store(disk)
    again = Store.open(disk, store._settings, now=0, accept_rotten=True)
    assert again.directory_id != old_id
    assert (again.cluster_id, again.node_id) == ("cluster", 3)
    assert not again.logs
    assert again.recovery.lost_found == [f"lost+found/{log.uid}"], "its bytes are kept"
    disk.kill()
    assert open_store(disk).directory_id == again.directory_id


def test_a_start_that_was_cut_off_before_it_had_a_number_is_made_again() -> None:
    """Nothing was promised yet: the first record of a journal comes before the number."""
    disk = make_disk()
    made = meta.Meta(disk.new_id())
    meta.save(disk, made)
    store = open_store(disk)
    assert store.directory_id == made.directory_id
    assert store.recovery.is_new


@pytest.mark.parametrize("at", [0, journal.HEADER_SIZE])
def test_a_bad_first_record_of_the_oldest_file_is_rotten(at: int) -> None:
    """In the header or in the body; good records follow it in the same file and in the next one."""
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    for epoch in range(1, 120):
        log.set_hard(epoch, None)
        turn(store)
    numbers = [file.number for file in store._journal.files]
    assert len(numbers) > 1
    disk.flip(journal.file_name(numbers[0]), at)
    disk.kill()
    with pytest.raises(CorruptError, match="begins with a bad record"):
        open_store(disk)


def test_who_may_have_forgotten_comes_back_under_a_new_name() -> None:
    disk, store = lived(5)
    old_id = store.directory_id
    found = places(disk, store)[3]
    disk.flip(journal.file_name(1), found.position)
    disk.kill()
    again = Store.open(disk, store._settings, now=0, accept_rotten=True)
    assert again.recovery.rotten is not None
    assert again.directory_id != old_id
    (log,) = again.logs.values()
    assert log.is_forgotten
    assert again.recovery.lost_found == ["lost+found/journal-0000000001"]
    disk.power_cut()
    third = open_store(disk)
    assert third.recovery.rotten is None
    assert third.directory_id == again.directory_id
    assert len(third.logs) == 1


def test_a_rotten_journal_keeps_old_bytes() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 6)
    salt = journal.salt_of(store.directory_id)
    file = disk.open(journal.file_name(1))
    found = [place for place, _ in journal.read_records(file, 1, salt)]
    disk.flip(journal.file_name(1), found[4].position)
    disk.kill()
    again = Store.open(disk, store._settings, now=0, accept_rotten=True)
    (log,) = again.logs.values()
    assert offsets(log) == [0, 1, 2, 3, 4, 5], "they were in the page cache all the time"


def flushed_life(is_async: bool) -> tuple[FakeDisk, Store, list[tuple[int, Place]]]:
    """Segments that come and go, notes of every kind, a journal that was recycled; its records."""
    disk = make_disk()
    store = open_store(disk)
    settings = LogSettings(segment_bytes=300, is_async=is_async, flush_ms=10)
    log = make_log(store, settings)
    for now in range(0, 1200, 4):
        jobs = store.maintain(now)
        for job in jobs:
            job.run()
        fill(store, log, 1, now=now)  # A flush speaks of the time before this one.
        log.set_hard(now, None)
        turn(store, now)
        for job in jobs:
            store.done(job)
    salt = journal.salt_of(store.directory_id)
    records = []
    for file in store._journal.files:
        for place, _ in journal.read_records(file.file, file.number, salt):
            records.append((file.number, place))
    disk.kill()
    return disk, store, records


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_rotten_journal_leaves_no_hole(is_async: bool, width: int) -> None:
    """Whichever records are missing: what follows them is no part of the log without them."""
    _, _, records = flushed_life(is_async)
    assert records[0][0] > 1, "the first record that counts is not the first of all"
    for first in range(len(records) - width):
        disk, store, records = flushed_life(is_async)
        for number, place in records[first : first + width]:
            disk.flip(journal.file_name(number), place.position - HEADER_SIZE)
        again = Store.open(disk, store._settings, now=0, accept_rotten=True)
        assert again.recovery.rotten is not None
        for log in again.logs.values():
            assert not log.damage
            assert offsets(log) == [*range(log.end_offset)], records[first]


def flip_record(disk: FakeDisk, store: Store, seq: int) -> None:
    salt = journal.salt_of(store.directory_id)
    for file in store._journal.files:
        for place, _ in journal.read_records(file.file, file.number, salt):
            if place.seq == seq:
                disk.flip(journal.file_name(file.number), place.position)


def epochs(log: Log) -> list[tuple[int, int]]:
    """(offset, epoch) of all batches."""
    slices = log.read(log.log_start, 1 << 30, log.end_offset)
    headers = [header for part in slices for _, header in scan(part.pread())]
    return [(header.base_offset, header.leader_epoch) for header in headers]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("lost", ["cut", "mark", "both"])
@pytest.mark.parametrize("commit", [0, 2])
def test_a_lost_cut_leaves_no_records_under_the_wrong_epoch(
    is_async: bool, lost: str, commit: int
) -> None:
    """A FLUSHED that follows knows nothing of marks, and flushed bytes were written anew."""
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store, LogSettings(segment_bytes=300, is_async=is_async, flush_ms=100))
    for epoch in (1, 2):
        log.add_mark(Mark(epoch, 0, log.end_offset, VOTERS, 0))
        fill(store, log, 6)
    log.commit = Position(1, 0, commit)
    store.request_flush(log)
    run_jobs(store)
    before = store.seq
    log.cut(Position(1, 0, 4))
    if lost != "both":
        turn(store)
    log.add_mark(Mark(3, 0, 4, VOTERS, 0))
    turn(store)
    fill(store, log, 12)
    run_jobs(store, 200)
    log.add_mark(Mark(4, 0, log.end_offset, VOTERS, 0))
    turn(store)
    flip_record(disk, store, before + (2 if lost == "mark" else 1))
    disk.kill()
    again = Store.open(disk, store._settings, now=0, accept_rotten=True)
    assert again.recovery.rotten is not None
    (found,) = again.logs.values()
    assert not found.is_damaged
    assert epochs(found) == [(offset, 1) for offset in range(4)]
    assert found.end == Position(1, 0, 4)


def test_a_state_that_speaks_of_a_time_within_a_gap_is_not_the_newest_word() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 2)
    before = store.seq
    log.set_hard(1, None)
    turn(store)
    store.request_flush(log)
    (job,) = store.maintain(0)
    log.set_hard(2, None)
    log.add_mark(Mark(2, 0, 2, VOTERS, 0))
    turn(store)
    job.run()
    store.done(job)
    fill(store, log, 2)
    for seq in (before + 2, before + 1):
        flip_record(disk, store, seq)
    disk.kill()
    again = Store.open(disk, store._settings, now=0, accept_rotten=True)
    (found,) = again.logs.values()
    assert found.end == Position(0, 0, 2), "what follows belongs to a mark that is lost"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("commit", [0, 6])
def test_files_that_a_rotten_journal_knows_nothing_of_are_put_aside(
    is_async: bool, commit: int
) -> None:
    """It lost a trim: the files where it would read on are gone, what is left is behind a hole."""
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store, LogSettings(segment_bytes=300, is_async=is_async, flush_ms=100))
    log.add_mark(Mark(1, 0, 0, VOTERS, 0))
    fill(store, log, 8)
    log.commit = Position(1, 0, commit)
    store.request_flush(log)
    run_jobs(store)
    before = store.seq
    log.set_hard(1, None)
    turn(store)
    fill(store, log, 10)
    run_jobs(store, 200)
    log.trim(14, Position(1, 0, 16))
    turn(store)
    run_jobs(store, 400)
    left = {name for name in disk.list(log.directory) if name.endswith(".log")}
    flip_record(disk, store, before + 1)
    disk.kill()
    again = Store.open(disk, store._settings, now=0, accept_rotten=True)
    (found,) = again.logs.values()
    still = set(disk.list(found.directory)) | {
        name.partition("-")[2] for name in disk.list("lost+found")
    }
    assert left <= still


@pytest.mark.parametrize("kind", ["grown", "left over", "merged", "bad"])
def test_a_file_that_is_longer_than_a_rotten_journal_knows(kind: str) -> None:
    """It lost the swap of a compacted file; or a write that failed left bytes behind."""
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store, LogSettings(segment_bytes=300))
    log.add_mark(Mark(1, 0, 0, VOTERS, 0))
    fill(store, log, 12)
    log.commit = Position(1, 0, 12)
    store.request_flush(log)
    run_jobs(store)
    first, second = (segment.base for segment in log.segments_list[:2])
    name = f"{log.directory}/{first:020d}.log"
    whole = disk.open(name).read_at(0, 10_000)
    made = {
        "grown": bytes(batch(first, count=second - first, epoch=1, size=200)),
        "left over": whole + b"left over",
        "merged": bytes(batch(first, count=second - first + 1, epoch=1, size=200)),
        "bad": b"\x00" * (len(whole) + 2),
    }[kind]
    file = disk.open(name)
    file.cut(0)
    file.write_at(0, [made])
    before = store.seq
    for epoch in (2, 3):
        log.set_hard(epoch, None)
        turn(store)
    flip_record(disk, store, before + 1)
    disk.kill()
    again = Store.open(disk, store._settings, now=0, accept_rotten=True)
    assert again.recovery.rotten is not None
    (found,) = again.logs.values()
    if kind in ("merged", "bad"):
        assert found.damage == (Damage(first, 0, len(whole)),)
        aside = disk.open(f"lost+found/{found.uid}-{first:020d}.log")
        assert aside.read_at(0, 10_000) == made, "somebody may want to look at it"
        return
    assert not found.damage
    left = [0, *range(second, 12)] if kind == "grown" else [*range(12)]
    assert offsets(found) == left
    assert disk.open(name).size() == len(made if kind == "grown" else whole)


def lose_all_but(disk: FakeDisk, *kept: str) -> None:
    """A loss of power that takes all that it can, but the bytes of these files."""
    for name in kept:
        disk.open(name).inode.sync()
    for entry in reversed(disk.pending):
        entry.undo()
    disk.pending.clear()
    for inode in disk.inodes():
        inode.now, inode.ops = bytearray(inode.synced), []
    disk.kill()


def test_a_turn_that_did_not_happen_does_not_come_back_with_the_number_of_its_file() -> None:
    """It was the first in its file. Power was lost when its bytes were on disk and the file's name was
    not; and once more when the file had that name again and the next life's first record was not there.
    """
    disk, store = lived(3)
    (log,) = store.logs.values()
    store._journal.position = store._journal._file_bytes
    store._journal.add_spare()
    disk.sync_dir(journal.DIRECTORY)
    log.set_hard(99, None)
    assert store.begin_turn(0) is not None
    number = store._journal.files[-1].number
    lose_all_but(disk, journal.file_name(number))
    assert not disk.exists(journal.file_name(number))

    def crash(begun: Turn) -> None:
        disk.sync_dir(journal.DIRECTORY)
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Turn, "sync", crash)
        with pytest.raises(Crash):
            open_store(disk)
    lose_all_but(disk)
    again = open_store(disk)
    assert [log.epoch for log in again.logs.values()] == [3]


@pytest.mark.parametrize("turns", range(20, 60))
def test_a_name_that_was_not_synced_does_not_take_later_records_along(turns: int) -> None:
    """The last sync of an orderly end failed, perhaps just when a file had got its next name."""
    disk = make_disk(turns)
    store = open_store(disk)
    log = make_log(store)
    for epoch in range(1, turns):
        fill(store, log, 1, size=150)
        log.set_hard(epoch, None)
        turn(store)
        run_jobs(store)
    store.request_flush(log)
    run_jobs(store)
    failing = FakeFile.sync

    def fail_in_journal(file: FakeFile) -> None:
        disk.is_sync_failing = file.name.startswith(journal.DIRECTORY)
        failing(file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeFile, "sync", fail_in_journal)
        with pytest.raises(StorageError):
            store.close(0)
    disk.is_sync_failing = False
    disk.kill()
    again = open_store(disk)
    (log,) = again.logs.values()
    log.set_hard(1000, None)
    turn(again)
    disk.power_cut()
    (log,) = open_store(disk).logs.values()
    assert log.epoch == 1000
