"""Facts of the group machine as records of `__consumer_offsets`, in Kafka's own schemas.

Stands between `machines.groups`, which knows what a record says, and `wire.stored`, which knows its
bytes. Values are written in the versions that Kafka 4 writes, so that its tools and its brokers read
them; versions from 0 on are read. Given to the machine by the broker that runs it.
"""

from collections.abc import Callable
from typing import Any

from dmq.machines.groups import facts
from dmq.machines.groups.facts import Fact, Held, Partitions
from dmq.machines.machine import Record
from dmq.types import NIL_UUID
from dmq.wire.messages import stored_consumer_group as consumer
from dmq.wire.messages import stored_group_metadata as classic
from dmq.wire.messages import stored_offset_commit as offsets
from dmq.wire.stored import CONSUMER_OFFSETS as TOPIC

GROUP_METADATA_VERSION = 3
OFFSET_VERSION = 3
OFFSET_VERSION_WITH_EXPIRY = 1
OFFSET_VERSION_WITH_TOPIC_ID = 4


class GroupCodec:
    """See the module."""

    __slots__ = ()

    def encode(self, fact: Fact) -> Record:
        """The record that says a fact."""
        return _ENCODERS[type(fact)](fact)

    def decode(self, record: Record) -> Fact | None:
        """What a record says; None if it is of share or streams groups.

        Raises ProtocolError for bytes that can't be read.
        """
        if not TOPIC.is_known(record.key):
            return None
        key, value = TOPIC.decode(record.key, record.value)
        decoder = _DECODERS.get(type(key))
        return None if decoder is None else decoder(key, value)


def _record(key: Any, value: Any | None, version: int | None = None) -> Record:
    encoded = None if value is None else TOPIC.encode_value(value, version)
    return Record(TOPIC.encode_key(key), encoded)


# --- offsets -----------------------------------------------------------------------------------


def _encode_offset(fact: facts.OffsetFact) -> Record:
    key = offsets.OffsetCommitKey(*fact.key)
    found = fact.value
    if found is None:
        return _record(key, None)
    value = offsets.OffsetCommitValue(
        offset=found.offset,
        leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        commit_timestamp=found.commit_ms,
        expire_timestamp=-1 if found.expire_ms is None else found.expire_ms,
        topic_id=found.topic_id,
    )
    if found.expire_ms is not None:
        return _record(key, value, OFFSET_VERSION_WITH_EXPIRY)
    has_id = found.topic_id != NIL_UUID
    return _record(key, value, OFFSET_VERSION_WITH_TOPIC_ID if has_id else OFFSET_VERSION)


def _decode_offset(key: Any, value: Any | None) -> Fact:
    found = None
    if value is not None:
        expires = value.expire_timestamp
        found = facts.CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            None if expires < 0 else expires,
            value.topic_id,
        )
    return facts.OffsetFact(facts.OffsetKey(key.group, key.topic, key.partition), found)


def _decode_legacy_offset(key: Any, value: Any | None) -> Fact:
    found = None
    if value is not None:
        found = facts.CommittedOffset(value.offset, -1, value.metadata, value.commit_timestamp)
    return facts.OffsetFact(facts.OffsetKey(key.group, key.topic, key.partition), found)


# --- classic groups ----------------------------------------------------------------------------


def _encode_classic(fact: facts.ClassicGroupFact) -> Record:
    key, found = classic.GroupMetadataKey(fact.group_id), fact.value
    if found is None:
        return _record(key, None)
    members = [
        classic.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.subscription,
            assignment=member.assignment,
        )
        for member in found.members
    ]
    value = classic.GroupMetadataValue(
        protocol_type=found.protocol_type or "",
        generation=found.generation,
        protocol=found.protocol,
        leader=found.leader,
        current_state_timestamp=found.state_since_ms,
        members=members,
    )
    return _record(key, value, GROUP_METADATA_VERSION)


