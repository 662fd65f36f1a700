"""Records of coordinators, against bytes that Kafka 4.3's own classes wrote for the same values."""

from random import Random
from typing import Any
from uuid import UUID

import pytest
from unit.wire import samples

from dmq.errors import ProtocolError
from dmq.wire.messages.stored_consumer_group import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
    TopicPartitions,
)
from dmq.wire.messages.stored_group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from dmq.wire.messages.stored_offset_commit import OffsetCommitKey, OffsetCommitValue
from dmq.wire.messages.stored_share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    StateBatch,
)
from dmq.wire.messages.stored_transaction import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from dmq.wire.stored import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, StoredTopic

TOPIC_ID = UUID(int=(1 << 64) + 2)


def group(version: int) -> GroupMetadataValue:
    member = MemberMetadata(
        member_id="m1",
        group_instance_id="i1" if version >= 3 else None,
        client_id="c",
        client_host="/h",
        rebalance_timeout=60 if version >= 1 else -1,
        session_timeout=45,
        subscription=b"\1\2",
        assignment=b"\3",
    )
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader=None,
        current_state_timestamp=9 if version >= 2 else -1,
        members=[member],
    )


def offset(version: int) -> OffsetCommitValue:
    value = OffsetCommitValue(offset=42, metadata="m", commit_timestamp=1000)
    if version == 1:
        value.expire_timestamp = 2000
    if version >= 3:
        value.leader_epoch = 7
    if version >= 4:
        value.topic_id = TOPIC_ID
    return value


def transaction(version: int) -> TransactionLogValue:
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=2,
        transaction_timeout_ms=60000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 4])],
        transaction_last_update_timestamp_ms=111,
        transaction_start_timestamp_ms=100,
    )
    if version == 1:
        value.previous_producer_id = 6
        value.next_producer_epoch = 3
        value.client_transaction_version = 2
    return value


def member(classic: ClassicMemberMetadata | None) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id="r",
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t1", "t2"],
        subscribed_topic_regex=None,
        rebalance_timeout_ms=300,
        server_assignor="uniform",
        classic_member_metadata=classic,
    )


CLASSIC = ClassicMemberMetadata(
    session_timeout_ms=45, supported_protocols=[ClassicProtocol(name="range", metadata=b"\x09")]
)
MEMBER_HEX = "00000002720263032f6803037431037432000000012c08756e69666f726d"
GROUP_HEX = "0008636f6e73756d657200000005000572616e6765ffff"
ID_HEX = "00000000000000010000000000000002"

