"""Markers as bytes, judged by another implementation."""

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch

from dmq.broker.txn_markers import build_marker, read_marker
from dmq.machines.producers.entries import Marker
from dmq.records import CONTROL, TRANSACTIONAL, Record, build_batch, check_crc, read_header


@pytest.mark.parametrize("is_commit", [True, False])
def test_others_read_our_markers(is_commit: bool) -> None:
    batch = build_marker(77, 5, Marker(is_commit, 9), 1_000)
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert theirs.is_control_batch
    assert theirs.is_transactional
    assert theirs.producer_id == 77
    (record,) = list(theirs)
    expected = COMMIT_MARKER if is_commit else ABORT_MARKER
    assert ControlRecord.parse(record.key) == expected
    assert record.value == b"\x00\x00\x00\x00\x00\x09"


@pytest.mark.parametrize("marker", [Marker(True, 0), Marker(False, 2**31 - 1)])
def test_a_marker_is_read_back(marker: Marker) -> None:
    batch = build_marker(77, 5, marker, 1_000)
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 5, -1)
    assert header.attributes == CONTROL | TRANSACTIONAL
    assert read_marker(batch, 0, header) == marker


@pytest.mark.parametrize(("key", "value"), [
    (b"\x00\x00\x00\x02", b"\x00\x00\x00\x00\x00\x01"), (None, b""), (b"\x00", b""), (b"", None),
])  # fmt: skip
def test_other_control_records_end_nothing(key: bytes | None, value: bytes | None) -> None:
    batch = build_batch([Record(0, 1, key, value)], attributes=CONTROL)
    assert read_marker(batch, 0, read_header(batch)) is None


def test_newer_versions_may_be_longer() -> None:
    record = Record(0, 1, b"\x00\x01\x00\x01new", b"\x00\x01\x00\x00\x00\x07new")
    batch = build_batch([record], attributes=CONTROL | TRANSACTIONAL)
    assert read_marker(batch, 0, read_header(batch)) == Marker(True, 7)