def _decode_classic(key: Any, value: Any | None) -> Fact:
    if value is None:
        return facts.ClassicGroupFact(key.group, None)
    members = tuple(
        facts.ClassicMemberValue(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout if member.rebalance_timeout < 0 else member.rebalance_timeout,
            member.session_timeout,
            bytes(member.subscription),
            bytes(member.assignment),
        )
        for member in value.members
    )
    found = facts.ClassicGroupValue(
        value.protocol_type or None,
        value.generation,
        value.protocol,
        value.leader,
        value.current_state_timestamp,
        members,
    )
    return facts.ClassicGroupFact(key.group, found)


# --- consumer groups ---------------------------------------------------------------------------


def _encode_group(fact: facts.ConsumerGroupFact) -> Record:
    value = None
    if fact.value is not None:
        value = consumer.ConsumerGroupMetadataValue(fact.value.epoch, fact.value.metadata_hash)
    return _record(consumer.ConsumerGroupMetadataKey(fact.group_id), value)


def _decode_group(key: Any, value: Any | None) -> Fact:
    found = None
    if value is not None:
        found = facts.ConsumerGroupValue(value.epoch, value.metadata_hash)
    return facts.ConsumerGroupFact(key.group_id, found)


def _encode_member(fact: facts.ConsumerMemberFact) -> Record:
    key = consumer.ConsumerGroupMemberMetadataKey(fact.group_id, fact.member_id)
    found = fact.value
    if found is None:
        return _record(key, None)
    support = None
    if found.classic is not None:
        support = consumer.ClassicMemberMetadata(
            found.classic.session_timeout_ms,
            [consumer.ClassicProtocol(name, data) for name, data in found.classic.protocols],
        )
    value = consumer.ConsumerGroupMemberMetadataValue(
        instance_id=found.instance_id,
        rack_id=found.rack_id,
        client_id=found.client_id,
        client_host=found.client_host,
        subscribed_topic_names=list(found.topic_names),
        subscribed_topic_regex=found.topic_regex or "",
        rebalance_timeout_ms=found.rebalance_timeout_ms,
        server_assignor=found.server_assignor,
        classic_member_metadata=support,
    )
    return _record(key, value)


def _decode_member(key: Any, value: Any | None) -> Fact:
    if value is None:
        return facts.ConsumerMemberFact(key.group_id, key.member_id, None)
    stored, support = value.classic_member_metadata, None
    if stored is not None:
        protocols = tuple(
            (spoken.name, bytes(spoken.metadata)) for spoken in stored.supported_protocols
        )
        support = facts.ClassicSupport(stored.session_timeout_ms, protocols)
    found = facts.ConsumerMemberValue(
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        tuple(value.subscribed_topic_names),
        value.subscribed_topic_regex or None,
        value.rebalance_timeout_ms,
        value.server_assignor,
        support,
    )
    return facts.ConsumerMemberFact(key.group_id, key.member_id, found)


def _encode_target_epoch(fact: facts.TargetEpochFact) -> Record:
    key = consumer.ConsumerGroupTargetAssignmentMetadataKey(fact.group_id)
    if fact.value is None:
        return _record(key, None)
    return _record(key, consumer.ConsumerGroupTargetAssignmentMetadataValue(*fact.value))


def _decode_target_epoch(key: Any, value: Any | None) -> Fact:
    found = None if value is None else (value.assignment_epoch, value.assignment_timestamp)
    return facts.TargetEpochFact(key.group_id, found)


def _encode_target(fact: facts.TargetFact) -> Record:
    key = consumer.ConsumerGroupTargetAssignmentMemberKey(fact.group_id, fact.member_id)
    if fact.value is None:
        return _record(key, None)
    partitions = [consumer.TopicPartition(topic, list(found)) for topic, found in fact.value]
    return _record(key, consumer.ConsumerGroupTargetAssignmentMemberValue(partitions))


