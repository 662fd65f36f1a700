"""The events of `dmq log dump` as text for people: one line each, records indented below."""

from typing import Any

from dmq.cli.log_segments import Event
from dmq.cli.moments import iso
from dmq.cli.output import count_of, human_size
from dmq.cli.record_text import printable

VALUE_CHARACTERS_MAX = 120
"""A longer key or value is cut; --json has all of it."""


def lines_of(event: Event) -> list[str]:
    """What a person sees of an event."""
    return _LINES[event["type"]](event)


def _data_directory(event: Event) -> list[str]:
    return [
        f"data directory {event['path']} (format {event['version']})",
        f"  cluster {event['cluster_id']}, node {event['node_id']}, id {event['directory_id']}",
    ]


def _segment(event: Event) -> list[str]:
    return ["", f"segment {event['path']} ({human_size(event['bytes'])})"]


def _segment_end(event: Event) -> list[str]:
    span = (
        f", offsets {event['first_offset']} to {event['last_offset']}" if event["batches"] else ""
    )
    return [_end(event, f"{count_of(event['records'], 'record')} in {_batches(event)}{span}")]


def _batches(event: Event) -> str:
    return f"{event['batches']:,} " + ("batch" if event["batches"] == 1 else "batches")


def _journal(event: Event) -> list[str]:
    return ["", f"journal {event['path']} (number {event['number']}, {human_size(event['bytes'])})"]


def _journal_end(event: Event) -> list[str]:
    counts = f"{count_of(event['records'], 'record')}, {count_of(event['items'], 'item')}"
    seq = f", last seq {event['last_seq']}" if event["records"] else ""
    return [_end(event, counts + seq)]


def _end(event: Event, text: str) -> str:
    return f"  {_verdict(event)}: {text}, {human_size(event['unused_bytes'])} unused"


def _verdict(event: Event) -> str:
    return "ok" if not event["problems"] else count_of(event["problems"], "problem").upper()


def _batch(event: Event) -> list[str]:
    words = [
        f"  @{event['position']:<10} {event['base_offset']}..{event['last_offset']}",
        f"epoch {event['leader_epoch']}",
        count_of(event["record_count"], "record"),
        human_size(event["bytes"]),
        event["compression"],
        _time(event["max_timestamp"]),
    ]
    if event["producer_id"] is not None:
        words.append(
            f"producer {event['producer_id']}/{event['producer_epoch']} seq {event['base_sequence']}"
        )
    words += ["transactional"] * event["is_transactional"] + ["control"] * event["is_control"]
    words.append("crc ok" if event["crc_is_good"] else "CRC WRONG")
    return ["  ".join(words), *(_record(record) for record in event.get("records", ()))]


def _record(record: dict[str, Any]) -> str:
    line = f"      {record['offset']}  {_time(record['timestamp'])}"
    line += f"  key={_value(record, 'key')}  value={_value(record, 'value')}"
    headers = ", ".join(f"{h['key']}={_value(h, 'value')}" for h in record["headers"])
    return line + (f"  headers: {headers}" if headers else "")


def _value(source: dict[str, Any], name: str) -> str:
    encoded = source.get(f"{name}_base64")
    if encoded is not None:
        return f"base64:{_cut(encoded)}"
    text = source[name]
    return "null" if text is None else repr(_cut(printable(text.encode()).decode()))


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[:VALUE_CHARACTERS_MAX] + "…"


def _journal_record(event: Event) -> list[str]:
    flags = "".join(f"  {flag}" for flag in event["flags"])
    line = f"  @{event['position']:<10} seq {event['seq']}  durable {event['durable_seq']}"
    line += f"  needs files from {event['oldest_needed_file']}  {human_size(event['bytes'])}{flags}"
    return [line, *(_item(item) for item in event["items"])]


def _item(item: dict[str, Any]) -> str:
    facts = "  ".join(f"{name}={_fact(value)}" for name, value in item.items() if name != "item")
    return f"      {item['item']:<8}{facts}"


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + " ".join(f"{name}={_fact(inner)}" for name, inner in value.items()) + ")"
    if isinstance(value, list):
        return "[" + ", ".join(_fact(inner) for inner in value) + "]"
    return str(value)


def _index(event: Event) -> list[str]:
    return ["", f"index {event['path']} ({human_size(event['bytes'])})"]


def _index_end(event: Event) -> list[str]:
    entries = "1 entry" if event["entries"] == 1 else f"{event['entries']:,} entries"
    return [f"  {_verdict(event)}: {entries}"]


def _index_entry(event: Event) -> list[str]:
    if "timestamp" in event:
        return [f"  {iso(event['timestamp'])}  up to offset {event['offset']}"]
    return [f"  offset {event['offset']}  at byte {event['position']}"]


def _problem(event: Event) -> list[str]:
    where = "" if event["position"] is None else f" at byte {event['position']}"
    return [f"  PROBLEM{where}: {event['problem']}"]


_LINES = {
    "data_directory": _data_directory,
    "segment": _segment,
    "segment_end": _segment_end,
    "journal": _journal,
    "journal_end": _journal_end,
    "journal_record": _journal_record,
    "batch": _batch,
    "index": _index,
    "index_end": _index_end,
    "index_entry": _index_entry,
    "problem": _problem,
}


def _time(timestamp: int) -> str:
    return iso(timestamp) if timestamp >= 0 else "no time"
