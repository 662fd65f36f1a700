"""The end of a batch on the driver: decided once, carried out by whoever comes first.

Each task has left a transaction open. `Committer.commit` makes a batch of them:

    1 take over    the decider's id is ours; an older driver can decide nothing any more
    2 look         the log's last decision. This batch or a later one: it is a replay, go to 5
    3 check        all transactions are open and will be for a while, and the last decision names
                   none of them as about to be aborted; else fail, nothing is lost. What time it is
                   the coordinator tells: that of the decider's transaction, which is opened here
    4 decide       the list of transactions, in a transaction of the decider      ← the one moment
    5 carry out    commit each of them; again and again is the same as once
    6 note         what other transactions of this query are open
    7 close        the decision with `is_ended` and what was noted, in a transaction of the decider
    8 sweep        abort what was noted in 6

A driver that dies before 4 leaves nothing that readers see; its transactions are swept by the next. One
that dies after 4 has decided: Spark runs the batch again, and 2 sends it to 5.

Why the sweep hurts nobody: 7 succeeds only if nobody has taken over since 1, so what was noted in 6 is
in no decision yet. It may be the next batch of a newer driver, if this one slept while that one ended
this batch. Whoever takes over after 7 reads in 2 what was noted, and in 3 does not decide on it. And
the sweep ends exactly what was noted, by epoch, not what the same ids do later.

A task that the driver no longer waits for may open its transaction after 6. Once that is done it calls
`is_over`, which finds what 4 has written: so of the two, one sees the other.

A job has no next driver. Any other job or stream that finds its decision not ended after a minute takes
over and goes to 5; if the driver was only slow, it finds its transactions committed and itself fenced in
7, and is done. Where nobody came before the transactions timed out, this is told in the log, once.

`Committer.abort` may come after 4 (Spark calls it when a commit failed in its middle). So it takes over
and looks first, and carries a decision out rather than undo it.

Spark does not say whose batch it aborts, only what finished tasks have told. Where none has, `abandon`
finds the query by the place of its checkpoint, which is a part of the tasks' ids. It does not know which
of its runs has ended, so it notes and closes as in 6 to 8 before it sweeps.
"""

import logging
import re
import time
from dataclasses import dataclass

from dmq.errors import DmqError
from dmq.spark.cluster import Cluster
from dmq.spark.decisions import Decider, Decision, DecisionLog, FencedError
from dmq.spark.failures import SparkSourceError
from dmq.spark.transactions import Standing, Transaction, Transactions

SPARE_SHARE = 10
"""A transaction must have a tenth of its time left when it is decided, for a restart of the driver."""
SETTLE_PATIENCE_S = 60.0
"""How long a job waits for its rows to be seen. They are committed already; disks may be slow."""
STRAGGLERS_S = 3.0
"""How long tasks of a failed job may go on: Spark waits 2 s (spark.python.task.killTimeout)."""
ABANDONED_MS = 60_000
"""A job's decision that is this old without an end has lost its driver."""
JOB = "job-"
"""How the name of a write begins that is not a stream's."""

_log = logging.getLogger(__name__)


class IncompleteError(SparkSourceError):
    """Brokers aborted a part of what was decided before anybody came to commit it."""


@dataclass(frozen=True)
class Writing:
    """What is written together: a stream's query in one of its runs, or one job."""

    prefix: str
    query: str
    run: str = ""
    place: str = ""
    """Where a stream's checkpoint is, in short, if that is known."""

    @property
    def ids(self) -> str:
        """How the transactional ids of all runs begin."""
        return f"{self.prefix}.{self.query}."

    @property
    def ids_of_run(self) -> str:
        """How the transactional ids of this run's tasks begin, without the dot behind."""
        return ".".join(filter(None, (self.prefix, self.query, self.run, self.place)))

    @property
    def decider(self) -> str:
        """The decider's transactional id, which is no task's."""
        return f"{self.prefix}.{self.query}.decider"

    @property
    def is_job(self) -> bool:
        """Is it decided once, and then never again?"""
        return self.query.startswith(JOB)


