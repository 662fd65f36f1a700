"""`dmq log dump`: what it shows of segments, indexes and the journal, and what it finds wrong."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dmq.cli.app import run
from dmq.cli.exits import Exit
from dmq.codecs import Codec
from dmq.records import HEADER_SIZE, Record, build_batch
from dmq.storage import items, meta
from dmq.storage.files import OsFiles
from dmq.storage.index import Index
from dmq.storage.journal import HEADER_SIZE as JOURNAL_HEADER_SIZE
from dmq.storage.journal import Body, Journal, salt_of
from dmq.types import Mark, Position, Voter

DIRECTORY_ID = UUID(int=7)
TIME_MS = 1_700_000_000_000


def records_from(offset: int, count: int) -> list[Record]:
    return [
        Record(offset + i, TIME_MS + offset + i, b"key", b"value \xff"[: 6 + i % 2], (("h", b"1"),))
        for i in range(count)
    ]


def write_segment(folder: Path, batches: list[bytearray], base: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def three_batches() -> list[bytearray]:
    return [
        build_batch(records_from(0, 2), leader_epoch=1),
        build_batch(records_from(2, 3), leader_epoch=1, codec=Codec.ZSTD),
        build_batch(
            records_from(5, 1), leader_epoch=2, producer_id=9, producer_epoch=0, base_sequence=0
        ),
    ]


def dump(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> tuple[int, list[Any]]:
    code = run(["log", "dump", str(path), "--json", *options])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def of_type(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if event["type"] == kind]


def test_a_segment_with_its_batches_and_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_segment(tmp_path, three_batches())
    code, events = dump(capsys, path, "--records")
    assert code == 0
    batches = of_type(events, "batch")
    assert [(b["base_offset"], b["last_offset"]) for b in batches] == [(0, 1), (2, 4), (5, 5)]
    assert [b["compression"] for b in batches] == ["none", "zstd", "none"]
    assert [b["leader_epoch"] for b in batches] == [1, 1, 2]
    assert [b["producer_id"] for b in batches] == [None, None, 9]
    assert all(b["crc_is_good"] for b in batches)
    first, second = batches[0]["records"]
    assert first == {
        "offset": 0,
        "timestamp": TIME_MS,
        "key": "key",
        "value": "value ",
        "headers": [{"key": "h", "value": "1"}],
    }
    assert "value_base64" in second
    [end] = of_type(events, "segment_end")
    assert (end["records"], end["batches"], end["problems"]) == (6, 3, 0)


def test_a_flipped_bit_is_found_and_the_rest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = three_batches()
    batches[1][HEADER_SIZE + 3] ^= 1
    path = write_segment(tmp_path, batches)
    code, events = dump(capsys, path, "--records")
    assert code == Exit.FAILURE
    assert [b["crc_is_good"] for b in of_type(events, "batch")] == [True, False, True]
    [found] = of_type(events, "problem")
    assert found["position"] == len(batches[0])
    assert "CRC" in found["problem"]


def test_a_torn_tail_is_a_problem_and_reserved_zeros_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = three_batches()
    path = write_segment(tmp_path, [*batches, batches[0][:30]])
    code, events = dump(capsys, path)
    assert code == Exit.FAILURE
    assert of_type(events, "problem")[0]["position"] == sum(map(len, batches))
    path.write_bytes(b"".join(batches) + bytes(5000))
    code, events = dump(capsys, path)
    assert code == 0
    assert of_type(events, "segment_end")[0]["unused_bytes"] == 5000


def test_offsets_that_go_back_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_segment(tmp_path, [three_batches()[1], three_batches()[0]])
    code, events = dump(capsys, path)
    assert code == Exit.FAILURE
    assert "not above 4" in of_type(events, "problem")[0]["problem"]


def write_indexes(path: Path, batches: list[bytearray]) -> None:
    index = Index()
    position = 0
    last = -1
    for number, batch in enumerate(batches):
        last = [1, 4, 5][number]
        index.note(position, len(batch), last, TIME_MS + last, interval_bytes=0)
        position += len(batch)
    path.with_suffix(".index").write_bytes(index.offset_bytes())
    path.with_suffix(".timeindex").write_bytes(index.time_bytes())


def test_indexes_are_held_against_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = three_batches()
    path = write_segment(tmp_path, batches)
    write_indexes(path, batches)
    code, events = dump(capsys, tmp_path)
    assert code == 0
    entries = of_type(events, "index_entry")
    assert {"offset": 4, "position": len(batches[0])}.items() <= entries[0].items()
    assert {"timestamp": TIME_MS + 5, "offset": 5}.items() <= entries[-1].items()

    raw = bytearray(path.with_suffix(".index").read_bytes())
    raw[7] ^= 1
    path.with_suffix(".index").write_bytes(raw)
    code, events = dump(capsys, path.with_suffix(".index"))
    assert code == Exit.FAILURE
    assert len(of_type(events, "problem")) >= 1


class DataDirectory:
    """A data directory with one journal file of two records."""

    def __init__(self, root: Path) -> None:
        self.root = root
        files = OsFiles(str(root))
        files.make_dir("journal")
        meta.save(files, meta.Meta(DIRECTORY_ID, "cluster", 1))
        self.journal = Journal(files, 1 << 20, 1 << 22, salt_of(DIRECTORY_ID))
        self.batch = three_batches()[0]

    def write(self) -> Path:
        voter = Voter(1, DIRECTORY_ID)
        first = Body()
        first.add(items.encode_open(items.Open(items.OWN_TIME, 1, UUID(int=1), DIRECTORY_ID, 2)))
        first.add(items.encode_hard(items.Hard(3, 5, voter)))
        first.add(items.encode_mark(items.MarkItem(3, Mark(5, 0, 0, (voter,), 0))))
        self.journal.write(first)
        second = Body()
        head = items.BATCH_ITEM.pack(
            items.Kind.BATCH, items.BATCH_HEAD_SIZE + len(self.batch), 3, 0, 0, 2, TIME_MS
        )
        second.add(head)
        second.add(self.batch)
        second.add(items.encode_cut(items.Cut(3, Position(5, 0, 1), 0, 10)))
        self.journal.write(second)
        return self.root / "journal" / "0000000001"


def test_a_journal_with_its_items_and_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = DataDirectory(tmp_path).write()
    code, events = dump(capsys, path, "--records")
    assert code == 0
    first, second = of_type(events, "journal_record")
    assert [item["item"] for item in first["items"]] == ["OPEN", "HARD", "MARK"]
    assert [item["item"] for item in second["items"]] == ["BATCH", "CUT"]
    assert (first["seq"], second["seq"]) == (1, 2)
    voter = {"node": 1, "directory": str(DIRECTORY_ID)}
    assert first["items"][1] == {"item": "HARD", "uid": 3, "epoch": 5, "vote": voter}
    assert first["items"][2]["mark"]["voters"] == [voter]
    assert second["items"][1]["position"] == {"epoch": 5, "change": 0, "offset": 1}
    [batch] = of_type(events, "batch")
    assert [record["offset"] for record in batch["records"]] == [0, 1]


def test_a_damaged_batch_in_the_journal_is_found_even_without_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = DataDirectory(tmp_path)
    directory.batch[HEADER_SIZE] ^= 1
    code, events = dump(capsys, directory.write())
    assert code == Exit.FAILURE
    assert "CRC" in of_type(events, "problem")[0]["problem"]


def test_a_damaged_journal_record_before_a_good_one_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = DataDirectory(tmp_path).write()
    raw = bytearray(path.read_bytes())
    raw[JOURNAL_HEADER_SIZE + 2] ^= 1
    path.write_bytes(raw)
    code, events = dump(capsys, path)
    assert code == Exit.FAILURE
    assert "seq 2" in of_type(events, "problem")[0]["problem"]


def test_a_torn_last_journal_record_is_the_end_and_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = DataDirectory(tmp_path).write()
    _, events = dump(capsys, path)
    last = of_type(events, "journal_record")[1]
    raw = bytearray(path.read_bytes())
    raw[last["position"] + last["bytes"] - 1] ^= 1
    path.write_bytes(raw)
    code, events = dump(capsys, path)
    assert code == 0
    assert len(of_type(events, "journal_record")) == 1


def test_a_data_directory_is_all_of_its_files_and_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DataDirectory(tmp_path).write()
    write_segment(tmp_path / "logs" / "3", three_batches())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, events = dump(capsys, tmp_path, "--summary")
    assert code == 0
    kinds = [event["type"] for event in events]
    assert kinds == ["data_directory", "journal", "journal_end", "segment", "segment_end"]
    assert events[0]["cluster_id"] == "cluster"
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_the_text_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DataDirectory(tmp_path).write()
    write_segment(tmp_path / "logs" / "3", three_batches())
    assert run(["log", "dump", str(tmp_path), "--records"]) == 0
    text = capsys.readouterr().out
    assert "data directory" in text
    assert "HARD" in text
    assert "2..4  epoch 1  3 records" in text
    assert "key='key'  value='value '  headers: h='1'" in text
    assert "ok: 6 records in 3 batches, offsets 0 to 5" in text


def test_paths_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", str(tmp_path / "none")]) == Exit.NOT_FOUND
    assert run(["log", "dump", str(tmp_path)]) == Exit.USAGE
    stranger = tmp_path / "notes.txt"
    stranger.write_text("hello")
    assert run(["log", "dump", str(stranger)]) == Exit.USAGE
    assert "journal file" in capsys.readouterr().err
