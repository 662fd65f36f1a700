"""Reads the journal after a stop and judges what is bad in it: torn, or rotten.

A turn is begun only when the one before is durable, so only the very last record can be torn. A
bad or missing record with a good one after it was promised, and is rot. Gives the good records'
items as events per log. Changes nothing on disk. Called by recovery and the log dump.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from dmq.storage import items, journal
from dmq.storage.files import File, Files, read_around
from dmq.storage.image import ORDER_BITS, Event, Told, event_of
from dmq.storage.items import BATCH_HEAD, BATCH_HEAD_SIZE, FRAME, Kind
from dmq.storage.journal import FLAG_CLOSE, FLAG_OPEN, JournalFile, Place


@dataclass(slots=True)
class Report:
    """What a start found."""

    is_new: bool = False
    """There was nothing."""
    is_clean: bool = False
    """The last life ended in order."""
    is_same_boot: bool = False
    """The page cache is that of the last life, and no sync failed in it."""
    logs: int = 0
    records: int = 0
    replayed_bytes: int = 0
    torn: str | None = None
    """A last write that was not finished, nor promised."""
    rotten: str | None = None
    """Promised records are missing: the directory has a new id, its logs come as learners."""
    damaged: list[int] = field(default_factory=list)
    recovering: list[int] = field(default_factory=list)
    lost_found: list[str] = field(default_factory=list)
    last_seq: int = 0
    open_seqs: list[int] = field(default_factory=list)
    """Records that only opened the store."""

    def __str__(self) -> str:
        """A sentence for people."""
        if self.is_new:
            return "a new data directory"
        how = "after a clean stop" if self.is_clean else "after a crash"
        parts = [f"{self.logs} logs {how}"]
        if self.replayed_bytes:
            parts.append(f"{self.replayed_bytes} bytes written from the journal")
        if self.torn:
            parts.append("an unfinished last write dropped")
        if self.rotten:
            parts.append(f"THE JOURNAL IS ROTTEN: {self.rotten}")
        for what, found in (
            ("damaged logs", self.damaged),
            ("logs that may have lost unsynced records", self.recovering),
            ("unknown files in lost+found", self.lost_found),
        ):
            if found:
                parts.append(f"{len(found)} {what}")
        return ", ".join(parts)


@dataclass(slots=True)
class Replay:
    """The journal as read."""

    report: Report = field(default_factory=Report)
    files: list[JournalFile] = field(default_factory=list)
    """That count, oldest first."""
    spares: list[str] = field(default_factory=list)
    next_number: int = 1
    last: Place | None = None
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """The first and the last missing seq of every gap."""
    logs: dict[int, Told] = field(default_factory=dict)
    dropped: dict[int, None] = field(default_factory=dict)
    broker: Event | None = None
    next_uid: int = 1


class Run:
    """Good records one after the other in one file."""

    __slots__ = ("file", "number", "places")

    def __init__(self, file: File, number: int, places: list[Place]) -> None:
        self.file, self.number, self.places = file, number, places

    @property
    def last(self) -> Place:
        return self.places[-1]


def read_journal(files: Files, salt: int) -> Replay:
    """All good records from the oldest file that counts on."""
    replay = Replay()
    names = files.list(journal.DIRECTORY)
    numbers = sorted(n for name in names if (n := journal.file_number(name)) is not None)
    replay.next_number = (numbers[-1] if numbers else 0) + 1
    runs: list[Run] = []
    suspects: list[Run] = []
    oldest = newest = 0
    for number in reversed(numbers):
        run = _open(files, number)
        run.places = [place for place, _ in journal.read_records(run.file, number, salt)]
        if run.places:
            replay.last = run.last
            oldest, newest = run.last.oldest, number
            break
        suspects.append(run)
    for number in [number for number in numbers if oldest <= number <= newest]:
        run = _open(files, number)
        _read(replay, run, salt, 0)
        (runs if run.places else suspects).append(run)
    _judge(replay, runs, suspects, oldest, salt)
    replay.files = [JournalFile(run.number, run.file, run.last.seq) for run in _by_file(runs)]
    used = {journal.file_name(file.number) for file in replay.files}
    every = [f"{journal.DIRECTORY}/{name}" for name in names]
    replay.spares = [name for name in every if name not in used]
    replay.report.is_new = replay.report.records == 0
    return replay


def _open(files: Files, number: int) -> Run:
    file = files.open(journal.file_name(number))
    file.forget_cache()
    return Run(file, number, [])


def _by_file(runs: list[Run]) -> list[Run]:
    """The last run of every file."""
    return [*{run.number: run for run in runs}.values()]


def _judge(replay: Replay, runs: list[Run], suspects: list[Run], oldest: int, salt: int) -> None:
    """Find gaps. If there are any, take in the good records behind them too."""
    report = replay.report
    found = [more for run in suspects for more in _salvage(run, salt)]
    for at, run in enumerate([*runs]):
        follower = runs[at + 1].places[0].seq if at + 1 < len(runs) else None
        if follower != run.last.seq + 1:
            # A CLOSE may be the last good record and yet not the end: the next life went on behind it.
            found += _salvage(run, salt)
    every = sorted([*runs, *found], key=lambda run: run.places[0].seq)
    if every and not _begins_with(every[0].places[0], oldest):
        replay.gaps.append((0, every[0].places[0].seq - 1))
        report.rotten = f"journal file {oldest} is missing or begins with a bad record"
    for before, after in pairwise(every):
        if after.places[0].seq != before.last.seq + 1:
            first, last = before.last.seq + 1, after.places[0].seq - 1
            replay.gaps.append((first, last))
            report.rotten = f"records {first} to {last}"
    if found:
        _read_again(replay, every, salt)
        runs[:] = every
    _look_behind(replay, runs, suspects, salt)
    report.is_clean = replay.last is not None and bool(replay.last.flags & FLAG_CLOSE)
    report.torn = _torn(replay, runs, salt)


def _look_behind(replay: Replay, runs: list[Run], suspects: list[Run], salt: int) -> None:
    """Where the newest record ends, or a newer file begins, must be bytes that say that no more came."""
    newest = runs[-1].number if runs else 0
    places = [(run, 0) for run in suspects if not run.places and run.number > newest]
    if replay.last is not None:
        places.append((runs[-1], replay.last.end))
    for run, position in places:
        if journal.is_hidden(run.file, run.number, salt, position):
            seq = 0 if replay.last is None else replay.last.seq
            replay.gaps.append((seq + 1, seq + 1))
            replay.report.rotten = f"what follows record {seq} can't be read from the disk"


def _begins_with(first: Place, oldest: int) -> bool:
    """Whether nothing can be missing before this record: it opens the oldest file that counts."""
    return first.number == oldest and first.position == journal.HEADER_SIZE


def _salvage(run: Run, salt: int) -> list[Run]:
    """Good records of this file behind a bad one."""
    found: list[Run] = []
    start = run.last.end if run.places else 0
    seq = run.last.seq if run.places else 0
    while (place := journal.find_record(run.file, run.number, salt, start, seq)) is not None:
        at = place.position - journal.HEADER_SIZE
        places = [p for p, _ in journal.read_records(run.file, run.number, salt, at)]
        found.append(Run(run.file, run.number, places))
        start, seq = places[-1].end, places[-1].seq
    return found


def _read_again(replay: Replay, runs: list[Run], salt: int) -> None:
    """Everything in order of seq, now that more was found."""
    report = replay.report
    replay.logs, replay.dropped, replay.broker = {}, {}, None
    report.records, report.open_seqs = 0, []
    for run in runs:
        start = run.places[0].position - journal.HEADER_SIZE
        run.places = []
        _read(replay, run, salt, start)
    replay.last = runs[-1].last


def _torn(replay: Replay, runs: list[Run], salt: int) -> str | None:
    """Whether the newest file goes on with the header of a record that is not all there."""
    last = replay.last
    if last is None or replay.report.is_clean:
        return None
    head = read_around(runs[-1].file, last.end, journal.HEADER_SIZE)
    header = journal.read_header(head, 0, last.number, salt)
    return None if header is None else f"record {header[0].seq} in file {last.number}"


# ---- what the records say


def _read(replay: Replay, run: Run, salt: int, start: int) -> None:
    """Take in the records of one file from `start` on."""
    report = replay.report
    for place, body in journal.read_records(run.file, run.number, salt, start):
        run.places.append(place)
        report.records += 1
        report.last_seq = place.seq
        if place.flags & (FLAG_OPEN | FLAG_CLOSE):
            report.open_seqs.append(place.seq)
        _take(replay, place, body)


def _take(replay: Replay, place: Place, body: memoryview) -> None:
    """Every item of a record; BATCHes, the many, without a function each."""
    order = place.seq << ORDER_BITS
    number, origin, end = place.number, place.position, place.length
    logs = replay.logs
    position = 0
    while position < end:
        kind, length = FRAME.unpack_from(body, position)
        position += FRAME.size
        if kind == Kind.BATCH:
            uid, segment, byte, end_offset, greatest = BATCH_HEAD.unpack_from(body, position)
            at = origin + position + BATCH_HEAD_SIZE
            size = length - BATCH_HEAD_SIZE
            told = logs.get(uid) or logs.setdefault(uid, Told())
            told.batches.append((order, segment, byte, size, number, at, end_offset, greatest))
        else:
            _take_item(replay, items.decode_item(body, kind, position, length), order, number)
        order += 1
        position += length


def _take_item(replay: Replay, item: items.Item, order: int, number: int) -> None:
    if isinstance(item, items.Open):
        event = event_of(item, order, number)
        if replay.broker is None or event.order >= replay.broker.order:
            replay.broker = event
        replay.next_uid = max(replay.next_uid, item.next_uid)
    elif isinstance(item, items.Drop):
        replay.dropped[item.uid] = None
        replay.next_uid = max(replay.next_uid, item.uid + 1)
    elif not isinstance(item, items.Close):
        replay.logs.setdefault(item.uid, Told()).events.append(event_of(item, order, number))
        if isinstance(item, items.State):
            replay.next_uid = max(replay.next_uid, item.uid + 1)
