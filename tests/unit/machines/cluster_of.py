"""A cluster machine with some brokers, and the way a host drives it."""

import random
from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

from dmq.config.broker import BrokerConfig
from dmq.config.rules import ConfigRules
from dmq.config.settings import Settings
from dmq.machines.cluster import ClusterMachine
from dmq.machines.commands import (
    AlterConfigs,
    ConfigAltered,
    ConfigChange,
    CreateTopics,
    FormCluster,
    NewTopic,
    RegisterBroker,
    TopicCreated,
)
from dmq.machines.machine import Command, Record
from dmq.machines.records import FeatureRange
from dmq.machines.state import ClusterState
from dmq.types import Millis

R = TypeVar("R")

SUPPORTED_FEATURES = {"dmq.version": FeatureRange(1, 1)}


class Cluster:
    """A machine, its log, and dice for ids."""

    def __init__(self, brokers: int = 1, racks: tuple[str, ...] = ()) -> None:
        self.dice = random.Random(1)
        self.machine = new_machine()
        self.log: list[Record] = []
        self.do(FormCluster("test", {"dmq.version": 1}))
        for node in range(1, brokers + 1):
            self.do(self.registration(node, rack=racks[node - 1] if racks else None))

    @property
    def state(self) -> ClusterState:
        return self.machine.state

    def uuid(self) -> UUID:
        return UUID(int=self.dice.getrandbits(128))

    def registration(self, node: int, **details: object) -> RegisterBroker:
        known = {
            "directory": self.uuid(),
            "incarnation": self.uuid(),
            "features": SUPPORTED_FEATURES,
        }
        return RegisterBroker(node, **(known | details))  # type: ignore[arg-type]

    def do(self, command: Command[R]) -> R:
        outcome = self.machine.handle(command, Millis(0))
        for record in outcome.records:
            self.machine.apply(record)
        self.log += outcome.records
        return outcome.response

    def create(
        self, name: str, partitions: int = -1, replicas: int = -1, **more: object
    ) -> TopicCreated:
        validate_only = bool(more.pop("validate_only", False))
        topic = NewTopic(name, self.uuid(), partitions, replicas, **more)  # type: ignore[arg-type]
        (created,) = self.do(CreateTopics((topic,), validate_only))
        return created

    def alter(
        self, resource: int, name: str, *changes: tuple[str, int, str | None], **more: bool
    ) -> ConfigAltered:
        (altered,) = self.do(AlterConfigs((ConfigChange(resource, name, changes),), **more))
        return altered


def new_machine() -> ClusterMachine:
    return ClusterMachine(ConfigRules(Settings(BrokerConfig())), SUPPORTED_FEATURES)


def load_state(log: Iterable[Record]) -> ClusterState:
    """What a log means to a machine that has seen nothing else."""
    machine = new_machine()
    for record in log:
        machine.apply(record)
    return machine.state
