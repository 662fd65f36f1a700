"""Committing, fetching and forgetting offsets: who may, and which records do it.

A member commits for its own generation (classic) or epoch (consumer protocol). Who has no member id
is a simple consumer and may commit while the group has no members. Expiry follows KIP-211.
"""

from collections.abc import Iterator
from itertools import islice

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.classic_group import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
)
from dmq.machines.groups.consumer_group import ConsumerGroup
from dmq.machines.groups.context import Context
from dmq.machines.groups.facts import (
    CommittedOffset,
    ConsumerMemberValue,
    CurrentAssignment,
    OffsetFact,
    OffsetKey,
)
from dmq.machines.groups.offset_commands import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    ForgetTopics,
    OffsetResult,
    OffsetToCommit,
    SweepTopics,
)
from dmq.machines.groups.rebalancing import renew_session
from dmq.machines.groups.reconciling import held
from dmq.machines.groups.surroundings import TopicImage
from dmq.machines.groups.work import Work
from dmq.types import NIL_UUID

NO_OFFSET = -1

TOMBSTONES_MAX = 5000
"""Offsets forgotten by one command about topics: it is one batch, of half a megabyte at most."""


def commit(ctx: Context, command: CommitOffsets, work: Work) -> list[OffsetResult]:
    """Commits of a member or a simple consumer."""
    consumer = ctx.state.consumer.get(command.group_id)
    if consumer is not None:
        _check_consumer(ctx, consumer, command, knows_epochs=command.knows_epochs)
    else:
        group = _classic_to_commit(ctx, command, knows_epochs=command.knows_epochs)
        _check_classic(group, command)
        member = group.members.get(command.member_id)
        if member is not None and group.state in (STABLE, PREPARING):
            renew_session(ctx, group, member, work)
    expire_ms = None if command.retention_ms < 0 else work.wall_ms + command.retention_ms
    return _write(ctx, command.group_id, command.offsets, expire_ms, work)


def commit_in_transaction(
    ctx: Context, command: CommitOffsetsInTransaction, work: Work
) -> list[OffsetResult]:
    """Commits that a transaction must confirm."""
    consumer = ctx.state.consumer.get(command.group_id)
    if consumer is not None:
        try:
            _check_consumer(ctx, consumer, command, knows_epochs=True)
        except KafkaError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from None
            raise
    else:
        group = _classic_to_commit(ctx, command, knows_epochs=False)
        _check_classic(group, command)
    return _write(ctx, command.group_id, command.offsets, None, work)


Commit = CommitOffsets | CommitOffsetsInTransaction


def _classic_to_commit(ctx: Context, command: Commit, *, knows_epochs: bool) -> ClassicGroup:
    group = ctx.classic(command.group_id)
    if group is not None:
        return group
    if command.generation >= 0:
        code = ErrorCode.GROUP_ID_NOT_FOUND if knows_epochs else ErrorCode.ILLEGAL_GENERATION
        raise KafkaError(code, f"Group {command.group_id} not found.")
    ctx.check_new_group(command.group_id)
    return ClassicGroup(command.group_id)  # Its offsets will make it a group.


def _check_classic(group: ClassicGroup, command: Commit) -> None:
    if command.generation < 0 and group.state is EMPTY:
        return  # A simple consumer, or an admin who resets offsets.
    in_transaction = isinstance(command, CommitOffsetsInTransaction)
    is_member = command.generation >= 0 or command.member_id or command.instance_id is not None
    if is_member:
        group.find(command.member_id, command.instance_id)
        if command.generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    elif not in_transaction:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not in_transaction and group.state is COMPLETING:
        # What it has read belongs to a generation that is over.
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def _check_consumer(
    ctx: Context, group: ConsumerGroup, command: Commit, *, knows_epochs: bool
) -> None:
    if command.generation < 0 and not group.members:
        return
    is_anonymous = command.generation < 0 and not command.member_id and not command.instance_id
    if isinstance(command, CommitOffsetsInTransaction) and is_anonymous:
        return  # A producer that does not say who consumes (before KIP-447).
    member = group.find(command.member_id)
    if not knows_epochs and member.classic is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Members of the consumer protocol commit with version 9 or above.",
        )
    current = group.current(command.member_id)
    if command.generation == current.member_epoch:
        return
    if command.generation > current.member_epoch or not _had_since(ctx, current, command):
        raise _stale(member)


