"""Reads the journal after a stop and judges what is bad in it: torn, or rotten.

A turn is begun only when the one before is durable, so only the very last record can be torn. A
bad or missing record with a good one after it was promised, and is rot. Gives the good records'
items as events per log. Changes nothing on disk. Called by recovery and the log dump.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from dmq.storage import items, journal
from dmq.storage.files import File, Files
from dmq.storage.image import Event, event_of
from dmq.storage.journal import FLAG_CLOSE, FLAG_OPEN, JournalFile, Place

Record = tuple[Place, list[items.Item]]


@dataclass(slots=True)
class Report:
    """What a start found."""

    is_new: bool = False
    """There was nothing."""
    is_clean: bool = False
    """The last life ended in order."""
    is_same_boot: bool = False
    """The page cache is that of the last life."""
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


@dataclass(slots=True)
class Replay:
    """The journal as read."""

    report: Report = field(default_factory=Report)
    files: list[JournalFile] = field(default_factory=list)
    """That count, oldest first."""
    spares: list[str] = field(default_factory=list)
    next_number: int = 1
    last: Place | None = None
    gaps: list[int] = field(default_factory=list)
    """The first missing seq of every gap."""
    events: dict[int, list[Event]] = field(default_factory=dict)
    dropped: dict[int, None] = field(default_factory=dict)
    broker: Event | None = None
    next_uid: int = 1


def read_journal(files: Files, salt: int) -> Replay:
    """All good records from the oldest file that counts on."""
    replay = Replay()
    names = files.list(journal.DIRECTORY)
    numbers = sorted(n for name in names if (n := journal.file_number(name)) is not None)
    replay.next_number = (numbers[-1] if numbers else 0) + 1
    found: list[tuple[JournalFile, list[Record]]] = []
    suspects: list[tuple[File, int]] = []
    oldest = 0
    for number in reversed(numbers):
        if number < oldest:
            break
        file = files.open(journal.file_name(number))
        file.forget_cache()
        records = _read_file(file, number, salt)
        if not records:
            suspects.append((file, number))
            continue
        if not found:
            replay.last = records[-1][0]
            oldest = replay.last.oldest
        found.append((JournalFile(number, file, records[-1][0].seq), records))
    found.reverse()
    replay.files = [file for file, _ in found]
    _judge(replay, found, suspects, oldest, salt)
    used = {journal.file_name(file.number) for file in replay.files}
    every = [f"{journal.DIRECTORY}/{name}" for name in names]
    replay.spares = [name for name in every if name not in used]
    _collect(replay, [record for _, records in found for record in records])
    return replay


def _read_file(file: File, number: int, salt: int, start: int = 0) -> list[Record]:
    records = []
    for place, body in journal.read_records(file, number, salt, start):
        records.append((place, [*items.decode(body, 0, place.length, place.position)]))
    return records


def _judge(
    replay: Replay,
    found: list[tuple[JournalFile, list[Record]]],
    suspects: list[tuple[File, int]],
    oldest: int,
    salt: int,
) -> None:
    """Find gaps; take in the good records behind them."""
    report = replay.report
    last = replay.last
    report.is_clean = last is not None and bool(last.flags & FLAG_CLOSE)
    for file, number in suspects:
        _salvage(found, file, number, salt, 0)
    for used, records in [*found]:
        is_newest = used.number == found[-1][0].number
        end = records[-1][0]
        follower = next((r[0][0].seq for f, r in found if f.number > used.number), None)
        is_gap = follower is not None and follower != end.seq + 1
        if is_gap or (is_newest and not report.is_clean):
            _salvage(found, used.file, used.number, salt, end.end)
    every = sorted((record[0].seq, record[0].number) for _, records in found for record in records)
    if every and every[0][1] != oldest:
        replay.gaps.append(0)
        report.rotten = f"journal file {oldest} is missing or begins with a bad record"
    for (before, _), (after, _) in pairwise(every):
        if after != before + 1:
            replay.gaps.append(before + 1)
            report.rotten = f"records {before + 1} to {after - 1} of {every[-1][0]}"
    replay.files = sorted({f.number: f for f, _ in found}.values(), key=lambda f: f.number)
    report.torn = _torn(replay, salt)


def _salvage(
    found: list[tuple[JournalFile, list[Record]]], file: File, number: int, salt: int, start: int
) -> None:
    """Good records of this file behind a bad one."""
    seq = 0
    while (place := journal.find_record(file, number, salt, start, seq)) is not None:
        records = _read_file(file, number, salt, place.position - journal.HEADER_SIZE)
        found.append((JournalFile(number, file, records[-1][0].seq), records))
        found.sort(key=lambda pair: pair[1][0][0].seq)
        start, seq = records[-1][0].end, records[-1][0].seq


def _torn(replay: Replay, salt: int) -> str | None:
    """Whether the newest file goes on with the header of a record that is not all there."""
    last = replay.last
    if last is None or replay.report.is_clean:
        return None
    file = replay.files[-1].file
    head = file.read_at(last.end, journal.HEADER_SIZE)
    header = journal.read_header(head, 0, last.number, salt)
    return None if header is None else f"record {header[0].seq} in file {last.number}"


def _collect(replay: Replay, records: Iterable[Record]) -> None:
    report = replay.report
    for place, found in records:
        report.records += 1
        report.last_seq = place.seq
        if place.flags & (FLAG_OPEN | FLAG_CLOSE):
            report.open_seqs.append(place.seq)
        for item in found:
            _collect_item(replay, item, place.seq, place.number)
    report.is_new = report.records == 0


def _collect_item(replay: Replay, item: items.Item, seq: int, number: int) -> None:
    if isinstance(item, items.Batch):
        if item.uid not in replay.dropped:
            replay.events.setdefault(item.uid, []).append(Event(seq, False, item, number))
    elif isinstance(item, items.Open):
        event = event_of(item, seq, number)
        if replay.broker is None or event.time >= replay.broker.time:
            replay.broker = event
        replay.next_uid = max(replay.next_uid, item.next_uid)
    elif isinstance(item, items.Drop):
        replay.events.pop(item.uid, None)
        replay.dropped[item.uid] = None
        replay.next_uid = max(replay.next_uid, item.uid + 1)
    elif not isinstance(item, items.Close) and item.uid not in replay.dropped:
        replay.events.setdefault(item.uid, []).append(event_of(item, seq, number))
        if isinstance(item, items.State):
            replay.next_uid = max(replay.next_uid, item.uid + 1)
