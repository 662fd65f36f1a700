"""Commands to the metadata machine, wherever it is led: here, or by another broker, to which they go on.

A command that nobody can have begun is tried again until its time is over: without a leader, or with one
that says that it is none. One that was sent and got no answer is not: it may have been done, and the
caller is told so. The answer of another broker names the end of the metadata log that it rests on; it
is given here when this broker has applied as much, so whoever was answered finds it true here; but for
registrations, which their broker awaits itself.

Brokers tell each other how much metadata they have applied, so that an answer may also wait until all
that are linked know it. Called by the service; the machine's host does the work on the leader.
"""

import dataclasses
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from dmq.broker.answer import Answer
from dmq.broker.host import MachineHost
from dmq.broker.multiraft.replica import NotLeaderError
from dmq.broker.peers import PeerError, Peers
from dmq.broker.presence import Presence
from dmq.broker.timers import Timers
from dmq.errors import DmqError, ErrorCode, KafkaError, ProtocolError
from dmq.machines.codec import decode_command, decode_result, encode_command, encode_result
from dmq.machines.commands import (
    CreatePartitions,
    CreateTopics,
    RegisterBroker,
    UnregisterBroker,
)
from dmq.machines.machine import Command

R = TypeVar("R")

SUBMIT, APPLIED = "submit", "applied"
"""Verbs between brokers."""
PATIENCE_MS = 15_000
"""How long a command may look for a leader."""
RETRY_MS = 50
EVERYWHERE_MS = 2_000
"""How long an answer waits for brokers that are slow to learn of it."""
_NOT_HERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER)
_OFFSET = struct.Struct(">q")


