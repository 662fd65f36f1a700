"""Changes to a consumer group: its epoch, its target, its members; always by records.

A `Draft` is the group as it will be when the records of the present call are applied: rules write to
it and read from it, and the group itself stays as the log says. Called by heartbeats of both
protocols and by timers.
"""

from zlib import crc32

from dmq.machines.groups.assignors import ASSIGNORS, MemberSpec, Partition, assign
from dmq.machines.groups.consumer_group import ConsumerFact, ConsumerGroup, MemberState
from dmq.machines.groups.context import Context
from dmq.machines.groups.facts import (
    ConsumerGroupFact,
    ConsumerGroupValue,
    ConsumerMemberFact,
    CurrentAssignment,
    CurrentFact,
    RegexFact,
    ResolvedRegex,
    TargetEpochFact,
    TargetFact,
)
from dmq.machines.groups.patterns import Pattern
from dmq.machines.groups.reconciling import reconcile
from dmq.machines.groups.surroundings import TopicImage
from dmq.machines.groups.timers import Timer, TimerKind
from dmq.machines.groups.work import Work


class Draft:
    """A group with the facts of the present call laid over it."""

    __slots__ = ("_is_own", "_work", "group")

    def __init__(self, group: ConsumerGroup, work: Work) -> None:
        self.group = group
        self._work = work
        self._is_own = False

    def write(self, fact: ConsumerFact) -> None:
        """Have a fact recorded, and see it from now on."""
        if not self._is_own:
            self.group, self._is_own = self.group.copy(), True
        self.group.apply(fact)
        self._work.write(fact)

    def write_last(self, fact: ConsumerFact) -> None:
        """Have a fact recorded that nobody asks this draft about: a large group is not copied for
        the one member that moved."""
        if self._is_own:
            self.group.apply(fact)
        self._work.write(fact)


def session_timer(group_id: str, member_id: str) -> Timer:
    return Timer(TimerKind.CONSUMER_SESSION, group_id, member_id)


def revocation_timer(group_id: str, member_id: str) -> Timer:
    return Timer(TimerKind.REVOCATION, group_id, member_id)


def rejoin_timer(group_id: str, member_id: str) -> Timer:
    return Timer(TimerKind.REJOIN, group_id, member_id)


def session_ms(ctx: Context, group: ConsumerGroup, member_id: str) -> int:
    """How long a member may be silent: classic ones say so themselves."""
    support = group.members[member_id].classic
    if support is not None:
        return support.session_timeout_ms
    return ctx.surroundings.group_config(group.group_id).consumer_session_timeout_ms


# --- the group's epoch ---------------------------------------------------------------------------


def refresh(ctx: Context, draft: Draft, work: Work, *, is_changed: bool) -> None:
    """Bump the epoch if members changed (`is_changed`) or if their topics did."""
    group_id, version = draft.group.group_id, ctx.surroundings.topics_version()
    is_seen = ctx.topics_seen.get(group_id) == version
    if is_seen and not is_changed:
        return
    ctx.topics_seen[group_id] = version
    resolve_patterns(ctx, draft, work)
    metadata_hash = hash_of(ctx, draft.group)
    if is_changed or metadata_hash != draft.group.metadata_hash:
        value = ConsumerGroupValue(draft.group.group_epoch + 1, metadata_hash)
        draft.write(ConsumerGroupFact(group_id, value))


def resolve_patterns(ctx: Context, draft: Draft, work: Work) -> None:
    """Have every pattern of the members resolved against the topics there are; forget the others."""
    group = draft.group
    used = group.patterns
    for regex in [known for known in group.regexes if known not in used]:
        draft.write(RegexFact(group.group_id, regex, None))
        ctx.patterns.pop(regex, None)
    names = list(ctx.surroundings.topic_names()) if used else []
    for regex in used:
        topics = pattern(ctx, regex).select(names)
        known = group.regexes.get(regex)
        if known is None or known.topics != topics:
            resolved = ResolvedRegex(topics, ctx.surroundings.topics_version(), work.wall_ms)
            draft.write(RegexFact(group.group_id, regex, resolved))


PATTERNS_MAX = 1000
"""Compiled patterns that are kept; beyond it all are made anew."""


def pattern(ctx: Context, regex: str) -> Pattern:
    """A compiled pattern. Raises INVALID_REGULAR_EXPRESSION."""
    found = ctx.patterns.get(regex)
    if found is None:
        if len(ctx.patterns) >= PATTERNS_MAX:
            ctx.patterns.clear()
        found = ctx.patterns[regex] = Pattern(regex)
    return found


