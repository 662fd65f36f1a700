"""Carrying out a plan of moves: so many partitions at a time, watched until the last has arrived.

Owns the submission of moves, the progress of them, and the words when one can't start or does not
get on. A move belongs to the cluster once it was taken: a command that ends early stops nothing, and
the same command begun again finds the rest. Never decides where anything goes.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from dmq.cli.cluster_copies import CopyWatch
from dmq.cli.cluster_facts import Cluster
from dmq.cli.cluster_wire import ClusterWire, Outcome, Where
from dmq.cli.exits import CommandError
from dmq.cli.output import Gauge, count_of, human_size
from dmq.cli.session import Session

LOOK_AGAIN_S = 0.3
QUIET_S = 30.0
"""After so long without progress a person is told what is waited for."""

BEHIND_S = 10.0
"""A move that is not listed, and whose replicas are others than it shall have: for so long whoever was
asked may be behind. After that somebody has taken it back, or sent it elsewhere."""

Plan = Mapping[Where, Sequence[int]]
"""The replicas that partitions shall have, in order of preference."""


@dataclass(slots=True)
class Carried:
    """How a plan went."""

    moved: list[Where] = field(default_factory=list)
    refused: list[Outcome] = field(default_factory=list)
    moving: list[Where] = field(default_factory=list)
    """Under way when the time was over."""
    is_over: bool = False
    """The time, before everything was moved."""


def carry_out(
    session: Session,
    wire: ClusterWire,
    cluster: Cluster,
    plan: Plan,
    *,
    at_once: int,
    timeout_s: float | None,
    begun: Plan | None = None,
) -> Carried:
    """Move everything in a plan for `cluster`, `at_once` partitions at a time, and wait for what was
    `begun` before too. When the time is over, what was begun goes on."""
    _warn_of_single_ones(session, cluster, plan)
    try:
        return _carry_out(session, wire, cluster, plan, at_once, timeout_s, begun or {})
    except KeyboardInterrupt:
        session.output.note("moves that began go on by themselves: see `dmq cluster status`")
        raise


def _warn_of_single_ones(session: Session, cluster: Cluster, plan: Plan) -> None:
    placed = cluster.placed
    if any(len(placed[where]) == 1 for where in plan):
        session.output.note(
            "partitions with a single replica need their old and their new broker while they move"
        )


def _carry_out(
    session: Session,
    wire: ClusterWire,
    cluster: Cluster,
    plan: Plan,
    at_once: int,
    timeout_s: float | None,
    begun: Plan,
) -> Carried:
    carried = Carried()
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    waiting = dict(plan)
    under_way = dict(begun)
    copies = CopyWatch(wire, cluster, waiting | under_way)
    thin = cluster.thin
    with session.output.gauge("moving") as gauge:
        watch = _Watch(session, wire, deadline)
        arrivals = _Arrivals(wire)
        while waiting or under_way:
            free = list(waiting)[: max(0, at_once - len(under_way))]
            if free:
                next_ones = {where: waiting.pop(where) for where in free}
                under_way |= _begin(wire, next_ones, thin, carried, copies)
            arrived = arrivals.look(under_way)
            for where in arrived:
                del under_way[where]
                carried.moved.append(where)
                copies.arrived(where)
            has_grown = copies.look(under_way)
            _show(gauge, copies, len(carried.moved), len(waiting) + len(under_way))
            if watch.is_over and (waiting or under_way):
                carried.is_over, carried.moving = True, list(under_way)
                break
            watch.look(bool(arrived or free or has_grown), under_way)
            if under_way and not arrived:
                time.sleep(LOOK_AGAIN_S)
    return carried


def time_over(carried: Carried) -> CommandError:
    """The end of a command that did not wait for the last move."""
    return CommandError(
        f"{count_of(len(carried.moving), 'partition')} still moving when the time was over",
        hint="They go on by themselves: see `dmq cluster status`, or call this again.",
    )


def await_farewell(session: Session, wire: ClusterWire, node: int, timeout_s: float | None) -> None:
    """Until the cluster has forgotten a broker: one that votes on the metadata is replaced there
    first. Raises CommandError when the time is over; the cluster goes on."""
    began, has_told = time.monotonic(), False
    while node in [broker.broker_id for broker in wire.cluster().brokers]:
        waited_s = time.monotonic() - began
        if timeout_s is not None and waited_s > timeout_s:
            raise CommandError(
                f"Broker {node} still votes on the metadata when the time was over",
                hint="Let it run until `dmq cluster status` does not list it any more.",
            )
        if waited_s > QUIET_S and not has_told:
            has_told = True
            session.output.note(f"broker {node} still votes on the metadata: is another one down?")
        time.sleep(LOOK_AGAIN_S)


def _begin(
    wire: ClusterWire, begun: Plan, thin: Collection[Where], carried: Carried, copies: CopyWatch
) -> dict[Where, Sequence[int]]:
    """Those of `begun` that the cluster took. Only those that are thin may get more replicas."""
    taken = dict(begun)
    outcomes: list[Outcome] = []
    for may_resize in (False, True):
        those = {where: begun[where] for where in begun if (where in thin) is may_resize}
        if those:
            outcomes += wire.reassign(those, may_resize=may_resize)
    for outcome in outcomes:
        if outcome.code:
            taken.pop((outcome.topic, outcome.partition), None)
            carried.refused.append(outcome)
            copies.refused((outcome.topic, outcome.partition))
    return taken


def _show(gauge: Gauge, copies: CopyWatch, moved: int, left: int) -> None:
    text = f"{moved:,} of {count_of(moved + left, 'partition')}"
    copied, total = copies.copied_bytes, copies.total_bytes
    if total:
        text += f", {human_size(copied)} of {human_size(total)} copied"
        gauge.show(copied, total, text)
    else:
        gauge.show(moved, moved + left, text)


class _Arrivals:
    """Which moves are over. That one is not listed is not enough: a broker that is behind, as one that
    was asked because another went away may be, does not know yet that it began."""

    def __init__(self, wire: ClusterWire) -> None:
        self._wire = wire
        self._doubted: dict[Where, float] = {}
        """Since when they are neither listed nor where they shall be."""

    def look(self, under_way: Plan) -> list[Where]:
        moving = {move.where for move in self._wire.moves()}
        unlisted = [where for where in under_way if where not in moving]
        placed = self._placed() if unlisted else {}
        now = time.monotonic()
        doubted: dict[Where, float] = {}
        for where in unlisted:
            if where in placed and placed[where] != set(under_way[where]):
                doubted[where] = self._doubted.get(where, now)
        self._doubted = doubted
        return [where for where in unlisted if now - doubted.get(where, -inf) >= BEHIND_S]

    def _placed(self) -> dict[Where, set[int]]:
        return {
            (topic.name, each.partition_index): set(each.replica_nodes)
            for topic in self._wire.metadata().topics
            for each in topic.partitions
        }


class _Watch:
    """Tells a person when nothing gets on, once for each standstill."""

    def __init__(self, session: Session, wire: ClusterWire, deadline: float | None) -> None:
        self._session = session
        self._wire = wire
        self._deadline = deadline
        self._last = time.monotonic()
        self._has_told = False

    @property
    def is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def look(self, has_news: bool, under_way: Mapping[Where, Sequence[int]]) -> None:
        now = time.monotonic()
        if has_news:
            self._last, self._has_told = now, False
        elif now - self._last > QUIET_S and not self._has_told:
            self._has_told = True
            self._session.output.note(
                f"waiting for {count_of(len(under_way), 'partition')}: {_names(under_way)};"
                f" {self._reason(under_way)} `dmq cluster status` tells"
            )

    def _reason(self, under_way: Collection[Where]) -> str:
        headless = [
            (topic.name, each.partition_index)
            for topic in self._wire.metadata().topics
            for each in topic.partitions
            if each.leader_id < 0 and (topic.name, each.partition_index) in under_way
        ]
        if headless:
            verb = "has" if len(headless) == 1 else "have"
            return f"{_names(headless)} {verb} no leader, and a leader is what moves replicas:"
        return "is a broker that gets a replica down?"


def _names(those: Collection[Where]) -> str:
    """The first of them."""
    return ", ".join(f"{topic}:{index}" for topic, index in list(those)[:5])
