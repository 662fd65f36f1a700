"""The group machine: consumer groups of both protocols, and committed offsets.

Its log is one partition of `__consumer_offsets`; a group belongs to the partition that its id hashes
to. See `outcome.py` for what comes back, and below for what its host does.

    load      `apply` every record, with the producer id of a transactional batch; where the log has
              a producer's marker, `complete_transaction`. Followers do no more than that
    lead      `lead(now)` when the leadership begins: sessions and rebalances start at full length
    serve     `handle(command, now)`; `tick(now)` when `next_deadline()` has come
    metadata  `ForgetTopics` when topics were deleted, and `SweepTopics` once in a leadership, when
              the metadata is as new as its start. That topics came or grew needs no word: it is
              seen with the next heartbeat, by `Surroundings.topics_version`
    stop      `resign()` when the leadership ends, the log is cut or an append was refused: it settles
              whoever waits, with NOT_COORDINATOR, and forgets all that is soft

`now` is of a clock that never jumps; stamps in records are `now + wall_ahead_ms`, which the host keeps
true. `handle` and `tick` change soft state at once and durable state by records only, so an outcome
whose append was refused must be followed by `resign`.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups import (
    classic_members,
    consumer_heartbeats,
    joining,
    membership,
    offset_rules,
    rebalancing,
)
from dmq.machines.groups.classic_group import COMPLETING
from dmq.machines.groups.commands import (
    DeleteGroup,
    DescribeClassicGroup,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    LeftMember,
    ListGroups,
    Synced,
    SyncGroup,
)
from dmq.machines.groups.consumer_changes import session_ms
from dmq.machines.groups.consumer_commands import ConsumerHeartbeat, DescribeConsumerGroup
from dmq.machines.groups.consumer_describing import describe_consumer
from dmq.machines.groups.consumer_group import MemberState
from dmq.machines.groups.context import Context
from dmq.machines.groups.facts import Codec, Fact
from dmq.machines.groups.group_rules import (
    delete_group,
    describe_classic,
    expire_some,
    list_groups,
)
from dmq.machines.groups.offset_commands import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    DeleteOffsets,
    FetchOffsets,
    ForgetTopics,
    SweepTopics,
)
from dmq.machines.groups.outcome import GroupOutcome, Later, Settled, TransactionalProducer
from dmq.machines.groups.state import GroupsState
from dmq.machines.groups.surroundings import Limits, Surroundings
from dmq.machines.groups.timers import Timer, TimerKind, Timers
from dmq.machines.groups.work import Work
from dmq.machines.machine import Command, Record
from dmq.types import Millis

R = TypeVar("R")


class GroupMachine:
    """See the module."""

    __slots__ = ("_codec", "_context", "leads", "wall_ahead_ms")

    def __init__(
        self,
        codec: Codec,
        limits: Limits,
        surroundings: Surroundings,
        new_id: Callable[[], str],
    ) -> None:
        self._codec = codec
        self._context = Context(limits, surroundings, new_id)
        self.wall_ahead_ms = 0
        self.leads = False

    @property
    def state(self) -> GroupsState:
        """What the log says."""
        return self._context.state

    @property
    def limits(self) -> Limits:
        return self._context.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._context.limits = limits

    # --- the log -----------------------------------------------------------------------------

    def apply(self, record: Record, producer_id: int = -1) -> Fact | None:
        """Take in a record, and tell what it said. Raises DmqError for what can't be read."""
        fact = self._codec.decode(record)
        if fact is not None:
            self._context.state.apply(fact, producer_id)
        return fact

    def complete_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The log has a producer's marker: its offsets count now, or never."""
        self._context.state.offsets.complete(producer_id, committed=commit)

    def reset(self) -> None:
        """Forget everything: the log is read anew. Those who wait must have been told by `resign`."""
        self._context.state = GroupsState()
        self._forget_soft()

    # --- leading -----------------------------------------------------------------------------

    def lead(self, now: Millis) -> GroupOutcome[None]:
        """The leadership begins: every member has all of its session before it."""
        assert not self.leads, "a leadership begins once"
        self.leads = True
        work = self._work(now)
        context = self._context
        for group_id, value in context.state.classic.items():
            if not value.members:
                continue
            group = context.bring_to_life(group_id)
            for member in group.members.values():
                rebalancing.renew_session(context, group, member, work)
            if group.state is COMPLETING:
                group.pending_syncs = dict.fromkeys(group.members)
                timer = rebalancing.sync_timer(group)
                context.timers.set(timer, now + group.rebalance_timeout_ms)
            elif value.leader is None:  # It was a consumer group, and nobody assigned since.
                rebalancing.prepare(context, group, work)
        self._start_consumers(work)
        self._set_expiry(now)
        return work.outcome(None, self._codec)

    def _start_consumers(self, work: Work) -> None:
        """Timers of the consumer protocol: sessions, and those who must give partitions up."""
        timers = self._context.timers
        for group_id, group in self._context.state.consumer.items():
            for member_id, member in group.members.items():
                timer = Timer(TimerKind.CONSUMER_SESSION, group_id, member_id)
                timers.set(timer, work.now + session_ms(self._context, group, member_id))
                if group.current(member_id).state == MemberState.UNREVOKED_PARTITIONS:
                    is_classic = member.classic is not None
                    kind = TimerKind.REJOIN if is_classic else TimerKind.REVOCATION
                    timer = Timer(kind, group_id, member_id)
                    timers.set(timer, work.now + member.rebalance_timeout_ms)

    def resign(self) -> list[Settled]:
        """The leadership is over: whoever waits must find the next coordinator."""
        settled: list[Settled] = []
        code = ErrorCode.NOT_COORDINATOR
        for group in self._context.live.values():
            for member in group.members.values():
                if member.join is not None:
                    settled.append(Settled(member.join, Joined(code, member.member_id)))
                if member.sync is not None:
                    settled.append(Settled(member.sync, Synced(code)))
        self._forget_soft()
        return settled

    def _forget_soft(self) -> None:
        self.leads = False
        self._context.live = {}
        self._context.timers = Timers()
        self._context.expiring = []
        self._context.topics_seen = {}

    # --- serving -----------------------------------------------------------------------------

    def handle(self, command: Command[R], now: Millis) -> GroupOutcome[R]:
        """An answer, perhaps a later one, and records. Raises KafkaError if all is refused."""
        assert self.leads, "only a leader is asked"
        work = self._work(now)
        response = _HANDLERS[type(command)](self._context, command, work)
        producer = None
        if isinstance(command, CommitOffsetsInTransaction):
            producer = TransactionalProducer(command.producer_id, command.producer_epoch)
        outcome = work.outcome(response, self._codec, producer)
        return cast("GroupOutcome[R]", outcome)

    def next_deadline(self) -> Millis | None:
        """When `tick` must be called next."""
        at = self._context.timers.next_at()
        return None if at is None else Millis(at)

    def tick(self, now: Millis) -> GroupOutcome[None] | None:
        """Do what one timer is for whose moment has come; None when there is none.

        One at a time, because the next may rest on the records of this one.
        """
        timer = self._context.timers.pop_due(now)
        if timer is None:
            return None
        work = self._work(now)
        self._fire(timer, work)
        return work.outcome(None, self._codec)

    def _fire(self, timer: Timer, work: Work) -> None:
        context = self._context
        if timer.kind is TimerKind.EXPIRY:
            if expire_some(context, work):
                self._set_expiry(work.now)
            else:
                context.timers.set(timer, work.now)
            return
        consumer = context.state.consumer.get(timer.group_id)
        if consumer is not None:
            if timer.kind is TimerKind.REVOCATION:
                consumer_heartbeats.on_revocation_timer(context, consumer, timer.member_id, work)
            elif timer.kind in (TimerKind.CONSUMER_SESSION, TimerKind.REJOIN):
                consumer_heartbeats.on_session_timer(context, consumer, timer.member_id, work)
            return
        group = context.live.get(timer.group_id)
        if group is None:
            return
        if timer.kind is TimerKind.SESSION:
            rebalancing.on_session_timer(context, group, timer.member_id, work)
        elif timer.kind is TimerKind.JOIN:
            rebalancing.on_join_timer(context, group, work)
        elif timer.kind is TimerKind.SYNC:
            rebalancing.on_sync_timer(context, group, work)

    def _set_expiry(self, now: int) -> None:
        at = now + self._context.limits.offsets_check_interval_ms
        self._context.timers.set(Timer(TimerKind.EXPIRY), at)

    def _work(self, now: int) -> Work:
        return Work(now, now + self.wall_ahead_ms)