class Forwarding:
    """See the module. Without `peers` this broker is alone."""

    def __init__(
        self,
        host: MachineHost,
        node_id: int,
        peers: Peers | None,
        timers: Timers,
        wall: Callable[[], int],
        steady: Callable[[], int],
        presence: Presence | None = None,
    ) -> None:
        self._host = host
        self._node_id = node_id
        self._peers = peers
        self._timers = timers
        self._wall = wall
        self._steady = steady
        self._presence = presence
        self._told = -1
        self._asked = 0
        self._applied: dict[int, int] = {}
        """By broker: how much metadata it has applied, as it said."""
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        if peers is not None:
            peers.serve(SUBMIT, self._serve)
            peers.serve(APPLIED, self._hear)
            peers.watch(self._link_changed)

    def linked(self) -> list[int]:
        """The other brokers that are up, as far as this one hears."""
        return [] if self._presence is None else self._presence.heard()

    def listed(self) -> list[int]:
        """The other brokers that are up, as clients are told."""
        return [] if self._presence is None else self._presence.listed()

    # --- commands ----------------------------------------------------------------------------

    def submit(self, command: Command[R]) -> Answer[R]:
        """The machine's answer. Fails with its KafkaError, or NOT_CONTROLLER if nobody leads, or
        PeerError or REQUEST_TIMED_OUT if it is not known whether it was done."""
        answer: Answer[R] = Answer()
        self._try(command, answer, self._steady() + PATIENCE_MS)
        return answer

    def _try(self, command: Command[R], answer: Answer[R], deadline: int) -> None:
        if self._host.replica.is_leader:
            self.submit_here(command).on_done(partial(self._done_here, command, answer, deadline))
            return
        node = self._whom_to_ask(command)
        if node is not None and node != self._node_id and self._peers is not None:
            left = max(deadline - self._steady(), 1)
            call = self._peers.call(node, SUBMIT, encode_command(command), left)
            call.on_done(partial(self._done_there, command, answer, deadline))
        else:
            self._again(command, answer, deadline, KafkaError(ErrorCode.NOT_CONTROLLER))

    def _whom_to_ask(self, command: Command[R]) -> int | None:
        """Who may lead the metadata. A broker whose directory they don't know, because another took its
        place or because it got a new name, hears of no leader: its registration is tried with each."""
        leader = self._host.replica.leader
        if leader is not None:
            return leader.node
        if self._peers is None or not isinstance(command, RegisterBroker):
            return None
        linked = sorted(self._peers.linked())
        self._asked += 1
        return linked[self._asked % len(linked)] if linked else None

    def submit_here(self, command: Command[R]) -> Answer[R]:
        """On the leader. Fails with NotLeaderError if that is somebody else."""
        return self._host.submit(self._completed(command), self._wall())

    def _completed(self, command: Command[R]) -> Command[R]:
        """What only the metadata leader knows: who is alive, and who votes."""
        completed: Any = command
        if isinstance(command, CreateTopics | CreatePartitions) and command.usable is None:
            live = sorted([self._node_id, *self.linked()])
            completed = dataclasses.replace(command, usable=tuple(live))
        elif isinstance(command, UnregisterBroker):
            voters = tuple(voter.node for voter in self._host.replica.core.voters)
            completed = dataclasses.replace(command, voters=voters)
        return cast("Command[R]", completed)

    def _done_here(
        self, command: Command[R], answer: Answer[R], deadline: int, done: Answer[R]
    ) -> None:
        try:
            response = done.get()
        except NotLeaderError as error:  # Before anything was appended.
            self._again(command, answer, deadline, error)
        except DmqError as error:
            answer.fail(error)
        else:
            answer.resolve(response)

    def _done_there(
        self, command: Command[R], answer: Answer[R], deadline: int, done: Answer[bytes]
    ) -> None:
        try:
            body = done.get()
            offset, result = _OFFSET.unpack_from(body)[0], decode_result(body[_OFFSET.size :])
        except PeerError as error:
            if error.was_sent:
                answer.fail(error)
            else:
                self._again(command, answer, deadline, error)
        except KafkaError as error:
            if error.code in _NOT_HERE:
                self._again(command, answer, deadline, error)
            else:
                answer.fail(error)
        except DmqError as error:
            answer.fail(error)
        else:
            # Who is taken out as soon as it is registered will not be sent what it would wait for.
            needed = 0 if isinstance(command, RegisterBroker) else offset
            self._host.when_applied(needed, lambda: answer.resolve(result))

    def _again(
        self, command: Command[R], answer: Answer[R], deadline: int, error: DmqError
    ) -> None:
        now = self._steady()
        if now >= deadline:
            answer.fail(error)
            return
        self._timers.at(now + RETRY_MS, lambda: self._try(command, answer, deadline))

    # --- others' commands --------------------------------------------------------------------

    def _serve(self, node: int, body: bytes) -> Answer[bytes]:
        """Another broker's command. Raises ProtocolError."""
        answer: Answer[bytes] = Answer()

        def done(result: Answer[Any]) -> None:
            try:
                said = encode_result(result.get())
            except NotLeaderError:
                answer.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "another broker leads"))
                return
            except DmqError as error:
                said = encode_result(error)
            answer.resolve(_OFFSET.pack(self._host.committed) + said)

        self.submit_here(decode_command(body)).on_done(done)
        return answer

    # --- how far others are ------------------------------------------------------------------

    def when_everywhere(self, callback: Callable[[], None]) -> None:
        """Call when all brokers that are linked have applied what is committed here now, or when they
        take too long."""
        offset = self._host.committed
        if self._is_everywhere(offset):
            callback()
            return
        entry = (offset, callback)
        self._waiting.append(entry)

        def give_up() -> None:
            if entry in self._waiting:
                self._waiting.remove(entry)
                callback()

        self._timers.at(self._steady() + EVERYWHERE_MS, give_up)

    def _is_everywhere(self, offset: int) -> bool:
        return all(self._applied.get(node, offset) >= offset for node in self.linked())

    def tell_applied(self) -> None:
        """Tell the others how far we are, if we are further; called now and then."""
        if self._peers is not None and self._host.committed > self._told:
            self._told = self._host.committed
            for node in self._peers.linked():
                self._peers.cast(node, APPLIED, _OFFSET.pack(self._told))

    def _hear(self, node: int, body: bytes) -> Answer[bytes]:
        """Raises ProtocolError."""
        if len(body) != _OFFSET.size:
            raise ProtocolError(f"{len(body)} bytes are no offset")
        self._applied[node] = _OFFSET.unpack(body)[0]
        self._wake()
        return Answer.of(b"")

    def _link_changed(self, node: int, is_linked: bool) -> None:
        self._applied.pop(node, None)
        if is_linked:
            assert self._peers is not None
            self._peers.cast(node, APPLIED, _OFFSET.pack(self._host.committed))
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            if self._is_everywhere(entry[0]):
                entry[1]()
            else:
                self._waiting.append(entry)
