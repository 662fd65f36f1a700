"""The transactional ids of one partition of `__transaction_state`: what its records say.

Owns the map and three orders of it: who was used last (for what may be forgotten), whose transaction
is open (for timeouts), whose is decided and not finished (for markers). Changes by `apply` only; the
machine's rules read it.
"""

from collections import OrderedDict
from collections.abc import Iterator

from dmq.machines.transactions.facts import PREPARED, Transaction, TransactionFact, TxnState


class TransactionState:
    """See the module."""

    __slots__ = ("_by_id", "_ongoing", "_prepared")

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Transaction] = OrderedDict()
        """The longest unused first."""
        self._ongoing: dict[str, None] = {}
        self._prepared: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, transactional_id: str) -> Transaction | None:
        return self._by_id.get(transactional_id)

    def apply(self, fact: TransactionFact) -> None:
        name, transaction = fact
        self._ongoing.pop(name, None)
        self._prepared.pop(name, None)
        if transaction is None or transaction.state is TxnState.DEAD:
            self._by_id.pop(name, None)
            return
        self._by_id[name] = transaction
        self._by_id.move_to_end(name)
        if transaction.state is TxnState.ONGOING:
            self._ongoing[name] = None
        elif transaction.state in PREPARED:
            self._prepared[name] = None

    def all(self) -> Iterator[tuple[str, Transaction]]:
        """Everybody, the longest unused first."""
        return iter(self._by_id.items())

    def ongoing(self) -> Iterator[tuple[str, Transaction]]:
        return ((name, self._by_id[name]) for name in self._ongoing)

    def prepared(self) -> Iterator[tuple[str, Transaction]]:
        return ((name, self._by_id[name]) for name in self._prepared)
