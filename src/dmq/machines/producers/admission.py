"""Admission: what a leader does with a batch in a transaction, from its arrival to the log.

Joins the two that know about it: the producer state (is the transaction open in this log?) and the guards
(did the coordinator vouch for it, and has nothing ended it since?).

    check(header)     None: append it · Duplicate: it is there · Leave: ask the coordinator first, with
                      this token; if it says yes, `vouch` and check again. Raises KafkaError
    vouch(leave, …)   the coordinator said yes, whatever became of the token meanwhile
    appended(…)       tells both that a batch, or a marker, is in the log

Batches without a transaction cost one look at a bit more than `ProducerState.check`. One per leadership:
tokens of a former one stand for nothing.
"""

from typing import NamedTuple

from dmq.machines.producers.entries import Marker
from dmq.machines.producers.guards import VerificationGuards
from dmq.machines.producers.rules import NOT_VERIFIED
from dmq.machines.producers.state import Duplicate, ProducerState
from dmq.records import TRANSACTIONAL, BatchHeader
from dmq.types import Position


class Leave(NamedTuple):
    """The coordinator must be asked about this producer's transaction."""

    producer_id: int
    producer_epoch: int
    token: int


class Admission:
    """See the module."""

    __slots__ = ("guards", "state")

    def __init__(self, state: ProducerState, guards: VerificationGuards) -> None:
        self.state = state
        self.guards = guards

    def check(self, header: BatchHeader, now: int) -> Duplicate | Leave | None:
        """May a client's batch be appended? `now` is only for forgetting old questions."""
        producer_id = header[9]
        if producer_id < 0 or not header[5] & TRANSACTIONAL:
            return self.state.check(header)
        epoch, sequence = header.producer_epoch, header.base_sequence
        if self.state.has_open(producer_id, epoch):
            return self.state.check(header)
        verified = self.guards.verified(producer_id, epoch)
        if verified == NOT_VERIFIED:
            known = self.state.check_unverified(header)
            return known or Leave(
                producer_id, epoch, self.guards.ask(producer_id, epoch, sequence, now)
            )
        verdict = self.state.check(header, verified)
        if verdict is None:
            self.guards.check_order(producer_id, sequence)
        return verdict

    def check_own(self, header: BatchHeader, now: int) -> Leave | None:
        """The same for a coordinator's batch in a producer's name, which has no sequence."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        if self.state.has_open(producer_id, epoch):
            self.state.check_own(header)
            return None
        verified = self.guards.verified(producer_id, epoch)
        if verified == NOT_VERIFIED:
            self.state.check_unverified(header)
            return Leave(producer_id, epoch, self.guards.ask(producer_id, epoch, -1, now))
        self.state.check_own(header, verified)
        return None

    def vouch(self, leave: Leave, version: int) -> bool:
        """The coordinator has the partition in the transaction, which is of this version. False: the
        transaction ended, or went on, without waiting for us; a new check says what that means."""
        return self.guards.vouch(leave.producer_id, leave.token, version)

    def appended(
        self, header: BatchHeader, position: Position, marker: Marker | None = None
    ) -> None:
        """A batch is in the log; see `ProducerState.appended`."""
        self.state.appended(header, position, marker)
        if header[5] & TRANSACTIONAL and self.guards:
            if marker is None:
                self.guards.appended(header.producer_id)
            else:
                self.guards.revoke(header.producer_id)
