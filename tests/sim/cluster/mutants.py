"""Rules of the metadata and of those who act on them, broken on purpose; see sim/mutants.py."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from sim.cluster.world import ClusterWorld
from sim.mutants import Mutant
from sim.outcome import Outcome, outcome_of
from sim.swarm import Mix

from dmq.broker.controller import Controller
from dmq.broker.host import MachineHost
from dmq.broker.multiraft.replica import Replica
from dmq.errors import ErrorCode
from dmq.machines.state import PartitionState
from dmq.machines.targets import finished


@dataclass(frozen=True)
class ClusterMutant(Mutant):
    """In a world of whole brokers as its seed draws it, but for the speed of its disks."""

    sync_ms: tuple[int, int] | None = None

    def run(self, seed: int, mix: Mix) -> Outcome:
        world = ClusterWorld(seed)
        world.sync_ms = self.sync_ms or world.sync_ms
        return outcome_of(world)


def _any(seed: int) -> Any:
    return None


_SUBMIT = MachineHost.submit


def _submit_and_trust(self: MachineHost, command: Any, now: int) -> Any:
    """What was appended counts as committed in the loop's next pass."""

    def at_once(replica: Replica, callback: Callable[[ErrorCode], None]) -> None:
        self._timers.at(self._now(), lambda: callback(ErrorCode.NONE))

    with patch.object(Replica, "when_committed", at_once):
        return _SUBMIT(self, command, now)


def _finish_early(self: Controller) -> None:
    """As soon as the target is among the voters that are wanted, whether or not they vote."""
    state = self._state()
    for topic_id, index in list(state.moving):
        local = self._replicas.by_id.get(topic_id)
        partition = None if local is None else local.partitions.get(index)
        if partition is not None and partition.is_leader:
            done = finished(state, topic_id, index, partition.replica.target)
            if done is not None:
                self._say(("done", topic_id, index), done)


MUTANTS: dict[str, ClusterMutant] = {
    "metadata_are_told_before_they_are_committed": ClusterMutant(
        "the machine's answer does not wait for the log",
        ((MachineHost, "submit", _submit_and_trust),),
        _any,
        6,
        sync_ms=(40, 200),
    ),
    "moves_end_before_they_are_done": ClusterMutant(
        "a leader says that a move is done before its new voters vote",
        ((Controller, "_finish_moves", _finish_early),),
        _any,
        10,
    ),
    "old_replicas_go_at_once": ClusterMutant(
        "whoever is to give a replica up drops it when the move begins",
        ((PartitionState, "members", property(lambda self: self.replicas)),),
        _any,
        10,
    ),
}
