"""Group coordinators: how a command finds the machine of its group, and who runs that machine.

`Groups` is the verb that doors call; whoever knows which partitions of `__consumer_offsets` this
broker leads implements it, with one `GroupHost` for each. A host owns the order of things (SPEC §7):
records are appended as one batch and applied at once; every answer leaves when the position that the
state had is committed, also those that had to wait for other members, and one that came without records
when it is known that no other coordinator had newer ones. Never interprets a command.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from dmq.broker.answer import Answer
from dmq.errors import DmqError, ErrorCode, KafkaError
from dmq.machines.groups import commands as commands
from dmq.machines.groups import consumer_commands as consumer_commands
from dmq.machines.groups import offset_commands as offset_commands
from dmq.machines.groups.commands import ListedGroup, ListGroups
from dmq.machines.groups.machine import GroupMachine
from dmq.machines.groups.outcome import GroupOutcome, Later, TransactionalProducer
from dmq.machines.machine import Command, Record
from dmq.machines.state import ClusterState
from dmq.types import Millis

R = TypeVar("R")

_Leaving = tuple[Answer[Any], Any]
"""An answer and what it will be, once the log is committed."""

log = logging.getLogger("dmq.broker")


class Groups(Protocol):
    """Groups of the whole cluster, as one broker can serve them."""

    def submit(self, group_id: str, command: Command[R]) -> Answer[R]:
        """Give the coordinator of a group a command.

        Fails with NOT_COORDINATOR if that is another broker, COORDINATOR_LOAD_IN_PROGRESS or
        COORDINATOR_NOT_AVAILABLE if it can't answer yet, and as the command says.
        """
        ...

    def list_groups(self, command: ListGroups) -> Answer[list[ListedGroup]]:
        """The groups of all coordinators on this broker. Fails if one of them is still loading."""
        ...


class CoordinatingService(Protocol):
    """What handlers of group APIs need of the broker."""

    @property
    def groups(self) -> Groups: ...

    @property
    def cluster(self) -> ClusterState: ...


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that a group belongs to: Java's hash of its name, so
    that Kafka's tools look where we do."""
    number = 0
    for unit in _utf16_units(group_id):
        number = (31 * number + unit) & 0xFFFFFFFF
    if number == 1 << 31:
        number = 0  # The one number without an absolute value in Java.
    elif number > 1 << 31:
        number = (1 << 32) - number
    return number % partition_count


def _utf16_units(text: str) -> list[int]:
    raw = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]


_WAITING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
)


def coordinators_code(code: ErrorCode) -> ErrorCode:
    """What became of a coordinator's log, in the words that its clients know: look for the coordinator
    anew, or ask again later."""
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if code in _WAITING else code


class CoordinatorLog(Protocol):
    """What a host needs of the partition that is its machine's log."""

    def append(self, records: list[Record], producer: TransactionalProducer | None) -> None:
        """Append records as one batch, of a transactional producer if there is one.

        Raises StorageError or KafkaError, with nothing appended.
        """
        ...

    def when_committed(self, callback: Callable[[ErrorCode], None]) -> None:
        """Call when all that is in the log now is committed; with an error if it never will be."""
        ...

    def when_newest(self, callback: Callable[[ErrorCode], None]) -> None:
        """The same for what was only read: call when it is known to be the newest, too."""
        ...


class GroupHost:
    """Runs the group machine of one partition while this broker leads it."""

    def __init__(self, machine: GroupMachine, partition_log: CoordinatorLog) -> None:
        self.machine = machine
        self._log = partition_log
        self._waiting: dict[Later, Answer[Any]] = {}

    def lead(self, now: int) -> None:
        """The machine has read the log to its end, and this broker leads it."""
        self._perform(self.machine.lead(Millis(now)), [], now)

    def resign(self) -> None:
        """The leadership is over: whoever waits for other members is told at once. Answers that wait
        for the log only are told by the log."""
        for later, response in self.machine.resign():
            self._waiting.pop(later).resolve(response)
        assert not self._waiting, "whoever waited was told"

    def submit(self, command: Command[R], now: int) -> Answer[R]:
        """Give a command; the answer comes when what it rests on is committed, or later."""
        answer: Answer[R] = Answer()
        try:
            outcome = self.machine.handle(command, Millis(now))
        except DmqError as error:
            self._log.when_newest(partial(_refuse, answer, error))
            return answer
        if isinstance(outcome.response, Later):
            self._waiting[outcome.response] = answer
            self._perform(outcome, [], now)
        else:
            self._perform(outcome, [(answer, outcome.response)], now)
        return answer

    def next_deadline(self) -> int | None:
        """When `tick` must be called next."""
        return self.machine.next_deadline()

    def tick(self, now: int) -> None:
        """Do what is due."""
        while (outcome := self.machine.tick(Millis(now))) is not None:
            self._perform(outcome, [], now)

    def _perform(self, outcome: GroupOutcome[Any], leaving: list[_Leaving], now: int) -> None:
        """Append and apply what came of a call, and let its answers go when that is committed."""
        leaving += [(self._waiting.pop(later), response) for later, response in outcome.settled]
        if outcome.records:
            try:
                self._log.append(outcome.records, outcome.producer)
            except DmqError as error:
                self._refused(outcome, leaving, error, now)
                return
            producer_id = outcome.producer.producer_id if outcome.producer else -1
            for record in outcome.records:
                self.machine.apply(record, producer_id)
        if leaving and outcome.records:
            self._log.when_committed(partial(_leave, leaving))
        elif leaving:
            self._log.when_newest(partial(_leave, leaving))

    def _refused(
        self, outcome: GroupOutcome[Any], leaving: list[_Leaving], error: DmqError, now: int
    ) -> None:
        """The log took nothing, but what the leader knows beside it has moved on: begin the
        leadership again with what the log says."""
        log.warning("records of groups were refused: %s", error)
        if coordinators_code(error.code) is not error.code:
            error = KafkaError(coordinators_code(error.code))
        parked = self._waiting.pop(outcome.response, None)
        for answer in (*(answer for answer, _ in leaving), *([parked] if parked else ())):
            answer.fail(error)
        for later, response in self.machine.resign():
            if later in self._waiting:
                self._waiting.pop(later).resolve(response)
        self.lead(now)


def _leave(leaving: list[_Leaving], code: ErrorCode) -> None:
    for answer, response in leaving:
        if code is ErrorCode.NONE:
            answer.resolve(response)
        else:
            answer.fail(KafkaError(coordinators_code(code)))


def _refuse(answer: Answer[R], error: DmqError, code: ErrorCode) -> None:
    answer.fail(error if code is ErrorCode.NONE else KafkaError(coordinators_code(code)))
