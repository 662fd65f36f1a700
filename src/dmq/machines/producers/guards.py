"""Leave to write into a transaction: tokens that stand from the question to the append (KIP-890).

Before the first batch of a transaction enters a partition, its leader asks the coordinator. While the
answer is under way the transaction may end, or another producer may take its name; a batch that
entered then would leave a transaction open for ever. So the leader takes a token before it asks and
appends only if the token still stands: a marker revokes it, a newer epoch replaces it.

    ask       take the token, or the one that stands for this epoch already
    vouch     the coordinator said yes; False if the token does not stand any more
    refuse    it said that this is not the producer: the token is gone
    verified  at the append: what was vouched for and not revoked since
    appended  the first batch is in the log: from now on the open transaction there vouches for it
    revoke    a marker is in the log

Batches of one producer that wait for the same answer must enter in order: a later one does not go
before the lowest sequence that asked. Soft state of the leader; a new one asks again.
"""

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.producers.entries import NO_SEQUENCE, is_before
from dmq.machines.producers.rules import NOT_VERIFIED

GUARDS_MAX = 10_000
"""At the limit the oldest question is forgotten: its batch is refused, and the client asks anew."""


class _Guard:
    __slots__ = ("epoch", "lowest_sequence", "since", "token", "version")

    def __init__(self, token: int, epoch: int, sequence: int, since: int) -> None:
        self.token = token
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.since = since
        self.version = NOT_VERIFIED


class VerificationGuards:
    """The tokens of one partition's leader, one per producer."""

    __slots__ = ("_guards", "_last_token")

    def __init__(self) -> None:
        self._guards: dict[int, _Guard] = {}
        self._last_token = 0

    def __len__(self) -> int:
        return len(self._guards)

    def ask(self, producer_id: int, epoch: int, sequence: int, now: int) -> int:
        """The token to append with. Raises KafkaError if a newer epoch asked before."""
        guard = self._guards.get(producer_id)
        if guard is not None and epoch < guard.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} of epoch {epoch} was replaced by epoch {guard.epoch}",
            )
        if guard is not None and epoch == guard.epoch:
            if sequence >= 0 and (
                guard.lowest_sequence < 0 or is_before(sequence, guard.lowest_sequence)
            ):
                guard.lowest_sequence = sequence
            return guard.token
        if len(self._guards) >= GUARDS_MAX:
            del self._guards[next(iter(self._guards))]
        self._guards.pop(producer_id, None)
        self._last_token += 1
        self._guards[producer_id] = _Guard(self._last_token, epoch, sequence, now)
        return self._last_token

    def check_order(self, producer_id: int, sequence: int) -> None:
        """Raises KafkaError if an earlier batch of the same producer still waits."""
        guard = self._guards.get(producer_id)
        lowest = NO_SEQUENCE if guard is None else guard.lowest_sequence
        if lowest >= 0 and is_before(lowest, sequence):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {sequence}, {lowest} has not come in yet",
            )

    def vouch(self, producer_id: int, token: int, version: int) -> bool:
        """The coordinator has this partition in the transaction, which is of this version."""
        guard = self._guards.get(producer_id)
        if guard is None or guard.token != token:
            return False
        guard.version = version
        return True

    def refuse(self, producer_id: int, token: int) -> None:
        """The coordinator knows no such producer: what it said of its epoch must not fence others."""
        guard = self._guards.get(producer_id)
        if guard is not None and guard.token == token and guard.version == NOT_VERIFIED:
            del self._guards[producer_id]

    def verified(self, producer_id: int, epoch: int) -> int:
        """What `ProducerState.check` wants to know: the version that was vouched for, or 0."""
        guard = self._guards.get(producer_id)
        return NOT_VERIFIED if guard is None or guard.epoch != epoch else guard.version

    def stands(self, producer_id: int, token: int) -> bool:
        guard = self._guards.get(producer_id)
        return guard is not None and guard.token == token

    def appended(self, producer_id: int) -> None:
        """A batch of the transaction is in the log, which vouches for the next ones."""
        self._guards.pop(producer_id, None)

    def revoke(self, producer_id: int) -> None:
        """The transaction ended: whoever still waits to enter it must not."""
        self._guards.pop(producer_id, None)

    def expire(self, before: int) -> None:
        """Forget questions older than this: nobody waits for them any more."""
        gone = [producer for producer, guard in self._guards.items() if guard.since < before]
        for producer_id in gone:
            del self._guards[producer_id]

    def clear(self) -> None:
        """We lead no longer."""
        self._guards.clear()