def _had_since(ctx: Context, current: CurrentAssignment, command: Commit) -> bool:
    """Whether a member has had all these partitions since the epoch that it commits in: then nobody
    else has read on, and it only has not heard of its newer epoch yet."""
    since = held(current.assigned) | held(current.pending_revocation)
    for wanted in command.offsets:
        image = ctx.surroundings.topic(wanted.topic)
        if image is None:
            return False
        epoch = since.get((image.topic_id, wanted.partition))
        if epoch is None or epoch > command.generation:
            return False
    return True


def _write(
    ctx: Context,
    group_id: str,
    offsets: tuple[OffsetToCommit, ...],
    expire_ms: int | None,
    work: Work,
) -> list[OffsetResult]:
    results = []
    known, room = ctx.state.offsets, ctx.limits.offsets_max - ctx.state.offsets.count(group_id)
    for wanted in offsets:
        error = ErrorCode.NONE
        key = OffsetKey(group_id, wanted.topic, wanted.partition)
        is_new = known.get(key) is None and not known.is_pending(key)
        if len(wanted.metadata) > ctx.limits.offset_metadata_max:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        elif is_new and room <= 0:
            error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        else:
            room -= is_new
            value = CommittedOffset(
                wanted.offset,
                wanted.leader_epoch,
                wanted.metadata,
                work.wall_ms,
                expire_ms,
                wanted.topic_id,
            )
            work.write(OffsetFact(key, value))
        results.append(OffsetResult(wanted.topic, wanted.partition, error))
    return results


# --- fetching ------------------------------------------------------------------------------------


def fetch(ctx: Context, command: FetchOffsets) -> list[FetchedOffset]:
    """What a group has committed."""
    _check_fetch(ctx, command)
    offsets = ctx.state.offsets
    if command.partitions is None:
        keys = [
            key
            for key, value in offsets.of_group(command.group_id)
            if _is_there(ctx.surroundings.topic(key.topic), value)
        ]
    else:
        keys = [OffsetKey(command.group_id, *partition) for partition in command.partitions]
    return [_fetched(ctx, key, require_stable=command.require_stable) for key in keys]


def _check_fetch(ctx: Context, command: FetchOffsets) -> None:
    group = ctx.state.consumer.get(command.group_id)
    if group is None or (not command.member_id and command.member_epoch < 0):
        return
    member = group.find(command.member_id or "")
    if command.member_epoch != group.current(command.member_id or "").member_epoch:
        raise _stale(member)


def _stale(member: ConsumerMemberValue) -> KafkaError:
    """An epoch that is not the member's; to a classic one it is a generation."""
    is_classic = member.classic is not None
    return KafkaError(ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH)


def _fetched(ctx: Context, key: OffsetKey, *, require_stable: bool) -> FetchedOffset:
    error, value = ErrorCode.NONE, ctx.state.offsets.get(key)
    if require_stable and ctx.state.offsets.is_pending(key):
        error, value = ErrorCode.UNSTABLE_OFFSET_COMMIT, None
    if value is None or not _is_there(ctx.surroundings.topic(key.topic), value):
        return FetchedOffset(key.topic, key.partition, NO_OFFSET, -1, "", error)
    return FetchedOffset(
        key.topic, key.partition, value.offset, value.leader_epoch, value.metadata, error
    )


# --- forgetting ----------------------------------------------------------------------------------


