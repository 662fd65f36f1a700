"""Records of the cluster machine: every fact survives its own bytes, anything else is refused."""

import contextlib
import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmq.machines.machine import Record
from dmq.machines.records import (
    BrokerGoneRecord,
    BrokerRecord,
    ClusterRecord,
    ConfigRecord,
    Endpoint,
    Fact,
    FeatureRange,
    FeatureRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RecordError,
    RegistrationsRecord,
    TopicRecord,
    decode,
    encode,
)
from dmq.types import Voter

uuids = st.uuids()
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ids = st.integers(0, 2**31 - 1)
endpoints = st.builds(Endpoint, texts, texts, st.integers(0, 65535), texts)
ranges = st.builds(FeatureRange, ids, ids)
facts: st.SearchStrategy[Fact] = st.one_of(
    st.builds(ClusterRecord, texts),
    st.builds(
        BrokerRecord,
        node=ids,
        directory=uuids,
        incarnation=uuids,
        epoch=st.integers(0, 2**63 - 1),
        rack=st.none() | texts,
        endpoints=st.lists(endpoints, max_size=3).map(tuple),
        features=st.dictionaries(texts, ranges, max_size=3),
        journal_seq=st.integers(0, 2**63 - 1),
        is_leaving=st.booleans(),
    ),
    st.builds(BrokerGoneRecord, ids),
    st.builds(TopicRecord, uuids, st.none() | texts),
    st.builds(
        PartitionRecord,
        uuids,
        ids,
        st.lists(ids, min_size=1, max_size=5).map(tuple),
        st.lists(st.builds(Voter, ids, uuids), max_size=5).map(tuple),
        st.lists(ids, max_size=5).map(tuple),
        st.lists(ids, max_size=5).map(tuple),
    ),
    st.builds(
        RegistrationsRecord, ids, ids, st.lists(st.builds(Voter, ids, uuids), max_size=3).map(tuple)
    ),
    st.builds(PartitionRecord, uuids, ids, st.none()),
    st.builds(ConfigRecord, st.sampled_from([2, 4, 16, 32]), texts, st.dictionaries(texts, texts)),
    st.builds(FeatureRecord, texts, ids, ids),
    st.builds(ProducerIdsRecord, st.integers(0, 2**63 - 1)),
)


@given(facts)
def test_round_trip(fact: Fact) -> None:
    assert decode(encode(fact)) == fact


@given(facts)
def test_records_are_text_with_a_version(fact: Fact) -> None:
    record = encode(fact)
    record.key.decode()
    if record.value is not None:
        assert json.loads(record.value)["v"] in (0, 1)


@given(facts, facts)
def test_two_facts_have_one_key_only_if_they_are_about_the_same_thing(one: Fact, two: Fact) -> None:
    about = {
        TopicRecord: lambda fact: ("topic", fact.topic_id),
        PartitionRecord: lambda fact: ("partition", fact.topic_id, fact.index),
        BrokerRecord: lambda fact: ("broker", fact.node),
        BrokerGoneRecord: lambda fact: ("broker", fact.node),
        ConfigRecord: lambda fact: ("config", fact.resource, fact.name),
        FeatureRecord: lambda fact: ("feature", fact.name),
        ClusterRecord: lambda fact: ("cluster",),
        RegistrationsRecord: lambda fact: ("registrations",),
        ProducerIdsRecord: lambda fact: ("producer-ids",),
    }
    same = about[type(one)](one) == about[type(two)](two)  # type: ignore[no-untyped-call]
    assert (encode(one).key == encode(two).key) == same


@pytest.mark.parametrize(
    "record",
    [
        Record(b"nothing/1", b"{}"),
        Record(b"topic/" + UUID(int=1).hex.encode(), b'{"v":1,"name":"x"}'),
        Record(b"topic/" + UUID(int=1).hex.encode(), b'{"name":"x"}'),
        Record(b"topic/" + UUID(int=1).hex.encode(), b"[]"),
        Record(b"topic/zz", b'{"v":0,"name":"x"}'),
        Record(b"topic/zz", None),
        Record(b"topic/" + UUID(int=1).hex.encode(), b"\xff"),
        Record(b"\xff", b"{}"),
        Record(b"topic/" + UUID(int=1).hex.encode(), b'{"v":false,"name":"x"}'),
        Record(b"partition/" + UUID(int=1).hex.encode() + b"/0", b'{"v":2,"replicas":[]}'),
        Record(b"partition/" + UUID(int=1).hex.encode() + b"/0", b'{"v":1,"replicas":[]}'),
        Record(
            b"partition/" + UUID(int=1).hex.encode() + b"/0",
            b'{"v":0,"replicas":[1],"directories":[]}',
        ),
        Record(
            b"partition/" + UUID(int=1).hex.encode() + b"/0",
            b'{"v":1,"replicas":[1],"founders":[[1,2]]}',
        ),
        Record(b"registrations", None),
        Record(b"cluster", None),
        Record(b"producer-ids", None),
        Record(b"feature/x", None),
    ],
)
def test_what_is_no_record_of_ours_is_refused(record: Record) -> None:
    with pytest.raises(RecordError):
        decode(record)


def test_records_of_version_0_are_read() -> None:
    """As single brokers wrote them."""
    directory, topic = UUID(int=7), UUID(int=1)
    placed = b'{"v":0,"replicas":[1],"directories":["%s"]}' % directory.hex.encode()
    assert decode(Record(b"partition/%s/3" % topic.hex.encode(), placed)) == PartitionRecord(
        topic, 3, (1,), (Voter(1, directory),)
    )
    broker = (
        b'{"v":0,"directory":"%s","incarnation":"%s","epoch":4,"rack":null,'
        b'"endpoints":[["PLAINTEXT","h",9092,"PLAINTEXT"]],"features":{"dmq.version":[1,1]},'
        b'"journal_seq":9}' % (directory.hex.encode(), topic.hex.encode())
    )
    assert decode(Record(b"broker/1", broker)) == BrokerRecord(
        node=1,
        directory=directory,
        incarnation=topic,
        epoch=4,
        rack=None,
        endpoints=(Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),),
        features={"dmq.version": FeatureRange(1, 1)},
        journal_seq=9,
    )


@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_any_bytes_give_a_fact_or_one_kind_of_error(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(RecordError):
        decode(Record(key, value))