def topics_of(ctx: Context, group: ConsumerGroup) -> dict[str, TopicImage]:
    """The topics that members read and that exist."""
    found = ((name, ctx.surroundings.topic(name)) for name in sorted(group.subscribed))
    return {name: image for name, image in found if image is not None}


def hash_of(ctx: Context, group: ConsumerGroup) -> int:
    """A number that changes when the topics of a group do; 0 if there are none. Not Kafka's: each
    only compares its own."""
    images = topics_of(ctx, group)
    if not images:
        return 0
    text = repr([(i.name, i.topic_id.hex, i.partition_count, _racks(i)) for i in images.values()])
    raw = text.encode()
    return (crc32(raw) << 31) ^ crc32(raw, 1)


def _racks(image: TopicImage) -> list[list[str]]:
    return [sorted(racks) for racks in image.racks]


# --- the target ----------------------------------------------------------------------------------


def assign_if_due(ctx: Context, draft: Draft, work: Work) -> None:
    """Make a target for the group's epoch, if there is none and the last one is old enough: many who
    join at once are assigned at once."""
    if is_assignment_due(ctx, draft.group, work):
        make_target(ctx, draft, work)


def is_assignment_due(ctx: Context, group: ConsumerGroup, work: Work) -> bool:
    """Whether the next who joins or heartbeats has a target made."""
    if group.assignment_epoch >= group.group_epoch:
        return False
    if group.target_epoch is None:
        return True
    config = ctx.surroundings.group_config(group.group_id)
    return not 0 <= work.wall_ms - group.target_ms < config.consumer_assignment_interval_ms


def make_target(ctx: Context, draft: Draft, work: Work) -> None:
    """Have a target recorded for the group's epoch: what is new in it, and when it was made."""
    group = draft.group
    images = topics_of(ctx, group)
    members = {
        member_id: MemberSpec(
            tuple(images[name].topic_id for name in group.topics_of(member) if name in images),
            group.targets.get(member_id, ()),
            member.rack_id,
            member.instance_id,
        )
        for member_id, member in group.members.items()
    }
    by_id = {image.topic_id: image for image in images.values()}
    for member_id, share in assign(assignor_of(ctx, group), members, by_id).items():
        if group.targets.get(member_id) != share:
            draft.write(TargetFact(group.group_id, member_id, share))
    value = (group.group_epoch, work.wall_ms)
    draft.write(TargetEpochFact(group.group_id, value))


def assignor_of(ctx: Context, group: ConsumerGroup) -> str:
    """The assignor that most members ask for; else the broker's first."""
    votes: dict[str, int] = {}
    for member in group.members.values():
        if member.server_assignor in ASSIGNORS:
            votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
    return max(sorted(votes), key=lambda name: votes[name]) if votes else ctx.limits.assignors[0]


# --- members -------------------------------------------------------------------------------------


def follow_target(
    ctx: Context, draft: Draft, member_id: str, owned: list[Partition] | None, work: Work
) -> CurrentAssignment:
    """Bring a member as close to its target as others let it."""
    group = draft.group
    current = group.current(member_id)

    def is_free(partition: Partition) -> bool:
        return group.owner(*partition) in (None, member_id)

    target = group.targets.get(member_id, ())
    following = reconcile(current, group.assignment_epoch, target, is_free, owned)
    if following != current or member_id not in group.currents:
        draft.write_last(CurrentFact(group.group_id, member_id, following))
    if group.members[member_id].classic is None:
        _watch_revocation(ctx, draft.group, member_id, current, following, work)
    return following


def _watch_revocation(
    ctx: Context,
    group: ConsumerGroup,
    member_id: str,
    before: CurrentAssignment,
    after: CurrentAssignment,
    work: Work,
) -> None:
    timer = revocation_timer(group.group_id, member_id)
    if after.state != MemberState.UNREVOKED_PARTITIONS:
        ctx.timers.cancel(timer)
    elif after != before or timer not in ctx.timers:
        ctx.timers.set(timer, work.now + group.members[member_id].rebalance_timeout_ms)


def remove_member(ctx: Context, draft: Draft, member_id: str) -> None:
    """Tombstones for a member, and no more timers."""
    group_id = draft.group.group_id
    draft.write(CurrentFact(group_id, member_id, None))
    draft.write(TargetFact(group_id, member_id, None))
    draft.write(ConsumerMemberFact(group_id, member_id, None))
    for timer in (session_timer, revocation_timer, rejoin_timer):
        ctx.timers.cancel(timer(group_id, member_id))