def delete(ctx: Context, command: DeleteOffsets, work: Work) -> list[OffsetResult]:
    """Forget offsets of a group, unless its members read their topic."""
    if not command.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    group: ClassicGroup | ConsumerGroup | None = ctx.state.consumer.get(command.group_id)
    if group is None:
        group = ctx.classic(command.group_id)
    if group is None:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"The group {command.group_id} does not exist."
        )
    if isinstance(group, ClassicGroup) and group.state is not EMPTY and not group.is_consumer:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "We can't know what its members read.")
    results = []
    for topic, partition in command.partitions:
        error = ErrorCode.NONE
        key = OffsetKey(command.group_id, topic, partition)
        if group.is_subscribed_to(topic):
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif ctx.state.offsets.get(key) is not None or ctx.state.offsets.is_pending(key):
            work.write(OffsetFact(key, None))
        results.append(OffsetResult(topic, partition, error))
    return results


def forget_all(ctx: Context, group_id: str, work: Work) -> None:
    """Forget every offset of a group, pending ones too."""
    offsets = ctx.state.offsets
    keys = dict.fromkeys(key for key, _ in offsets.of_group(group_id))
    keys |= dict.fromkeys(key for key, _ in offsets.pending_of_group(group_id))
    work.write(*(OffsetFact(key, None) for key in keys))


def forget_topics(ctx: Context, command: ForgetTopics, work: Work) -> int:
    """Topics were deleted. Offsets of a topic of the same name that came since are not touched."""
    gone = (
        key
        for topic, topic_id in command.topics
        for key, value in ctx.state.offsets.of_topic(topic)
        if value.topic_id in (topic_id, NIL_UUID) or topic_id == NIL_UUID
    )
    return _forget_some(gone, work)


def sweep_topics(ctx: Context, _command: SweepTopics, work: Work) -> int:
    """Forget offsets of topics that were deleted and made anew."""
    gone = (
        key
        for topic in ctx.state.offsets.topics()
        for key, value in ctx.state.offsets.of_topic(topic)
        if not _is_there(ctx.surroundings.topic(topic), value)
    )
    return _forget_some(gone, work)


def _is_there(topic: TopicImage | None, value: CommittedOffset) -> bool:
    """Whether an offset may be of the topic that has this name now. A topic that is not known is
    given the benefit of the doubt: the metadata may not be loaded, and expiry gets it in the end."""
    return topic is None or value.topic_id in (topic.topic_id, NIL_UUID)


def _forget_some(keys: Iterator[OffsetKey], work: Work) -> int:
    some = dict.fromkeys(islice(keys, TOMBSTONES_MAX))
    work.write(*(OffsetFact(key, None) for key in some))
    return len(some)


def expire(ctx: Context, group_id: str, work: Work) -> bool:
    """Forget offsets that nobody will ask for; whether the group has none left, now or soon.

    Counted from when the group became empty or, for simple consumers, topics that are not read any
    more and consumer groups, from the commit. While a rebalance is on, nothing expires.
    """
    group: ClassicGroup | ConsumerGroup | None = ctx.state.consumer.get(group_id)
    if group is None:
        group = ctx.classic(group_id)
    if group is None:
        return False
    base_ms = -1
    if isinstance(group, ClassicGroup) and group.protocol_type is not None:
        if group.state is EMPTY:
            base_ms = group.state_since_ms
        elif group.state is not STABLE or group.subscribed is None:
            return False
    all_gone = True
    for key, value in list(ctx.state.offsets.of_group(group_id)):
        since_ms = base_ms if base_ms >= 0 else value.commit_ms
        expire_ms = value.expire_ms
        if expire_ms is None:
            expire_ms = since_ms + ctx.limits.offsets_retention_ms
        is_kept = group.is_subscribed_to(key.topic) or ctx.state.offsets.is_pending(key)
        if is_kept or work.wall_ms < expire_ms:
            all_gone = False
        else:
            work.write(OffsetFact(key, None))
    return all_gone and not ctx.state.offsets.has_open_transactions(group_id)
