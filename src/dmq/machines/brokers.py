"""Brokers come and go: who may register and under which number, and who may be unregistered.

Reads the cluster's state, changes nothing. A broker is a number; the process that has it is known by
its epoch, its disk by the directory id. Epochs and the numbers that the cluster gives out are never
used twice, also when their broker is long gone. A disk that was replaced may take its number back, for
that can have been a mistake; one that was taken out with its broker does not. Whether a broker is
alive is not known here: each one has its own view of its links. Called by `cluster.py`; the functions
at the end by the broker itself.
"""

import dataclasses
from itertools import count

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.commands import Done, RegisterBroker, Registered, UnregisterBroker
from dmq.machines.machine import Outcome
from dmq.machines.records import (
    BrokerGoneRecord,
    BrokerRecord,
    RegistrationsRecord,
    encode,
)
from dmq.machines.state import ClusterState
from dmq.types import Voter

PEER_LISTENER = "PEER"
"""The endpoint of this name is where other brokers reach a broker; no client is told of it."""
NODE_MAX = 2**31 - 1
"""The highest number that a broker can have: clients are told it in four bytes."""
FORMER_OF_ONE_MAX = 8
FORMER_MAX = 256
"""Data directories that are remembered when their broker was taken out: of one number, and of all."""


def register(state: ClusterState, command: RegisterBroker) -> Outcome[Registered]:
    """A process becomes a broker, or says something new about itself. Raises KafkaError."""
    _check_belongs(state, command)
    _check_number(command)
    node = command.node if command.node >= 0 else _number_for(state, command)
    known = state.brokers.get(node)
    _check_epoch(command, known)
    _check_stays(state, command, known)
    _check_disk(state, node, command, known)
    next_epoch = _next_epoch(state)
    is_same_process = known is not None and known.incarnation == command.incarnation
    epoch = known.epoch if known is not None and is_same_process else next_epoch
    fact = BrokerRecord(
        node=node,
        directory=command.directory,
        incarnation=command.incarnation,
        epoch=epoch,
        rack=command.rack,
        endpoints=command.endpoints,
        features=dict(command.features),
        journal_seq=command.journal_seq,
        # What an operator asked for is not undone by a restart.
        is_leaving=known is not None and known.is_leaving,
    )
    records = [encode(fact)] if fact != known else []
    # Who does not name the cluster begins anew, though it may have asked before.
    former = tuple(gone for gone in state.former if gone != (node, command.directory))
    counters = RegistrationsRecord(
        max(_next_node(state), node + 1), max(next_epoch, epoch + 1), former
    )
    if counters != RegistrationsRecord(state.next_node, state.next_epoch, state.former):
        records.append(encode(counters))  # Last: `is_fenced` rests on it.
    return Outcome(Registered(node, epoch), records)


def _number_for(state: ClusterState, command: RegisterBroker) -> int:
    for broker in state.brokers.values():
        if broker.directory == command.directory:
            return broker.node
    if (node := _next_node(state)) <= NODE_MAX:
        return node
    # Somebody chose the highest: the lowest that nobody has, nor is known to have had.
    taken = {*state.brokers, *(voter.node for voter in state.former)}
    return next(node for node in count(1) if node not in taken)


def _next_node(state: ClusterState) -> int:
    """Data directories of before this was written down have brokers, but no counter."""
    return max(state.next_node, max(state.brokers, default=0) + 1)


def _next_epoch(state: ClusterState) -> int:
    return max(state.next_epoch, *(broker.epoch + 1 for broker in state.brokers.values()), 1)


def _former_with(state: ClusterState, broker: BrokerRecord) -> tuple[Voter, ...]:
    """Those that were taken out, and this one."""
    former = [*state.former, Voter(broker.node, broker.directory)]
    of_one = [voter for voter in former if voter.node == broker.node]
    if len(of_one) > FORMER_OF_ONE_MAX:
        former.remove(of_one[0])
    return tuple(former[-FORMER_MAX:])


