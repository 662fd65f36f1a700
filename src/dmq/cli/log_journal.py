"""The events of a journal file for `dmq log dump`: records with their items, troubles.

Uses the readers of `storage.journal` and `storage.items`, so it sees what recovery would see. An
event is a dict as in `log_segments`. Called by `log_dump`; never writes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from dmq.cli.exits import CommandError
from dmq.cli.log_files import open_to_read
from dmq.cli.log_segments import Event, batch_events, problem
from dmq.errors import CorruptError
from dmq.records import scan
from dmq.storage import items, meta
from dmq.storage.files import Buffer
from dmq.storage.journal import (
    FLAG_CLOSE,
    FLAG_OPEN,
    Place,
    file_number,
    find_record,
    read_records,
    salt_of,
)

_FLAGS = {FLAG_OPEN: "open", FLAG_CLOSE: "close"}


def is_journal_file(path: Path) -> bool:
    """Its name is that of a journal file in use."""
    return path.parent.name == "journal" and file_number(path.name) is not None


def read_meta(data_directory: Path) -> meta.Meta:
    """Who the data directory is. Raises CommandError if that can't be known."""
    path = data_directory / meta.NAME
    if not path.exists():
        raise CommandError(
            f"{path} is not there, and without it no journal can be read",
            hint="Give the path of a file inside a data directory of dmq.",
        )
    try:
        return meta.decode(path.read_bytes())
    except CorruptError as error:
        raise CommandError(f"{path}: {error}") from error


def journal_events(path: Path, *, records: bool) -> Iterator[Event]:
    """A journal file: its records up to the first that is none, and whether good ones follow."""
    number = file_number(path.name)
    assert number is not None
    salt = salt_of(read_meta(path.parent.parent).directory_id)
    file = open_to_read(path)
    totals = {"records": 0, "items": 0, "problems": 0}
    last: Place | None = None
    yield {"type": "journal", "path": str(path), "number": number, "bytes": file.size()}
    try:
        for place, body in read_records(file, number, salt):
            last = place
            totals["records"] += 1
            for event in _record_events(path, place, body, records=records):
                totals["problems"] += event["type"] == "problem"
                totals["items"] += len(event.get("items", ()))
                yield event
    except CorruptError as error:
        totals["problems"] += 1
        yield problem(path, None if last is None else last.end, str(error))
    end = 0 if last is None else last.end
    beyond = find_record(file, number, salt, end, -1 if last is None else last.seq)
    if beyond is not None:
        totals["problems"] += 1
        lost = (
            f"a record is damaged: the good one with seq {beyond.seq} follows at {beyond.position}"
        )
        yield problem(path, end, lost)
    yield {
        "type": "journal_end",
        "path": str(path),
        **totals,
        "last_seq": None if last is None else last.seq,
        "unused_bytes": file.size() - end,
    }


def _record_events(path: Path, place: Place, body: memoryview, *, records: bool) -> Iterator[Event]:
    event: Event = {
        "type": "journal_record",
        "path": str(path),
        "position": place.position,
        "bytes": place.length,
        "seq": place.seq,
        "durable_seq": place.durable_seq,
        "oldest_needed_file": place.oldest,
        "flags": [word for flag, word in _FLAGS.items() if place.flags & flag],
        "items": [],
    }
    batches: list[Event] = []
    trouble = None
    try:
        for item in items.decode(body, 0, len(body)):
            event["items"].append(item_facts(item))
            if isinstance(item, items.Batch):
                batches += _batches(path, place, body, item, records=records)
    except CorruptError as error:
        trouble = str(error)
    yield event
    yield from batches
    if trouble is not None:
        yield problem(path, place.position, trouble)


def _batches(
    path: Path, place: Place, body: Buffer, item: items.Batch, *, records: bool
) -> Iterator[Event]:
    """The record bytes in an item; shown only if asked for, but always verified."""
    data = memoryview(body)[item.position : item.position + item.length]
    end = 0
    for position, header in scan(data):
        end = position + header.size
        at = place.position + item.position + position
        for event in batch_events(path, at, data[position:end], header, None, records=records):
            if records or event["type"] == "problem":
                yield event
    if end != item.length:
        yield problem(path, place.position + item.position + end, "bytes that are no batch")


def item_facts(item: items.Item) -> Event:
    """An item as plain values, its kind first."""
    kind = "MARK" if isinstance(item, items.MarkItem) else type(item).__name__.upper()
    return {"item": kind, **{name: _plain(value) for name, value in item._asdict().items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if hasattr(value, "_asdict"):
        return {name: _plain(inner) for name, inner in value._asdict().items()}
    if isinstance(value, tuple | list) or (
        hasattr(value, "__iter__") and not isinstance(value, str)
    ):
        return [_plain(inner) for inner in value]
    return value