def is_over(cluster: Cluster, writing: Writing, batch: int) -> bool:
    """Has a driver ended this batch, so that a task that is still at it is one too many?

    A job's driver takes the decider's id only when it has heard of all tasks; what it decides does not
    stay in the log. A stream's decision is in the log, if its decider is not in the middle of it.
    """
    transactions = Transactions(cluster)
    deadline = time.monotonic() + SETTLE_PATIENCE_S
    while True:
        decider = transactions.standing([writing.decider]).get(writing.decider)
        if decider is None:
            return False
        if writing.is_job:
            return True
        if decider.is_open or decider.is_settled or time.monotonic() > deadline:
            break
        time.sleep(0.005)
    last = DecisionLog(cluster).read().get(writing.query)
    return last is not None and last.batch >= batch


def abandon(cluster: Cluster, prefix: str, place: str) -> None:
    """End what the tasks of a query have open of which only the checkpoint's place is known.

    Looks until Spark has stopped all tasks, and no longer: what begins then is a newer driver's.
    """
    transactions = Transactions(cluster)
    one = re.compile(rf"{re.escape(prefix)}\.([^.]+)\.[^.]+\.{re.escape(place)}\.[^.]+\.\d+")
    deadline = time.monotonic() + STRAGGLERS_S
    is_last = False
    while not is_last:
        is_last = time.monotonic() > deadline
        matches = map(one.fullmatch, transactions.open_ids(f"{prefix}."))
        for query in sorted({match[1] for match in matches if match}):
            Committer(cluster, Writing(prefix, query)).sweep()
        time.sleep(0.1)


