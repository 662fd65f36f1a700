"""Facts as Kafka's records: what goes in comes out, in the versions that Kafka writes."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmq.broker.group_records import GroupCodec
from dmq.errors import ProtocolError
from dmq.machines.groups.facts import (
    ClassicGroupFact,
    ClassicGroupValue,
    ClassicMemberValue,
    ClassicSupport,
    CommittedOffset,
    ConsumerGroupFact,
    ConsumerGroupValue,
    ConsumerMemberFact,
    ConsumerMemberValue,
    CurrentAssignment,
    CurrentFact,
    Fact,
    OffsetFact,
    OffsetKey,
    RegexFact,
    ResolvedRegex,
    TargetEpochFact,
    TargetFact,
)
from dmq.machines.machine import Record
from dmq.types import NIL_UUID

TEXT = st.text(max_size=12)
NAME = st.text(min_size=1, max_size=12)
OPTIONAL = st.none() | NAME
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)
IDS = st.uuids().filter(lambda found: found != NIL_UUID)
SHARES = st.dictionaries(IDS, st.sets(INT32, min_size=1, max_size=4), max_size=3).map(
    lambda found: tuple(sorted((topic, tuple(sorted(some))) for topic, some in found.items()))
)
HELD = st.dictionaries(IDS, st.dictionaries(INT32, INT32, min_size=1, max_size=4), max_size=3).map(
    lambda found: tuple(
        sorted(
            (topic, tuple(sorted(some)), tuple(some[index] for index in sorted(some)))
            for topic, some in found.items()
        )
    )
)
MEMBERS = st.builds(
    ClassicMemberValue,
    NAME,
    OPTIONAL,
    TEXT,
    TEXT,
    INT32,
    INT32,
    st.binary(max_size=20),
    st.binary(max_size=20),
)
SUPPORT = st.builds(
    ClassicSupport, INT32, st.lists(st.tuples(NAME, st.binary(max_size=9)), max_size=3).map(tuple)
)
FACTS = st.one_of(
    st.builds(
        OffsetFact,
        st.builds(OffsetKey, TEXT, NAME, INT32),
        st.none()
        | st.builds(CommittedOffset, INT64, INT32, TEXT, INT64, st.none(), st.just(NIL_UUID) | IDS),
    ),
    st.builds(
        ClassicGroupFact,
        TEXT,
        st.none()
        | st.builds(
            ClassicGroupValue,
            OPTIONAL,
            INT32,
            OPTIONAL,
            OPTIONAL,
            INT64,
            st.lists(MEMBERS, max_size=3).map(tuple),
        ),
    ),
    st.builds(ConsumerGroupFact, TEXT, st.none() | st.builds(ConsumerGroupValue, INT32, INT64)),
    st.builds(
        ConsumerMemberFact,
        TEXT,
        NAME,
        st.none()
        | st.builds(
            ConsumerMemberValue,
            OPTIONAL,
            OPTIONAL,
            TEXT,
            TEXT,
            st.lists(NAME, max_size=3).map(tuple),
            OPTIONAL,
            INT32,
            OPTIONAL,
            st.none() | SUPPORT,
        ),
    ),
    st.builds(TargetEpochFact, TEXT, st.none() | st.tuples(INT32, INT64)),
    st.builds(TargetFact, TEXT, NAME, st.none() | SHARES),
    st.builds(
        CurrentFact,
        TEXT,
        NAME,
        st.none() | st.builds(CurrentAssignment, INT32, INT32, st.integers(0, 2), HELD, HELD),
    ),
    st.builds(
        RegexFact,
        TEXT,
        NAME,
        st.none() | st.builds(ResolvedRegex, st.lists(NAME).map(tuple), INT64, INT64),
    ),
)


@given(FACTS)
def test_a_fact_survives_its_bytes(fact: Fact) -> None:
    codec = GroupCodec()
    assert codec.decode(codec.encode(fact)) == fact


def test_the_bytes_of_an_offset_are_kafkas() -> None:
    key = OffsetKey("group", "topic", 3)
    value = CommittedOffset(42, 7, "note", 1000)
    record = GroupCodec().encode(OffsetFact(key, value))
    assert record.key == b"\0\1\0\5group\0\5topic\0\0\0\3"
    assert record.value == (b"\0\3\0\0\0\0\0\0\0\x2a\0\0\0\7\0\4note\0\0\0\0\0\0\3\xe8")


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (CommittedOffset(1), 3),
        (CommittedOffset(1, expire_ms=5), 1),
        (CommittedOffset(1, topic_id=UUID(int=9)), 4),
    ],
)
def test_an_offset_is_written_in_the_version_that_has_room_for_it(
    value: CommittedOffset, version: int
) -> None:
    record = GroupCodec().encode(OffsetFact(OffsetKey("g", "t", 0), value))
    assert record.value is not None
    assert record.value[:2] == version.to_bytes(2, "big")


def test_an_offset_that_says_when_it_expires_keeps_that() -> None:
    fact = OffsetFact(OffsetKey("g", "t", 0), CommittedOffset(1, -1, "", 3, 5))
    codec = GroupCodec()
    assert codec.decode(codec.encode(fact)) == fact


def test_records_of_other_kinds_of_groups_are_not_ours() -> None:
    assert GroupCodec().decode(Record(b"\0\x11streams", b"?")) is None
    share_group = b"\0\x0b\0\1g"
    assert GroupCodec().decode(Record(share_group, None)) is None


def test_bytes_that_are_no_record_are_refused() -> None:
    with pytest.raises(ProtocolError):
        GroupCodec().decode(Record(b"\0", None))
    with pytest.raises(ProtocolError):
        GroupCodec().decode(Record(b"\0\1\0\5gr", None))


def test_records_that_a_kafka_wrote_are_read_and_written_to_the_byte() -> None:
    """From `__consumer_offsets` of Kafka 4.3, after groups of both protocols came and went."""
    codec = GroupCodec()
    stored = json.loads(Path(__file__).with_name("kafka_records.json").read_text())
    kinds = set()
    for key, value in stored:
        record = Record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        fact = codec.decode(record)
        assert fact is not None
        assert codec.encode(fact) == record
        kinds.add(type(fact))
    assert len(kinds) == 8


def test_the_oldest_kind_of_offset_is_read() -> None:
    key = b"\0\0\0\1g\0\1t\0\0\0\2"
    value = b"\0\0\0\0\0\0\0\0\0\7\0\4note\0\0\0\0\0\0\0\5"
    fact = OffsetFact(OffsetKey("g", "t", 2), CommittedOffset(7, -1, "note", 5))
    assert GroupCodec().decode(Record(key, value)) == fact
    assert GroupCodec().decode(Record(key, None)) == OffsetFact(OffsetKey("g", "t", 2), None)
