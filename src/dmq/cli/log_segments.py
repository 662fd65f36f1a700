"""The events of a segment for `dmq log dump`: batches with their records, index entries, troubles.

An event is a dict of plain values with a "type": one line of `--json`, and what `log_show` turns
into text. Verifies every CRC and every index entry. Reads Kafka's own segments too: the bytes are
the same. Called by `log_dump`; never writes.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dmq.cli.log_files import open_to_read
from dmq.cli.moments import iso
from dmq.cli.record_json import headers_json, put_bytes
from dmq.codecs import Codec
from dmq.records import (
    HEADER_SIZE,
    KNOWN_ATTRIBUTES,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchError,
    BatchHeader,
    Bytes,
    check_crc,
    iterate,
    read_header,
)
from dmq.storage.files import File

Event = dict[str, Any]

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")
_BATCH_BYTES_MAX = 1 << 30


def problem(path: Path, position: int | None, what: str) -> Event:
    """Something that should not be."""
    return {"type": "problem", "path": str(path), "position": position, "problem": what}


def segment_events(path: Path, *, records: bool) -> Iterator[Event]:
    """A .log file: its batches from front to back, up to bytes that are none."""
    file = open_to_read(path)
    size = file.size()
    totals = {"batches": 0, "records": 0, "problems": 0}
    first = last = None
    position = 0
    yield {"type": "segment", "path": str(path), "base_offset": base_offset(path), "bytes": size}
    while (batch := _batch_at(file, position, size)) is not None:
        header, data = batch
        for event in batch_events(path, position, data, header, last, records=records):
            totals["problems"] += event["type"] == "problem"
            yield event
        totals["batches"] += 1
        totals["records"] += max(header.record_count, 0)
        first = header.base_offset if first is None else first
        last = header.last_offset
        position += header.size
    if not _is_zero(file, position, size):
        totals["problems"] += 1
        yield problem(path, position, f"the last {size - position:,} bytes are no batch")
    yield {
        "type": "segment_end",
        "path": str(path),
        **totals,
        "first_offset": first,
        "last_offset": last,
        "unused_bytes": size - position,
    }


def _batch_at(file: File, position: int, end: int) -> tuple[BatchHeader, bytes] | None:
    head = file.read_at(position, HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        return None
    header = read_header(head)
    if header.magic != MAGIC or not header.length >= HEADER_SIZE - LENGTH_OVERHEAD:
        return None
    if header.size > _BATCH_BYTES_MAX or position + header.size > end:
        return None
    data = file.read_at(position, header.size)
    return (header, data) if len(data) == header.size else None


def batch_events(
    path: Path,
    position: int,
    data: Bytes,
    header: BatchHeader,
    offset_before: int | None,
    *,
    records: bool,
) -> Iterator[Event]:
    """One batch whose bytes begin at the start of `data`; `position` is for messages."""
    event: Event = {"type": "batch", "path": str(path), "position": position}
    event |= batch_facts(data, header)
    troubles = list(_troubles(data, header, event["crc_is_good"], offset_before))
    if records and event["crc_is_good"]:
        try:
            event["records"] = [_record(record) for record in iterate(data, 0, header)]
        except BatchError as error:
            troubles.append(f"its records can't be read: {error}")
    yield event
    yield from (problem(path, position, trouble) for trouble in troubles)


def batch_facts(data: Bytes, header: BatchHeader) -> Event:
    """What a batch's header says, and whether its bytes are as they were sent."""
    known = {codec.value: codec.name.lower() for codec in Codec}
    return {
        "bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "leader_epoch": header.leader_epoch,
        "compression": known.get(header.codec, f"unknown ({header.codec})"),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "log_append" if header.has_log_append_time else "create",
        "producer_id": header.producer_id if header.producer_id >= 0 else None,
        "producer_epoch": header.producer_epoch if header.producer_id >= 0 else None,
        "base_sequence": header.base_sequence if header.base_sequence >= 0 else None,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "crc": f"{header.crc:08x}",
        "crc_is_good": check_crc(data, 0, header),
    }


