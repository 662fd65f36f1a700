"""Rules of the metadata and of those who act on them, broken on purpose; see sim/mutants.py."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from sim.cluster.world import ClusterWorld
from sim.mutants import Mutant
from sim.outcome import Outcome, outcome_of
from sim.swarm import Mix

from dmq.broker import electing
from dmq.broker.controller import Controller
from dmq.broker.host import MachineHost
from dmq.broker.multiraft.replica import Replica
from dmq.broker.partition import Partition
from dmq.broker.survivors import Account, choose
from dmq.errors import ErrorCode
from dmq.machines import cluster
from dmq.machines.cluster import ClusterMachine
from dmq.machines.commands import AllocateProducerIds, DeleteTopics
from dmq.machines.machine import Outcome as Handled
from dmq.machines.state import PartitionState
from dmq.machines.targets import finished
from dmq.raft import leader


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


Handler = Callable[[ClusterMachine, Any], Handled[Any]]
_HANDLERS: dict[type, Handler] = dict(cluster._HANDLERS)


def _but(command: type, changed: Handler) -> tuple[Any, str, Any]:
    """The machine handles this command in another way."""
    return cluster, "_HANDLERS", {**_HANDLERS, command: changed}


def _no_record(machine: ClusterMachine, command: Any) -> Handled[Any]:
    """The answer as it should be, and nothing that makes it true."""
    return Handled(_HANDLERS[type(command)](machine, command).response, [])


def _not_logged(machine: ClusterMachine, command: Any) -> Handled[Any]:
    """The leader does it at once, and writes nothing down."""
    handled = _HANDLERS[type(command)](machine, command)
    for record in handled.records:
        machine.apply(record)
    return Handled(handled.response, [])


def _read_all(self: Partition, offset: int, bytes_max: int, **how: Any) -> Any:
    """Up to the end of what is in files."""
    log = self.replica.log
    if not log.log_start <= offset < log.stable_end.offset:
        return []
    return log.read(offset, bytes_max, log.stable_end.offset, whole_first_batch=True)


def _choose_any(accounts: list[Account], placed: PartitionState) -> Account:
    """Whoever has most, whatever the others say."""
    if not accounts:
        return choose(accounts, placed)
    return max(accounts, key=lambda one: (one.end, one.me))


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
    "producer_ids_are_given_out_twice": ClusterMutant(
        "the machine forgets which producer ids it has given out",
        (_but(AllocateProducerIds, _no_record),),
        _any,
        2,
    ),
    "deletions_are_forgotten": ClusterMutant(
        "who deletes a topic is told that it is gone, and it stays",
        (_but(DeleteTopics, _no_record),),
        _any,
        3,
    ),
    "topics_go_without_a_record": ClusterMutant(
        "the metadata's leader forgets a topic that is deleted, and the log has nothing of it",
        (_but(DeleteTopics, _not_logged),),
        _any,
        3,
    ),
    "orders_are_given_where_most_are_well": ClusterMutant(
        "an operator's order is given for a partition that has a leader, or can elect one",
        ((electing, "choose", _choose_any),),
        _any,
        8,
    ),
    "moves_never_end": ClusterMutant(
        "nobody says that a move is done",
        ((Controller, "_finish_moves", lambda self: None),),
        _any,
        3,
    ),
    "writes_wait_for_everybody": ClusterMutant(
        "what one of the voters does not have is not committed",
        ((leader, "majority_has", min),),
        _any,
        3,
    ),
    "readers_see_what_is_not_committed": ClusterMutant(
        "leaders and followers show all that they have",
        (
            (Partition, "read", _read_all),
            (
                Partition,
                "high_watermark",
                property(lambda self: self.replica.log.stable_end.offset),
            ),
        ),
        _any,
        5,
        sync_ms=(20, 100),
    ),
}
