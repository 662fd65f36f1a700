"""Deliveries of share groups (KIP-932), as kept in `__share_group_state` (types 0 and 1)."""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class ShareSnapshotKey:
    group_id: str = f("string")
    topic_id: UUID = f("uuid")
    partition: int = f("int32")


@message
class StateBatch:
    first_offset: int = f("int64")
    last_offset: int = f("int64")
    delivery_state: int = f("int8")
    delivery_count: int = f("int16")


@message
class ShareSnapshotValue:
    snapshot_epoch: int = f("int32")
    state_epoch: int = f("int32")
    leader_epoch: int = f("int32")
    start_offset: int = f("int64")
    delivery_complete_count: int = f("int32", tag=0, default=-1)
    create_timestamp: int = f("int64")
    write_timestamp: int = f("int64")
    state_batches: list[StateBatch] = f([StateBatch])


@message
class ShareUpdateKey:
    group_id: str = f("string")
    topic_id: UUID = f("uuid")
    partition: int = f("int32")


@message
class ShareUpdateValue:
    snapshot_epoch: int = f("int32")
    leader_epoch: int = f("int32")
    start_offset: int = f("int64")
    delivery_complete_count: int = f("int32", tag=0, default=-1)
    state_batches: list[StateBatch] = f([StateBatch])