def _troubles(
    data: Bytes, header: BatchHeader, crc_is_good: bool, before: int | None
) -> Iterator[str]:
    if not crc_is_good:
        yield "the CRC is wrong: these bytes are not what was written"
    if before is not None and header.base_offset <= before:
        yield f"offset {header.base_offset} is not above {before} before it"
    if header.last_offset_delta < 0:
        yield f"a last offset delta of {header.last_offset_delta}"
    if header.attributes & ~KNOWN_ATTRIBUTES:
        yield f"unknown attributes {header.attributes:#06x}"


def _record(record: Any) -> Event:
    event: Event = {"offset": record.offset, "timestamp": record.timestamp}
    put_bytes(event, "key", record.key, base64_only=False)
    put_bytes(event, "value", record.value, base64_only=False)
    event["headers"] = headers_json(record.headers, base64_only=False)
    return event


def index_events(path: Path) -> Iterator[Event]:
    """A .index or .timeindex file, each entry held against the .log beside it."""
    is_time = path.suffix == ".timeindex"
    entry = _TIME_ENTRY if is_time else _OFFSET_ENTRY
    raw = open_to_read(path).read_at(0, path.stat().st_size)
    base = base_offset(path) or 0
    places = _places(path.with_suffix(".log"))
    totals = {"entries": 0, "problems": 0}
    yield {"type": "index", "path": str(path), "bytes": len(raw)}
    before: tuple[int, int] | None = None
    for at in range(0, len(raw) - entry.size + 1, entry.size):
        pair = entry.unpack_from(raw, at)
        if not any(raw[at : at + entry.size]) and not any(raw[at:]):
            break  # Zeros up to a size that was reserved.
        events = list(_entry_events(path, at, pair, base, places, is_time=is_time))
        if before is not None and pair <= before:
            events.append(problem(path, at, "the entries do not rise"))
        before = pair
        totals["entries"] += 1
        totals["problems"] += sum(event["type"] == "problem" for event in events)
        yield from events
    yield {"type": "index_end", "path": str(path), **totals}


def _entry_events(
    path: Path,
    at: int,
    pair: tuple[int, int],
    base: int,
    places: dict[int, BatchHeader] | None,
    *,
    is_time: bool,
) -> Iterator[Event]:
    if is_time:
        timestamp, relative = pair
        entry: Event = {"timestamp": timestamp, "offset": base + relative}
    else:
        relative, position = pair
        entry = {"offset": base + relative, "position": position}
    yield {"type": "index_entry", "path": str(path), "at": at, **entry}
    if places is None:
        return
    if is_time:
        found = _covering(places, base + relative)
        if found is None or found.max_timestamp != entry["timestamp"]:
            yield problem(path, at, f"no batch at offset {base + relative} has {iso(pair[0])}")
        return
    batch = places.get(entry["position"])
    if batch is None or batch.last_offset != base + relative:
        yield problem(path, at, f"no batch at byte {pair[1]} ends with offset {base + relative}")


def _covering(places: dict[int, BatchHeader], offset: int) -> BatchHeader | None:
    for header in places.values():
        if header.base_offset <= offset <= header.last_offset:
            return header
    return None


def _places(path: Path) -> dict[int, BatchHeader] | None:
    """The batches of a segment by position; None if there is no such segment."""
    if not path.exists():
        return None
    file = open_to_read(path)
    size = file.size()
    places: dict[int, BatchHeader] = {}
    position = 0
    while (batch := _batch_at(file, position, size)) is not None:
        places[position] = batch[0]
        position += batch[0].size
    return places


def base_offset(path: Path) -> int | None:
    """The offset that a segment's file is named after."""
    return int(path.stem) if path.stem.isdecimal() else None


def _is_zero(file: File, position: int, end: int) -> bool:
    """Nothing but zeros follows: space that was reserved and not used."""
    while position < end:
        piece = file.read_at(position, min(1 << 20, end - position))
        if not piece:
            return True
        if any(piece):
            return False
        position += len(piece)
    return True