KEYS: list[tuple[StoredTopic, Any, str]] = [
    (CONSUMER_OFFSETS, OffsetCommitKey("g", "t", 3), "000100016700017400000003"),
    (CONSUMER_OFFSETS, GroupMetadataKey("g"), "0002000167"),
    (CONSUMER_OFFSETS, ConsumerGroupMemberMetadataKey("g", "m"), "000500016700016d"),
    (TRANSACTION_STATE, TransactionLogKey("tx"), "000000027478"),
    (SHARE_GROUP_STATE, ShareSnapshotKey("g", TOPIC_ID, 1), f"0000000167{ID_HEX}00000001"),
    (SHARE_GROUP_STATE, ShareUpdateKey("g", TOPIC_ID, 1), f"0001000167{ID_HEX}00000001"),
]
VALUES: list[tuple[StoredTopic, Any, int, str]] = [
    (CONSUMER_OFFSETS, offset(0), 0, "0000000000000000002a00016d00000000000003e8"),
    (CONSUMER_OFFSETS, offset(1), 1, "0001000000000000002a00016d00000000000003e800000000000007d0"),
    (CONSUMER_OFFSETS, offset(2), 2, "0002000000000000002a00016d00000000000003e8"),
    (CONSUMER_OFFSETS, offset(3), 3, "0003000000000000002a0000000700016d00000000000003e8"),
    (
        CONSUMER_OFFSETS,
        offset(4),
        4,
        f"0004000000000000002a00000007026d00000000000003e8010010{ID_HEX}",
    ),
    (
        CONSUMER_OFFSETS,
        group(0),
        0,
        f"0000{GROUP_HEX}0000000100026d3100016300022f680000002d0000000201020000000103",
    ),
    (
        CONSUMER_OFFSETS,
        group(1),
        1,
        f"0001{GROUP_HEX}0000000100026d3100016300022f680000003c0000002d0000000201020000000103",
    ),
    (
        CONSUMER_OFFSETS,
        group(2),
        2,
        f"0002{GROUP_HEX}00000000000000090000000100026d3100016300022f68"
        "0000003c0000002d0000000201020000000103",
    ),
    (
        CONSUMER_OFFSETS,
        group(3),
        3,
        f"0003{GROUP_HEX}00000000000000090000000100026d310002693100016300022f68"
        "0000003c0000002d0000000201020000000103",
    ),
    (
        CONSUMER_OFFSETS,
        group(4),
        4,
        "000409636f6e73756d6572000000050672616e676500000000000000000902036d310369310263032f68"
        "0000003c0000002d03010202030000",
    ),
    (CONSUMER_OFFSETS, member(ClassicMemberMetadata()), 0, f"{MEMBER_HEX}00"),
    (
        CONSUMER_OFFSETS,
        member(CLASSIC),
        0,
        f"{MEMBER_HEX}010010010000002d020672616e676502090000",
    ),
    (CONSUMER_OFFSETS, member(None), 0, f"{MEMBER_HEX}01000100"),
    (CONSUMER_OFFSETS, ConsumerGroupMetadataValue(epoch=10), 0, "00000000000a00"),
    (
        CONSUMER_OFFSETS,
        ConsumerGroupMetadataValue(epoch=10, metadata_hash=77),
        0,
        "00000000000a010008000000000000004d",
    ),
    (
        CONSUMER_OFFSETS,
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=3,
            previous_member_epoch=2,
            state=1,
            assigned_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])],
        ),
        0,
        f"000000000003000000020102{ID_HEX}030000000000000001000100",
    ),
    (
        CONSUMER_OFFSETS,
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[TopicPartition(topic_id=TOPIC_ID, partitions=[5])]
        ),
        0,
        f"000002{ID_HEX}02000000050000",
    ),
    (
        TRANSACTION_STATE,
        transaction(0),
        0,
        "0000000000000000000700020000ea6001000000010001740000000200000000000000040000"
        "00000000006f0000000000000064",
    ),
    (
        TRANSACTION_STATE,
        transaction(1),
        1,
        "0001000000000000000700020000ea600102027403000000000000000400000000000000006f"
        "000000000000006403000800000000000000060202000203020003",
    ),
    (
        SHARE_GROUP_STATE,
        ShareSnapshotValue(
            snapshot_epoch=1,
            state_epoch=2,
            leader_epoch=3,
            start_offset=4,
            state_batches=[StateBatch(5, 6, 0, 1)],
        ),
        0,
        "00000000000100000002000000030000000000000004000000000000000000000000000000000200000000"
        "0000000500000000000000060000010000",
    ),
]


@pytest.mark.parametrize(("topic", "key", "expected"), KEYS)
def test_keys_as_kafka_writes_them(topic: StoredTopic, key: Any, expected: str) -> None:
    raw = topic.encode_key(key)
    assert raw.hex() == expected
    assert topic.is_known(raw)
    assert topic.decode(raw, None) == (key, None)


@pytest.mark.parametrize(("topic", "value", "version", "expected"), VALUES)
def test_values_as_kafka_writes_them(
    topic: StoredTopic, value: Any, version: int, expected: str
) -> None:
    raw = topic.encode_value(value, version)
    assert raw.hex() == expected
    found = next(found for found in topic.types.values() if found.value_type is type(value))
    assert topic.decode(topic.encode_key(found.key_type()), raw) == (found.key_type(), value)


@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE])
def test_every_type_round_trips_and_refuses_damage(topic: StoredTopic) -> None:
    rng = Random(7)
    for found in topic.types.values():
        for version in range(found.versions.highest + 1):
            key = samples.random_message(found.key_type, 0, rng)
            value = samples.random_message(found.value_type, version, rng)
            raw_key, raw = topic.encode_key(key), topic.encode_value(value, version)
            assert topic.decode(raw_key, raw) == (key, value)
            for size in range(min(len(raw), 300)):
                with pytest.raises(ProtocolError):
                    topic.decode(raw_key, raw[:size])


def test_the_highest_version_is_written_unless_told_otherwise() -> None:
    assert CONSUMER_OFFSETS.encode_value(offset(4))[:2] == b"\0\4"


def test_unknown_types_and_versions() -> None:
    assert not CONSUMER_OFFSETS.is_known(b"\0\x11\0\1g")
    with pytest.raises(ProtocolError, match="unknown type 17"):
        CONSUMER_OFFSETS.decode(b"\0\x11\0\1g", None)
    with pytest.raises(ProtocolError, match="version 5"):
        CONSUMER_OFFSETS.decode(b"\0\2\0\1g", b"\0\5")
    with pytest.raises(ProtocolError, match="prefix"):
        CONSUMER_OFFSETS.decode(b"\0", None)