def _check_belongs(state: ClusterState, command: RegisterBroker) -> None:
    ours = state.cluster_id
    if command.cluster_id is not None and command.cluster_id != ours:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"The broker belongs to cluster {command.cluster_id}, this is {ours}.",
        )
    for name, level in sorted(state.features.items()):
        levels = command.features.get(name)
        if levels is None or not levels.low <= level <= levels.high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The cluster runs {name} at level {level}, which the broker does not support.",
            )


def _check_number(command: RegisterBroker) -> None:
    if not -1 <= command.node <= NODE_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION,
            f"A broker's number is from 0 to {NODE_MAX}, not {command.node}.",
        )


def _check_epoch(command: RegisterBroker, known: BrokerRecord | None) -> None:
    if command.previous_epoch < 0:
        return
    if known is None or known.epoch != command.previous_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {command.node} is not the process that registered with epoch "
            f"{command.previous_epoch} any more.",
        )


def _check_stays(state: ClusterState, command: RegisterBroker, known: BrokerRecord | None) -> None:
    """Whoever was taken out does not come back because something starts its process again. The first
    of all brokers, which names the cluster, was never taken out."""
    is_back = known is None and command.cluster_id is not None and state.brokers
    if is_back and command.node < state.next_node:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"Broker {command.node} was taken out of this cluster. To take part again it joins with "
            "an empty data directory.",
        )
    is_named = command.cluster_id is not None
    if is_named and Voter(command.node, command.directory) in state.former:
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"This broker was taken out of the cluster, and another one has its number {command.node} "
            "now. To take part again it joins with an empty data directory, under a number of its "
            "own or none.",
        )


def _check_disk(
    state: ClusterState, node: int, command: RegisterBroker, known: BrokerRecord | None
) -> None:
    for other in state.brokers.values():
        if other.node != node and other.directory == command.directory:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Broker {other.node} has the data directory {command.directory} already.",
            )
    if (
        known is not None
        and known.directory == command.directory
        and command.journal_seq < known.journal_seq
    ):
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION,
            f"The journal of broker {node} went back from {known.journal_seq} to "
            f"{command.journal_seq}: its data directory is an old copy and must be reset.",
        )


def unregister(state: ClusterState, command: UnregisterBroker) -> Outcome[Done]:
    """A broker leaves; one that votes on the metadata is replaced there first. Raises KafkaError."""
    node = command.node
    broker = state.brokers.get(node)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {node}.")
    replicas = state.removals.get(node, 0)
    if node in state.loads:
        replicas += state.loads[node].replicas
    if replicas:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {node} still has {replicas} replica(s). Move them to other brokers first.",
        )
    if not any(not other.is_leaving for other in state.brokers.values() if other.node != node):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker {node} is the last one of this cluster."
        )
    if node not in command.voters:
        counters = RegistrationsRecord(
            _next_node(state), _next_epoch(state), _former_with(state, broker)
        )
        return Outcome(Done(), [encode(BrokerGoneRecord(node)), encode(counters)])
    leaving = dataclasses.replace(broker, is_leaving=True)
    return Outcome(Done(), [encode(leaving)] if leaving != broker else [])


def is_fenced(state: ClusterState, node: int, epoch: int) -> bool:
    """Whether the process that registered as `node` with `epoch` has to stop: a later one has its
    number, or it was unregistered. Not as long as its own registration has not been applied."""
    broker = state.brokers.get(node)
    return state.next_epoch > epoch if broker is None else broker.epoch > epoch


def is_unregistered(state: ClusterState, node: int, epoch: int) -> bool:
    """Whether it has to stop because its broker left the cluster."""
    return node not in state.brokers and is_fenced(state, node, epoch)


def peer_addresses(state: ClusterState, but: int) -> dict[int, tuple[str, int]]:
    """Where the other brokers than `but` can be reached by brokers."""
    return {
        node: (endpoint.host, endpoint.port)
        for node, broker in sorted(state.brokers.items())
        for endpoint in broker.endpoints
        if endpoint.name == PEER_LISTENER and node != but
    }
