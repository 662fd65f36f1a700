"""How a start comes to be registered in the metadata, as often as it takes.

    name       a founder that ended too early gives its cluster's name to the metadata
    register   what this process says of itself goes to whoever leads them
    again      while nobody does: it may be that nobody can, and that an operator's word helps

Waiting is the runtime's: `until` returns when its condition is true, and raises what ends the start.
Called by the runtime, once in a broker's life.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from dmq.broker.answer import Answer
from dmq.broker.assembly import Assembly
from dmq.broker.introduction import FINALIZED, Introduction
from dmq.broker.outliving import IsLinked, outlive
from dmq.broker.peers import PeerError
from dmq.broker.renaming import Accepted, check_others_vote
from dmq.errors import RETRIABLE, ErrorCode, KafkaError
from dmq.machines.commands import FormCluster

log = logging.getLogger("dmq.broker")


class Until(Protocol):
    """`what` is for people who wait. Raises what ends the start."""

    def __call__(self, condition: Callable[[], bool], what: str) -> Awaitable[None]: ...


class Registering:
    """See the module. `turn_now`: let what was staged become durable, if nobody else sees to that."""

    def __init__(
        self,
        parts: Assembly,
        introduction: Introduction,
        accepted: Accepted,
        is_linked: IsLinked,
        now: Callable[[], int],
        turn_now: Callable[[], None],
        until: Until,
    ) -> None:
        self._parts = parts
        self._service = parts.service
        self._introduction = introduction
        self._accepted = accepted
        self._is_linked = is_linked
        self._now = now
        self._turn_now = turn_now
        self._until = until
        self.has_outlived = False
        """Whether the metadata went on with what this broker has of them, by an operator's word."""

    async def register(self) -> None:
        """Tell the metadata that this broker is here; sets the service's broker epoch. Raises KafkaError
        or PeerError if it is refused, StorageError if nobody can ever lead the metadata."""
        identity = self._service.identity
        while True:
            await self._form_again()
            command = self._introduction.registration(identity.node_id, identity.cluster_id)
            answer = await self._done(command)
            try:
                self._service.broker_epoch = answer.get().epoch
            except (KafkaError, PeerError) as error:
                if error.code not in RETRIABLE and error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
                check_others_vote(self._parts.metadata.replica)
                log.warning("this broker is not registered yet: %s", error)
                self._outlive()
            else:
                return

    async def _form_again(self) -> None:
        """A founder that ended before its cluster's name was in the metadata has it in its directory
        alone. If the name is only not read yet, the metadata refuse it, and all is well."""
        replica = self._parts.metadata.replica
        is_named = self._parts.machine.state.cluster_id is not None
        if not is_named and list(replica.core.voters) == [replica.me]:
            await self._done(FormCluster(self._service.cluster_id, FINALIZED))

    async def _done(self, command: Any) -> Answer[Any]:
        """What became of a command."""
        answer = self._service.submit(command)
        self._turn_now()
        await self._until(partial(_is_done, answer), "looking for the metadata's leader")
        return answer

    def _outlive(self) -> None:
        self.has_outlived |= outlive(
            self._parts.metadata.replica, self._accepted.lost, self._is_linked, self._now()
        )


def _is_done(answer: Answer[Any]) -> bool:
    return answer.is_done