def _decode_target(key: Any, value: Any | None) -> Fact:
    found = None if value is None else _partitions(value.topic_partitions)
    return facts.TargetFact(key.group_id, key.member_id, found)


def _partitions(stored: list[Any]) -> Partitions:
    return tuple(sorted((found.topic_id, tuple(sorted(found.partitions))) for found in stored))


def _encode_current(fact: facts.CurrentFact) -> Record:
    key = consumer.ConsumerGroupCurrentMemberAssignmentKey(fact.group_id, fact.member_id)
    found = fact.value
    if found is None:
        return _record(key, None)
    value = consumer.ConsumerGroupCurrentMemberAssignmentValue(
        found.member_epoch,
        found.previous_member_epoch,
        found.state,
        _stored(found.assigned),
        _stored(found.pending_revocation),
    )
    return _record(key, value)


def _stored(held: Held) -> list[consumer.TopicPartitions]:
    return [
        consumer.TopicPartitions(topic, list(found), list(epochs)) for topic, found, epochs in held
    ]


def _held(stored: list[Any], member_epoch: int) -> Held:
    """Partitions with epochs; brokers before 4.3 recorded none, so the member's own stands in."""
    held = []
    for found in stored:
        epochs = found.assignment_epochs or [member_epoch] * len(found.partitions)
        pairs = sorted(zip(found.partitions, epochs, strict=True))
        held.append((found.topic_id, tuple(p for p, _ in pairs), tuple(e for _, e in pairs)))
    return tuple(sorted(held))


def _decode_current(key: Any, value: Any | None) -> Fact:
    found = None
    if value is not None:
        found = facts.CurrentAssignment(
            value.member_epoch,
            value.previous_member_epoch,
            value.state,
            _held(value.assigned_partitions, value.member_epoch),
            _held(value.partitions_pending_revocation, value.member_epoch),
        )
    return facts.CurrentFact(key.group_id, key.member_id, found)


def _encode_regex(fact: facts.RegexFact) -> Record:
    key = consumer.ConsumerGroupRegularExpressionKey(fact.group_id, fact.regex)
    found = fact.value
    if found is None:
        return _record(key, None)
    value = consumer.ConsumerGroupRegularExpressionValue(
        list(found.topics), found.version, found.resolved_ms
    )
    return _record(key, value)


def _decode_regex(key: Any, value: Any | None) -> Fact:
    found = None
    if value is not None:
        found = facts.ResolvedRegex(tuple(value.topics), value.version, value.timestamp)
    return facts.RegexFact(key.group_id, key.regular_expression, found)


_ENCODERS: dict[type, Callable[[Any], Record]] = {
    facts.OffsetFact: _encode_offset,
    facts.ClassicGroupFact: _encode_classic,
    facts.ConsumerGroupFact: _encode_group,
    facts.ConsumerMemberFact: _encode_member,
    facts.TargetEpochFact: _encode_target_epoch,
    facts.TargetFact: _encode_target,
    facts.CurrentFact: _encode_current,
    facts.RegexFact: _encode_regex,
}

_DECODERS: dict[type, Callable[[Any, Any], Fact]] = {
    offsets.LegacyOffsetCommitKey: _decode_legacy_offset,
    offsets.OffsetCommitKey: _decode_offset,
    classic.GroupMetadataKey: _decode_classic,
    consumer.ConsumerGroupMetadataKey: _decode_group,
    consumer.ConsumerGroupMemberMetadataKey: _decode_member,
    consumer.ConsumerGroupTargetAssignmentMetadataKey: _decode_target_epoch,
    consumer.ConsumerGroupTargetAssignmentMemberKey: _decode_target,
    consumer.ConsumerGroupCurrentMemberAssignmentKey: _decode_current,
    consumer.ConsumerGroupRegularExpressionKey: _decode_regex,
}
"""Left out: the topics' shapes (type 4), which Kafka 4.3 writes no more and we never needed."""