# --- which rule answers which command ----------------------------------------------------------


def _join(ctx: Context, command: JoinGroup, work: Work) -> Joined | Later:
    joining.check_join(ctx, command)
    consumer = ctx.state.consumer.get(command.group_id)
    if consumer is not None and consumer.members:
        return classic_members.join(ctx, consumer, command, work)
    return joining.join(ctx, command, work)


def _sync(ctx: Context, command: SyncGroup, work: Work) -> Synced | Later:
    _check_group_id(command.group_id)
    consumer = ctx.state.consumer.get(command.group_id)
    if consumer is not None:
        return classic_members.sync(ctx, consumer, command, work)
    group = ctx.classic(command.group_id)
    if group is None:
        return Synced(ErrorCode.UNKNOWN_MEMBER_ID)
    return membership.sync(ctx, group, command, work)


def _heartbeat(ctx: Context, command: Heartbeat, work: Work) -> ErrorCode:
    _check_group_id(command.group_id)
    consumer = ctx.state.consumer.get(command.group_id)
    if consumer is not None:
        return classic_members.heartbeat(ctx, consumer, command, work)
    group = ctx.classic(command.group_id)
    if group is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return membership.heartbeat(ctx, group, command, work)


def _leave(ctx: Context, command: LeaveGroup, work: Work) -> list[LeftMember]:
    _check_group_id(command.group_id)
    consumer = ctx.state.consumer.get(command.group_id)
    if consumer is not None:
        return classic_members.leave(ctx, consumer, command, work)
    group = ctx.classic(command.group_id)
    if group is None:
        return [LeftMember(*member, ErrorCode.UNKNOWN_MEMBER_ID) for member in command.members]
    return membership.leave(ctx, group, command, work)


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


_HANDLERS: dict[type, Callable[[Context, Any, Work], Any]] = {
    JoinGroup: _join,
    SyncGroup: _sync,
    Heartbeat: _heartbeat,
    LeaveGroup: _leave,
    ConsumerHeartbeat: consumer_heartbeats.heartbeat,
    DescribeConsumerGroup: lambda ctx, command, _: describe_consumer(ctx, command),
    DescribeClassicGroup: lambda ctx, command, _: describe_classic(ctx, command),
    ListGroups: lambda ctx, command, _: list_groups(ctx, command),
    DeleteGroup: delete_group,
    CommitOffsets: offset_rules.commit,
    CommitOffsetsInTransaction: offset_rules.commit_in_transaction,
    FetchOffsets: lambda ctx, command, _: offset_rules.fetch(ctx, command),
    DeleteOffsets: offset_rules.delete,
    ForgetTopics: offset_rules.forget_topics,
    SweepTopics: offset_rules.sweep_topics,
}
