"""Runs the transaction machine of one partition of `__transaction_state` while this broker leads it.

Gives it what it can't have by itself: producer ids that nobody had, the writing of markers, the time.
How its records get into the log, and when answers may leave, is the host's (host.py). Whoever leads
calls `lead`, and then `send_again`, `abort_timed_out` and `forget_idle` from time to time.
"""

import dataclasses
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from dmq.broker.answer import Answer
from dmq.broker.endings import Endings, WriteMarker
from dmq.errors import DmqError
from dmq.machines.machine import Command
from dmq.machines.transactions.commands import (
    AbortTimedOut,
    Ending,
    ForgetIdle,
    MarkersWritten,
    NeedsProducerIdError,
    ResumeEndings,
)
from dmq.machines.transactions.machine import TransactionMachine
from dmq.types import TopicPartition

R = TypeVar("R")

log = logging.getLogger("dmq.broker")


class Host(Protocol):
    """Who keeps the machine's records."""

    def submit(self, command: Command[R], now: int) -> Answer[R]: ...


class TransactionCoordinator:
    """See the module. `now` is wall time, as records carry it."""

    def __init__(
        self,
        machine: TransactionMachine,
        host: Host,
        *,
        new_producer_id: Callable[[], Answer[int]],
        write_marker: WriteMarker,
        has_partition: Callable[[TopicPartition], bool],
        now: Callable[[], int],
    ) -> None:
        self._machine = machine
        self._host = host
        self._new_producer_id = new_producer_id
        self._now = now
        self._leading_since: int | None = None
        self._has_resumed = False
        self._unfinished: list[Ending] = []
        """All their markers are written, and the disk refused to note it."""
        self.endings = Endings(write_marker, self._markers_written, has_partition)

    # --- leading -----------------------------------------------------------------------------

    def lead(self, coordinator_epoch: int) -> None:
        """The machine has read its log, and we lead: finish what is decided."""
        self.resign()
        self._machine.coordinator_epoch = coordinator_epoch
        self._leading_since = self._now()
        self._resume()

    def _resume(self) -> None:
        self._has_resumed = True
        self._host.submit(ResumeEndings(), self._now()).on_done(self._begin_all)

    def resign(self) -> None:
        """We lead no longer; the next coordinator finishes what is under way."""
        self._leading_since = None
        self._unfinished.clear()
        self.endings.clear()

    # --- commands ----------------------------------------------------------------------------

    def submit(self, command: Command[R]) -> Answer[R]:
        """Give a command of a client; markers that it sets going are on their way with its answer."""
        answer: Answer[R] = Answer()
        self._submit(command, answer)
        return answer

    def _submit(self, command: Command[R], answer: Answer[R]) -> None:
        given = self._host.submit(command, self._now())
        given.on_done(lambda done: self._answered(command, answer, done))

    def _answered(self, command: Command[R], answer: Answer[R], done: Answer[R]) -> None:
        try:
            response = done.get()
        except NeedsProducerIdError:
            self._new_producer_id().on_done(partial(self._ask_with_id, command, answer))
            return
        except DmqError as error:
            answer.fail(error)
            return
        ending: Ending | None = getattr(response, "ending", None)
        if ending is not None and self._leading_since is not None:
            self.endings.begin(ending)
        answer.resolve(response)

    def _ask_with_id(self, command: Any, answer: Answer[Any], new_id: Answer[int]) -> None:
        try:
            spare = new_id.get()
        except DmqError as error:
            answer.fail(error)
            return
        assert command.spare_producer_id < 0, "it had one"
        self._submit(dataclasses.replace(command, spare_producer_id=spare), answer)

    # --- time --------------------------------------------------------------------------------

    def send_again(self) -> None:
        """Try again what failed on its way to partitions, or to our own log."""
        if self._leading_since is not None and not self._has_resumed:
            self._resume()
        unfinished, self._unfinished = self._unfinished, []
        for ending in unfinished:
            self._markers_written(ending)
        self.endings.send_again()

    def abort_timed_out(self) -> None:
        """`transaction.abort.timed.out.transaction.cleanup.interval.ms` passed."""
        if self._leading_since is not None:
            command = AbortTimedOut(self._leading_since)
            self._host.submit(command, self._now()).on_done(self._begin_all)

    def forget_idle(self) -> Answer[int]:
        """`transaction.remove.expired.transaction.cleanup.interval.ms` passed. The answer is the
        number of ids that went; if it is not 0, there may be more."""
        return self._host.submit(ForgetIdle(), self._now())

    # --- endings -----------------------------------------------------------------------------

    def _begin_all(self, answer: Answer[list[Ending]]) -> None:
        try:
            endings = answer.get()
        except DmqError:
            self._has_resumed = False  # If we lead no longer, the next one begins with the same.
            return
        if self._leading_since is not None:
            for ending in endings:
                self.endings.begin(ending)

    def _markers_written(self, ending: Ending) -> None:
        given = self._host.submit(MarkersWritten(*ending[:3]), self._now())
        given.on_done(lambda done: self._noted(ending, done))

    def _noted(self, ending: Ending, done: Answer[bool]) -> None:
        try:
            done.get()
        except DmqError as error:
            if self._leading_since is not None:
                log.warning("the end of transaction %r is not noted: %s", ending[0], error)
                self._unfinished.append(ending)
