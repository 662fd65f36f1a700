"""Taking brokers out of a cluster, in rounds: move what they have, look again, forget them.

Owns the rounds. While a broker is being emptied, somebody else (a rebalance, another farewell) may put
replicas on it, so what was planned at the beginning need not be enough: as long as it has some, there
is another plan. Moves are carried out by `cluster_moves`, where replicas go is decided by `plans`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from dmq.cli.cluster_facts import Cluster, gather
from dmq.cli.cluster_leaders import elect_preferred
from dmq.cli.cluster_moves import LOOK_AGAIN_S, Carried, Plan, await_farewell, carry_out, time_over
from dmq.cli.cluster_wire import ClusterWire, UnsureError
from dmq.cli.exits import CommandError
from dmq.cli.output import count_of
from dmq.cli.session import Session

ROUNDS_MAX = 10
"""Plans until we give up: somebody works against us."""
UNSURE_S = 10.0
"""A broker that was unregistered is the last to know, and says for a moment that it is still there."""


@dataclass(slots=True)
class Farewell:
    """How far it came; `error` says why not further."""

    carried: Carried = field(default_factory=Carried)
    gone: list[int] = field(default_factory=list)
    error: CommandError | None = None


class TakingOut:
    """Some brokers that leave."""

    def __init__(
        self,
        session: Session,
        wire: ClusterWire,
        nodes: Sequence[int],
        *,
        at_once: int,
        timeout_s: float | None,
    ) -> None:
        self._session = session
        self._wire = wire
        self._nodes = list(nodes)
        self._at_once = at_once
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._done = Farewell()

    def run(self, cluster: Cluster, plan: Plan) -> Farewell:
        """Carry out the plan for `cluster`, and those that turn out to be needed after it."""
        try:
            self._rounds(cluster, plan)
        except CommandError as error:
            self._done.error = error
        return self._done

    @property
    def _staying(self) -> list[int]:
        return [node for node in self._nodes if node not in self._done.gone]

    def _rounds(self, cluster: Cluster, plan: Plan) -> None:
        from dmq.cli.plans import farewell

        for _ in range(ROUNDS_MAX):
            if not self._move(cluster, plan):
                return
            cluster = gather(self._wire)
            for node in self._staying:
                if not _held(cluster, node):
                    self._forget(cluster, node)
            if not self._staying:
                return
            cluster = gather(self._wire)
            plan = farewell(cluster, self._staying)
            if not plan:  # Somebody moves them just now: nobody can be sure of them.
                time.sleep(LOOK_AGAIN_S)
        node = self._staying[0]
        raise CommandError(
            f"Broker {node} has {count_of(_held(cluster, node), 'replica')} again though they were"
            " moved away: somebody else moves replicas to it",
            hint="Let other moves end, then call this again.",
        )

    def _move(self, cluster: Cluster, plan: Plan) -> bool:
        """Whether it got on, or there was nothing to move."""
        # A call before this one may have begun some of it.
        begun = {
            move.where: move.target
            for move in cluster.moves
            if any(node in move.removing for node in self._staying)
        }
        carried = carry_out(
            self._session,
            self._wire,
            cluster,
            plan,
            at_once=self._at_once,
            timeout_s=self._left_s(),
            begun=begun,
        )
        done = self._done.carried
        done.moved += [where for where in carried.moved if where not in done.moved]
        done.refused, done.moving = carried.refused, carried.moving
        if carried.is_over:
            raise time_over(carried)
        led = [where for where in carried.moved if where in plan]
        if led:
            elect_preferred(self._wire, led)
        return bool(carried.moved) or not carried.refused

    def _forget(self, cluster: Cluster, node: int) -> None:
        """Unless it got replicas just now: then it waits for the next round."""
        leaving = cluster.brokers.get(node)
        if leaving is not None and leaving.host is not None and leaving.port is not None:
            self._wire.avoid((leaving.host, leaving.port))
            try:
                self._wire.unregister(node)
            except CommandError as error:
                if _held(gather(self._wire, disks=False), node):
                    return
                if not self._is_gone(node, UNSURE_S if isinstance(error, UnsureError) else 0.0):
                    raise
            await_farewell(self._session, self._wire, node, self._left_s())
        self._done.gone.append(node)

    def _is_gone(self, node: int, patience_s: float) -> bool:
        """Whether the cluster has forgotten it, whatever the answer was: that of the broker which leaves
        may be lost with its links, and a question that is asked twice is refused the second time."""
        deadline = time.monotonic() + patience_s
        while node in [broker.broker_id for broker in self._wire.cluster().brokers]:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_AGAIN_S)
        return True

    def _left_s(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())


def _held(cluster: Cluster, node: int) -> int:
    """The replicas that a broker has, those that are about to leave it too."""
    return sum(node in each.replicas for each in cluster.partitions)
