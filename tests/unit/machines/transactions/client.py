"""A transactional client: begins, writes, ends, asks again when no answer comes.

What it was told about each transaction is what the world is judged by.
"""

from typing import TYPE_CHECKING, Any

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.transactions.commands import AddPartitions, EndTransaction, InitProducerId
from dmq.types import TopicPartition

if TYPE_CHECKING:
    from unit.machines.transactions.world import World

TIMEOUT_MS = 10_000
IN_FLIGHT = 3
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
LATER = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class Txn:
    """One transaction, as its client sees it."""

    def __init__(self, client: "Client", producer: tuple[int, int], number: int) -> None:
        self.client = client
        self.producer = producer
        dice = client.world.dice
        places = dice.choices(range(len(client.world.partitions)), k=dice.randint(1, 4))
        self.wanted = [(p, f"{client.label}/{number}/{n}") for n, p in enumerate(places)]
        self.values = {value for _, value in self.wanted}
        self.added: set[int] = set()
        self.flying: list[tuple[int, int, str]] = []
        self.acked: set[str] = set()
        self.wish: bool | None = None
        """To commit or to abort; None: still writing."""
        self.outcome = "open"

    def check(self, visible: set[str]) -> None:
        """All or nothing, and as the client was told."""
        seen = self.values & visible
        if self.outcome == "committed":
            assert seen == self.values, (self.values, seen)
        elif self.outcome == "unknown":
            assert seen in (set(), self.values), f"torn: {seen} of {self.values}"
        else:
            assert not seen, (self.outcome, seen)


class Client:
    """See the module; `act` does or repeats what is next."""

    def __init__(self, world: "World", name: str, number: int, version: int) -> None:
        self.world = world
        self.name = name
        self.label = f"{name}{number}"
        self.version = version
        self.producer: tuple[int, int] | None = None
        self.had: tuple[int, int] | None = None
        self.sequences: dict[int, int] = {}
        self.txn: Txn | None = None
        self.transactions: list[Txn] = []
        self.is_dead = False
        self.attempt = 0

    @property
    def is_done(self) -> bool:
        return self.txn is None or self.is_dead

    def act(self) -> None:
        if self.is_dead:
            return
        if self.producer is None:
            if not self.world.is_healing:
                self.init()
        elif self.txn is None:
            if not self.world.is_healing:
                self.txn = Txn(self, self.producer, len(self.transactions))
                self.transactions.append(self.txn)
        elif self.txn.wish is None:
            self.write(self.txn)
        else:
            self.end(self.txn)

    # ---- init

    def init(self) -> None:
        """A newcomer's request must not come twice: it takes the name from whoever has it, also
        from the newcomer itself. So it closes the connection before it asks again."""
        had = self.had or (-1, -1)
        command = InitProducerId(self.name, TIMEOUT_MS, *had)
        self.attempt += 1
        attempt = self.attempt

        def is_open() -> bool:
            return self.producer is None and attempt == self.attempt and not self.is_dead

        def answered(answer: Any) -> None:
            if not is_open():
                return
            code = answer.code
            if code in FENCED:
                self.die()
            elif not isinstance(answer, KafkaError) and code is ErrorCode.NONE:
                self.known_as((answer.producer_id, answer.producer_epoch))

        self.world.ask_coordinator(self.label, command, answered, is_open)

    def known_as(self, producer: tuple[int, int]) -> None:
        if producer != self.producer:
            if self.had != producer:
                self.sequences = {}
            self.producer, self.had = producer, None

    def die(self) -> None:
        self.is_dead = True
        if self.txn is not None:
            self.txn.outcome = "unknown" if self.txn.wish else "left"

    # ---- write

    def write(self, txn: Txn) -> None:
        for request in txn.flying:
            if self.world.dice.random() < 0.5 or self.world.is_healing:
                self.send(txn, request)
        if txn.wanted and len(txn.flying) < IN_FLIGHT:
            index, value = txn.wanted[0]
            if self.version == 1 and index not in txn.added:
                self.add(txn, index)
                return
            txn.wanted.pop(0)
            sequence = self.sequences.get(index, 0)
            self.sequences[index] = sequence + 1
            txn.flying.append((index, sequence, value))
            self.send(txn, txn.flying[-1])
        elif not txn.flying and not txn.wanted:
            txn.wish = self.world.dice.random() < 0.7
        if self.world.dice.random() < 0.03:
            txn.wish = False

    def send(self, txn: Txn, request: tuple[int, int, str]) -> None:
        def answered(code: ErrorCode) -> None:
            if txn is not self.txn or request not in txn.flying:
                return
            if code is ErrorCode.NONE:
                txn.flying.remove(request)
                txn.acked.add(request[2])
            elif code not in LATER:
                self.give_up(txn)

        self.world.produce(txn, request, answered)

    def add(self, txn: Txn, index: int) -> None:
        def answered(answer: Any) -> None:
            if txn is not self.txn or self.is_dead:
                return
            if not isinstance(answer, KafkaError):
                txn.added.add(index)
            elif answer.code not in LATER:
                self.give_up(txn)

        wanted = frozenset({TopicPartition("t", index)})
        command = AddPartitions(self.name, *txn.producer, wanted, 1)
        self.world.ask_coordinator(self.label, command, answered)

    def give_up(self, txn: Txn) -> None:
        if txn.wish is None:
            txn.wish = False
            self.world.reached["gave up"] += 1

    # ---- end

    def end(self, txn: Txn) -> None:
        assert txn.wish is not None
        assert not txn.wish or txn.acked == txn.values
        command = EndTransaction(self.name, *txn.producer, txn.wish, self.version)

        def answered(answer: Any) -> None:
            if txn is not self.txn or self.is_dead:
                return
            if not isinstance(answer, KafkaError):
                txn.outcome = "committed" if txn.wish else "aborted"
                self.ended(txn, (answer.producer_id, answer.producer_epoch))
            elif answer.code in FENCED:
                self.world.reached["fenced"] += 1
                self.die()
            elif answer.code is ErrorCode.INVALID_TXN_STATE:
                txn.outcome = "refused"
                self.ended(txn, None)

        self.world.ask_coordinator(self.label, command, answered)

    def ended(self, txn: Txn, producer: tuple[int, int] | None) -> None:
        self.txn = None
        if producer is None:
            self.producer = None
        elif self.version >= 2:
            self.known_as(producer)
        elif txn.flying or txn.wanted:  # What became of those is unknown: a new epoch.
            self.had, self.producer = txn.producer, None