class Committer:
    """Commits and aborts batches of one query or job."""

    def __init__(self, cluster: Cluster, writing: Writing) -> None:
        self._writing = writing
        self._cluster = cluster
        self.transactions = Transactions(cluster)
        self.log = DecisionLog(cluster)
        self.decider = Decider(cluster, self.transactions, writing.decider, writing.query)

    def commit(self, batch: int, ours: list[Transaction]) -> None:
        """Make the batch visible, all of it, once. Raises SparkSourceError if it can't be."""
        self.log.ensure()
        self.decider.take_over()
        decisions = self.log.read()
        last = decisions.get(self._writing.query)
        if last is None or last.batch < batch:
            self._check(ours, () if last is None else last.swept)
            last = self._decide(batch, ours)
        self._finish(last)
        named = {each.id for each in last.transactions}
        for transaction in ours:
            if last.batch != batch or transaction.id not in named:
                self.transactions.abort(transaction)  # A replay wrote what was decided already.
        if self._writing.is_job:
            self.settle([each.id for each in ours])
        self._help_abandoned(decisions, last.decided_ms)

    def abort(self, batch: int, ours: list[Transaction]) -> None:
        """End what tasks have left open, unless the batch was decided before its commit failed."""
        if self.log.exists():
            last = self.last_decision()
            if last is not None and last.batch >= batch:
                self._finish(last)
                return
        for transaction in ours:
            self.transactions.abort(transaction)
        if self._writing.run or self._writing.is_job:
            # Tasks of this run that told nobody. Another run's may be those of a newer driver.
            self._sweep_until_quiet(f"{self._writing.ids}{self._writing.run}")

    def sweep(self) -> None:
        """End what tasks have left open in any run, except for what was decided: that is carried out."""
        self.log.ensure()
        nothing = Decision(self._writing.query, batch=-1, transactions=(), is_ended=True)
        try:
            self._finish(self.last_decision() or nothing)
        except FencedError:
            return  # By a newer driver, which sweeps itself.

    def last_decision(self) -> Decision | None:
        """What was decided last; nobody else decides from here on, until they take over."""
        self.decider.take_over()
        return self.log.read().get(self._writing.query)

    # --- the steps

    def _check(self, ours: list[Transaction], swept: tuple[Transaction, ...] = ()) -> None:
        standing = self.transactions.standing(each.id for each in ours)
        now_ms = self.decider.begin()
        for transaction in ours:
            found = standing.get(transaction.id)
            if transaction in swept:
                raise SparkSourceError(
                    f"transaction {transaction.id} is being aborted by an older driver of this query,"
                    " which has slept and came late. Nothing of the batch was committed; see to it"
                    " that only one driver runs with this checkpoint, and start the query again."
                )
            if found is None or not found.is_open or found.transaction != transaction:
                state = "gone" if found is None else found.state
                raise SparkSourceError(
                    f"transaction {transaction.id} is no longer open ({state}): the batch took longer"
                    " than kafka.transaction.timeout.ms, or another driver of this query aborted it."
                    " Nothing of the batch was committed; raise the time-out, or make batches smaller."
                )
            left_ms = found.started_ms + found.timeout_ms - now_ms
            if left_ms * SPARE_SHARE < found.timeout_ms:
                raise SparkSourceError(
                    f"the batch took so long that transaction {transaction.id} ends in {left_ms} ms:"
                    " too soon to decide on it. Nothing of the batch was committed; raise"
                    f" kafka.transaction.timeout.ms (now {found.timeout_ms}), or make batches smaller."
                    " If the batch was short, the clocks of the brokers differ: set them right."
                )

    def _decide(self, batch: int, ours: list[Transaction]) -> Decision:
        writing, now_ms = self._writing, self.decider.begin()
        decision = Decision(
            writing.query, batch, tuple(ours), writing.run, is_ended=not ours, decided_ms=now_ms
        )
        self.decider.open(decision)
        self.decider.seal()
        return decision

    def _finish(self, decision: Decision) -> None:
        """Steps 5 to 8."""
        lost = [] if decision.is_ended else self.transactions.commit_all([*decision.transactions])
        if lost:
            raise IncompleteError(
                f"batch {decision.batch} was decided, but {len(lost)} of its"
                f" {len(decision.transactions)} transactions had been aborted before they could be"
                f" committed ({lost[0].id}, …): the driver was away for longer than"
                " kafka.transaction.timeout.ms. Their records are missing; write them again by hand,"
                " then go on from a new checkpoint, and choose a longer time-out."
            )
        named = {each.id for each in decision.transactions}
        found = [each.transaction for each in self._open(self._writing.ids)]
        noted = tuple(each for each in found if each.id not in named)
        try:
            self.decider.open(None if self._writing.is_job else decision.ended(noted))
            self.decider.seal()
        except FencedError:
            if not self._writing.is_job:
                raise
            # A job is taken over only to carry out what it has decided, and that is done: who came
            # to help closes and sweeps.
            return
        for transaction in noted:
            self.transactions.abort(transaction)

    def _open(self, prefix: str) -> list[Standing]:
        ids = [i for i in self.transactions.open_ids(prefix) if i != self._writing.decider]
        return [each for each in self.transactions.standing(ids).values() if each.is_open]

    def _sweep_until_quiet(self, prefix: str) -> None:
        """Abort what tasks have open, and what those yet begin that have not heard of their end.

        Spark calls `abort` while it still stops tasks. One that begins its transaction after a look
        and is killed then would leave it open for as long as the time-out is.
        """
        deadline = time.monotonic() + STRAGGLERS_S
        is_last = False
        while not is_last:
            is_last = time.monotonic() > deadline  # Looks may be slow: one is behind the deadline.
            for standing in self._open(prefix):
                self.transactions.abort(standing.transaction)
                deadline, is_last = time.monotonic() + STRAGGLERS_S, False
            time.sleep(0.1)

    def settle(self, ids: list[str]) -> None:
        """Wait until the ends are in all partitions, so that whoever reads next sees the rows."""
        deadline = time.monotonic() + SETTLE_PATIENCE_S
        while time.monotonic() < deadline:
            if all(each.is_settled for each in self.transactions.standing(ids).values()):
                return
            time.sleep(0.005)
        _log.warning(
            "committed, but readers do not see all rows yet: brokers are slow to write ends"
        )

    def _help_abandoned(self, decisions: dict[str, Decision], now_ms: int) -> None:
        """Carry out what a job has decided whose driver died over it: nobody else would."""
        before_ms = now_ms - ABANDONED_MS
        for decision in decisions.values():
            other = Writing(self._writing.prefix, decision.query)
            if other.is_job and other != self._writing and decision.decided_ms < before_ms:
                try:
                    Committer(self._cluster, other)._finish_for_another()
                except DmqError as error:
                    _log.warning("%s was left half committed: %s", decision.query, error)

    def _finish_for_another(self) -> None:
        decision = self.last_decision()
        if decision is None:
            return  # Somebody was faster.
        try:
            self._finish(decision)
        except IncompleteError as error:
            _log.error("%s was left half committed, and stays so: %s", self._writing.query, error)
            self.decider.open(None)
            self.decider.seal()
