"""The end of a batch, step by step, without Spark: decided once, and carried out by whoever comes first.

Set KAFKA_SERVERS to run the same against another cluster.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest
from compat.eventually import eventually
from confluent_kafka import Consumer, TopicPartition
from spark.feeding import create

from dmq.errors import ErrorCode
from dmq.spark.cluster import Cluster, Settings
from dmq.spark.commits import JOB, Committer, Writing
from dmq.spark.connection import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, Connection
from dmq.spark.decisions import TOPIC, Decision, FencedError
from dmq.spark.failures import SparkSourceError
from dmq.spark.routing import Target
from dmq.spark.sink import StreamSink, write_task
from dmq.spark.sink_options import Columns, SinkOptions
from dmq.spark.transactions import LostTransactionError, Transaction
from dmq.spark.writer import TaskWriter
from dmq.testing import Broker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    given = os.environ.get("KAFKA_SERVERS")
    if given:
        yield given
        return
    with Broker({"num.partitions": 3}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    found = Cluster(Settings.of({"kafka.bootstrap.servers": servers}))
    yield found
    found.close()


@pytest.fixture
def topic() -> str:
    return f"out-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def query() -> str:
    return str(uuid.uuid4())


class Sink:
    """Tasks and drivers of one query, as Spark would run them."""

    def __init__(self, servers: str, cluster: Cluster, topic: str, query: str) -> None:
        self.servers, self.cluster, self.topic, self.query = servers, cluster, topic, query
        self._tasks = 0

    def task(self, run: str, *values: str, timeout_ms: int = 60_000) -> Transaction:
        """A task that has written and leaves its transaction open."""
        options = SinkOptions.of({
            "kafka.bootstrap.servers": self.servers,
            "topic": self.topic,
            "kafka.transaction.timeout.ms": str(timeout_ms),
        })  # fmt: skip
        self._tasks += 1
        id_ = f"{self.writing(run).ids}{run}.w.{self._tasks}"
        writer = TaskWriter(options, Columns(value=0), id_)
        writer.write([pa.record_batch([pa.array(values)], names=["value"])])
        assert writer.transaction is not None
        return writer.transaction

    def writing(self, run: str) -> Writing:
        return Writing("dmq-spark", self.query, run)

    def driver(self, run: str) -> Committer:
        return Committer(self.cluster, self.writing(run))

    def states(self, *transactions: Transaction) -> list[str]:
        standing = self.driver("").transactions.standing(each.id for each in transactions)
        return [standing[each.id].state for each in transactions]

    def are_over(self, *transactions: Transaction) -> bool:
        standing = self.driver("").transactions.standing(each.id for each in transactions)
        return all(each.is_settled for each in standing.values())

    def read(self) -> list[str]:
        """Committed values, up to the high watermark: nothing may be open."""
        consumer = Consumer({
            "bootstrap.servers": self.servers, "group.id": "reader", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True,
        })  # fmt: skip
        partitions = list(consumer.list_topics(self.topic, 10).topics[self.topic].partitions)
        consumer.assign([TopicPartition(self.topic, each, 0) for each in partitions])
        values, ends = [], set()
        while len(ends) < len(partitions):
            message = consumer.poll(10)
            assert message is not None, "the log has no end"
            if message.error():
                ends.add(message.partition())
            else:
                values.append(message.value().decode())
        consumer.close()
        return sorted(values)


@pytest.fixture
def sink(servers: str, cluster: Cluster, topic: str, query: str) -> Sink:
    return Sink(servers, cluster, topic, query)


def test_a_batch_is_seen_when_it_is_committed_and_not_before(sink: Sink) -> None:
    first, second = sink.task("r1", "a", "b"), sink.task("r1", "c")
    assert sink.read() == []
    sink.driver("r1").commit(0, [first, second])
    eventually(lambda: sink.read() == ["a", "b", "c"], "the rows are there, each once", 10)


def test_batches_follow_each_other_and_the_last_decision_is_kept(sink: Sink) -> None:
    for batch in range(3):
        sink.driver("r1").commit(batch, [sink.task("r1", f"v{batch}")])
    decision = sink.driver("r1").last_decision()
    assert decision is not None
    assert (decision.batch, decision.is_ended, decision.run) == (2, True, "r1")
    eventually(lambda: sink.read() == ["v0", "v1", "v2"], "the rows are there, each once", 10)


def test_a_driver_that_died_after_its_decision_is_finished_by_the_next(sink: Sink) -> None:
    ours = [sink.task("r1", "a"), sink.task("r1", "b")]
    dead = sink.driver("r1")
    dead.log.ensure()
    dead.decider.take_over()
    dead._decide(0, ours)
    dead.transactions.end(ours[0], commit=True)  # … and died between the ends.
    replayed = sink.task("r2", "a", "b")
    sink.driver("r2").commit(0, [replayed])
    eventually(lambda: sink.read() == ["a", "b"], "the rows are there, each once", 10)
    eventually(lambda: sink.are_over(replayed), "aborted", 10)


def test_a_driver_that_died_over_its_decision_has_decided_nothing(sink: Sink) -> None:
    lost = sink.task("r1", "a")
    dead = sink.driver("r1")
    dead.log.ensure()
    dead.decider.take_over()
    dead.decider.open(Decision(sink.query, 0, (lost,)))  # Written, not sealed.
    sink.driver("r2").commit(0, [sink.task("r2", "a")])
    eventually(lambda: sink.read() == ["a"], "the rows are there, each once", 10)
    decision = sink.driver("r2").last_decision()
    assert decision is not None
    assert decision.run == "r2"


def test_a_batch_that_was_finished_is_not_written_again(sink: Sink) -> None:
    sink.driver("r1").commit(0, [sink.task("r1", "a")])
    sink.driver("r2").commit(0, [sink.task("r2", "a")])
    eventually(lambda: sink.read() == ["a"], "the rows are there, each once", 10)


def test_an_older_driver_is_fenced(sink: Sink) -> None:
    old, new = sink.driver("r1"), sink.driver("r2")
    theirs, ours = sink.task("r1", "old"), sink.task("r2", "new")
    old.log.ensure()
    old.decider.take_over()
    new.decider.take_over()
    with pytest.raises(FencedError, match="another driver"):
        old._decide(0, [theirs])
    new.commit(0, [ours])
    eventually(lambda: sink.read() == ["new"], "the rows are there, each once", 10)


def test_an_older_driver_that_comes_late_takes_nothing_from_a_batch_that_is_decided(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = sink.task("r1", "a")  # Its driver sleeps, and another one is started.
    sink.driver("r2").commit(0, [sink.task("r2", "a")])
    ours = sink.task("r2", "b")
    old, new = sink.driver("r1"), sink.driver("r2")
    seal = old.decider.seal

    def seal_and_wait() -> None:
        seal()  # The old driver has noted what is open, and the new one comes to its end now …
        with pytest.raises(SparkSourceError, match="Nothing of the batch was committed"):
            new.commit(1, [ours])

    monkeypatch.setattr(old.decider, "seal", seal_and_wait)
    old.commit(0, [slept])  # … before the old one aborts it.
    new.abort(1, [ours])
    sink.driver("r2").commit(1, [sink.task("r2", "b")])
    eventually(lambda: sink.read() == ["a", "b"], "the rows are there, each once", 10)


def test_lost_attempts_are_ended_by_the_sweep_and_others_are_left_alone(
    sink: Sink, servers: str, cluster: Cluster
) -> None:
    other = Sink(servers, cluster, sink.topic, str(uuid.uuid4())).task("r1", "of another query")
    lost = [sink.task("r0", "of a dead driver"), sink.task("r1", "of a losing attempt")]
    sink.driver("r1").commit(0, [sink.task("r1", "won")])
    eventually(lambda: sink.are_over(*lost), "aborted", 10)
    assert sink.states(other) == ["Ongoing"]
    sink.driver("").transactions.abort(other)
    eventually(lambda: sink.read() == ["won"], "the rows are there, each once", 10)


def test_a_swept_task_cannot_go_on_writing(sink: Sink) -> None:
    lost = sink.task("r1", "lost")
    sink.driver("r1").commit(0, [sink.task("r1", "won")])
    transactions = sink.driver("r1").transactions
    eventually(lambda: sink.are_over(lost), "aborted", 10)
    with pytest.raises(LostTransactionError):
        transactions.end(lost, commit=True)


@pytest.mark.parametrize("name", ["a-stream-", JOB])
def test_an_attempt_that_begins_when_the_batch_is_over_leaves_nothing_open(
    name: str, servers: str, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(servers, cluster, topic, f"{name}{uuid.uuid4()}")
    run = "" if name == JOB else "r1"
    taken: list[str] = []

    def late_rows() -> Iterator[pa.RecordBatch]:
        sink.driver(run).commit(0, [sink.task(run, "won")])
        for word in ("lost", "never written"):
            taken.append(word)
            yield pa.record_batch([pa.array([word])], names=["value"])

    monkeypatch.setattr("dmq.spark.writer.LATE_S", 0.0)
    monkeypatch.setattr("dmq.spark.writer.GROUP_BYTES", 1)
    options = SinkOptions.of({"kafka.bootstrap.servers": servers, "topic": topic})
    written = write_task(options, Columns(value=0), sink.writing(run), 0, late_rows())
    assert (written.rows, written.transaction) == (0, None)
    assert taken == ["lost", "never written"], "Spark's input is read to its end"
    transactions = sink.driver(run).transactions
    eventually(lambda: not transactions.open_ids(sink.writing(run).ids), "all is ended", 10)
    assert sink.read() == ["won"]


def test_an_attempt_that_begins_late_in_a_batch_that_goes_on_is_a_part_of_it(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.driver("r1").commit(0, [sink.task("r1", "before")])
    monkeypatch.setattr("dmq.spark.writer.LATE_S", 0.0)
    options = SinkOptions.of({"kafka.bootstrap.servers": sink.servers, "topic": sink.topic})
    rows = iter([pa.record_batch([pa.array(["late"])], names=["value"])])
    written = write_task(options, Columns(value=0), sink.writing("r1"), 1, rows)
    assert written.transaction is not None
    sink.driver("r1").commit(1, [written.transaction])
    eventually(lambda: sink.read() == ["before", "late"], "both are there", 10)


def test_a_sweep_ends_what_it_noted_and_not_what_came_later(sink: Sink) -> None:
    transactions = sink.driver("r1").transactions
    noted = sink.task("r1", "first")
    later = transactions.begin(noted.id, 60_000)
    transactions.abort(noted)
    transactions.add(later, [Target(sink.topic, 0)])
    transactions.abort(noted)
    assert sink.states(later) == ["Ongoing"]
    transactions.end(later, commit=False)


def test_abort_ends_everything_of_its_run(sink: Sink) -> None:
    told, silent = sink.task("r1", "told"), sink.task("r1", "silent")
    newer = sink.task("r2", "of a newer driver")
    sink.driver("r1").abort(0, [told])
    eventually(lambda: sink.are_over(told, silent), "aborted", 10)
    assert sink.states(newer) == ["Ongoing"]
    sink.driver("r2").commit(0, [newer])
    eventually(lambda: sink.read() == ["of a newer driver"], "the rows are there, each once", 10)


def unheard(servers: str, topic: str, checkpoint: str, query: str, run: str) -> StreamSink:
    """The sink of a batch with a task that has written, and of which the driver has not heard."""
    given = {"kafka.bootstrap.servers": servers, "topic": topic, "checkpointLocation": checkpoint}
    options = SinkOptions.of(given)
    rows = iter([pa.record_batch([pa.array(["unheard"])], names=["value"])])
    writing = Writing(options.prefix, query, run, options.place)
    assert write_task(options, Columns(value=0), writing, 0, rows).transaction is not None
    return StreamSink(options, Columns(value=0))


def test_abort_without_a_word_of_any_task_finds_its_query_by_the_checkpoint(
    sink: Sink, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmq.spark.commits.STRAGGLERS_S", 0.5)
    other = str(uuid.uuid4())
    others = unheard(servers, sink.topic, "/another", other, "r1")
    stopped = unheard(servers, sink.topic, "/checkpoint", sink.query, "r1")
    transactions = sink.driver("").transactions
    stopped.abort([None, None], 0)
    assert not transactions.open_ids(sink.writing("").ids)
    assert transactions.open_ids(f"dmq-spark.{other}.r1.")
    others.abort([], 0)
    assert not transactions.open_ids(f"dmq-spark.{other}.")
    sink.driver("r2").commit(0, [sink.task("r2", "again")])
    eventually(lambda: sink.read() == ["again"], "the rows are there, each once", 10)


def test_abort_without_a_word_takes_nothing_from_a_batch_that_is_decided(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = sink.task("r2", "a")
    old, new = sink.driver("r1"), sink.driver("r2")
    seal = old.decider.seal

    def seal_and_wait() -> None:
        seal()  # An older driver has noted what is open, and the new one comes to its end now …
        with pytest.raises(SparkSourceError, match="Nothing of the batch was committed"):
            new.commit(0, [ours])

    monkeypatch.setattr(old.decider, "seal", seal_and_wait)
    old.sweep()  # … before the old one aborts it.
    sink.driver("r2").commit(0, [sink.task("r2", "a")])
    eventually(lambda: sink.read() == ["a"], "the rows are there, each once", 10)


def test_abort_without_a_word_carries_a_decision_out_and_yields_to_a_newer_driver(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided = sink.task("r1", "a")
    dead = sink.driver("r1")
    dead.log.ensure()
    dead.decider.take_over()
    dead._decide(0, [decided])
    sink.driver("").sweep()
    eventually(lambda: sink.read() == ["a"], "the rows are there, each once", 10)
    old, new, ours = sink.driver(""), sink.driver("r2"), sink.task("r2", "b")
    look = old.transactions.open_ids

    def look_and_wait(prefix: str) -> list[str]:
        found = look(prefix)
        new.commit(1, [ours])  # Between the old one's look and its note.
        return found

    monkeypatch.setattr(old.transactions, "open_ids", look_and_wait)
    old.sweep()
    eventually(lambda: sink.read() == ["a", "b"], "the rows are there, each once", 10)


def test_abort_after_the_decision_carries_it_out(sink: Sink) -> None:
    ours = sink.task("r1", "a")
    driver = sink.driver("r1")
    driver.log.ensure()
    driver.decider.take_over()
    driver._decide(0, [ours])  # Then the commit failed, and Spark calls abort.
    sink.driver("r1").abort(0, [ours])
    eventually(lambda: sink.read() == ["a"], "the rows are there, each once", 10)


def test_a_transaction_that_ended_before_its_decision_fails_the_batch(sink: Sink) -> None:
    ours = [sink.task("r1", "a"), sink.task("r1", "b")]
    driver = sink.driver("r1")
    driver.transactions.abort(ours[1])
    with pytest.raises(SparkSourceError, match="Nothing of the batch was committed"):
        driver.commit(0, ours)
    sink.driver("r1").abort(0, ours)
    eventually(lambda: sink.read() == [], "the rows are there, each once", 10)


def test_a_transaction_that_ended_after_its_decision_is_told(sink: Sink) -> None:
    ours = [sink.task("r1", "a"), sink.task("r1", "b")]
    driver = sink.driver("r1")
    driver.log.ensure()
    driver.decider.take_over()
    driver._decide(0, ours)
    driver.transactions.abort(ours[1])  # As if its time had run out.
    with pytest.raises(SparkSourceError, match=r"1 of its 2 transactions had been aborted"):
        sink.driver("r2").commit(0, [])


def test_a_timeout_beyond_the_brokers_cap_is_told(sink: Sink) -> None:
    with pytest.raises(SparkSourceError, match=r"transaction\.max\.timeout\.ms"):
        sink.task("r1", "a", timeout_ms=2_000_000_000)


def test_other_queries_open_decisions_do_not_hide_ours(
    sink: Sink, servers: str, cluster: Cluster
) -> None:
    other = Sink(servers, cluster, sink.topic, str(uuid.uuid4()))
    stuck = other.driver("r1")
    stuck.log.ensure()
    stuck.decider.take_over()
    stuck.decider.open(Decision(other.query, 0, ()))  # Its driver has died here.
    sink.driver("r1").commit(0, [sink.task("r1", "a")])
    decision = sink.driver("r2").last_decision()
    assert decision is not None
    assert decision.batch == 0
    assert other.query not in sink.driver("r2").log.read()
    sink.driver("r2").commit(0, [sink.task("r2", "a")])
    eventually(lambda: sink.read() == ["a"], "the rows are there, each once", 10)


def test_a_job_is_readable_when_it_returns_and_leaves_nothing_behind(
    servers: str, cluster: Cluster, topic: str
) -> None:
    sink = Sink(servers, cluster, topic, f"{JOB}{uuid.uuid4().hex}")
    sink.driver("").commit(0, [sink.task("", "a"), sink.task("", "b")])
    assert sink.read() == ["a", "b"]
    assert sink.driver("").last_decision() is None


def test_a_slow_job_that_another_one_helped_is_done_and_not_failed(
    servers: str, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = (Sink(servers, cluster, topic, f"{JOB}{uuid.uuid4().hex}") for _ in range(2))
    driver, rows = slow.driver(""), slow.task("", "slow")
    commit_all = driver.transactions.commit_all

    def commit_and_doze(ours: list[Transaction]) -> list[Transaction]:
        lost = commit_all(ours)
        monkeypatch.setattr("dmq.spark.commits.ABANDONED_MS", -60_000)  # As if a minute had passed.
        other.driver("").commit(0, [other.task("", "other")])
        return lost

    monkeypatch.setattr(driver.transactions, "commit_all", commit_and_doze)
    driver.commit(0, [rows])
    assert slow.read() == ["other", "slow"]
    assert not {slow.query, other.query} & driver.log.read().keys(), "both are closed"


@pytest.mark.parametrize("lost", [0, 1])
def test_a_job_whose_driver_died_after_its_decision_is_finished_by_the_next_batch_of_a_stream(
    lost: int, sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = Sink(sink.servers, sink.cluster, sink.topic, f"{JOB}{uuid.uuid4().hex}")
    ours = [job.task("", "a"), job.task("", "b"), job.task("", "c")]
    dead = job.driver("")
    dead.log.ensure()
    dead.decider.take_over()
    dead._decide(0, ours)
    dead.transactions.end(ours[0], commit=True)  # … and died between the ends.
    for transaction in ours[:0:-1][:lost]:
        dead.transactions.abort(transaction)  # As if its time had run out.
    monkeypatch.setattr("dmq.spark.commits.ABANDONED_MS", -60_000)  # As if a minute had passed.
    sink.driver("r1").commit(0, [sink.task("r1", "stream")])
    eventually(lambda: job.query not in sink.driver("").log.read(), "it is closed", 10)
    values = [*["a", "b", "c"][: 3 - lost], "stream"]
    eventually(lambda: sink.read() == values, "what could be committed is there", 10)
    sink.driver("r1").commit(1, [sink.task("r1", "stream")])
    told = [record for record in caplog.records if job.query in record.getMessage()]
    assert len(told) == lost, "what is lost is told once"


def test_brokers_from_before_kafka_3_are_refused_before_anything_is_written(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = Connection._learn_versions

    def learn_less(connection: Connection) -> None:
        """As from a broker of Kafka 2.8."""
        learn(connection)
        for key in (DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS):
            del connection._versions[key]

    monkeypatch.setattr(Connection, "_learn_versions", learn_less)
    with pytest.raises(SparkSourceError, match=r"from 3\.0 on.*\"delivery\", \"at-least-once\""):
        sink.task("r1", "a")
    options = {"topic": sink.topic, "delivery": "at-least-once"}
    writer = TaskWriter(
        SinkOptions.of({"kafka.bootstrap.servers": sink.servers, **options}), Columns(value=0), None
    )
    writer.write([pa.record_batch([pa.array(["b"])], names=["value"])])
    assert sink.read() == ["b"]


def test_ending_twice_is_ending_once(sink: Sink) -> None:
    ours = sink.task("r1", "a")
    transactions = sink.driver("r1").transactions
    for _ in range(3):
        transactions.end(ours, commit=True)
    assert transactions.commit_all([ours, ours]) == []
    with pytest.raises(LostTransactionError) as caught:
        transactions.end(ours, commit=False)
    assert caught.value.code == ErrorCode.INVALID_TXN_STATE


def test_an_abort_ends_what_a_task_begins_behind_its_first_look(
    servers: str, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(servers, cluster, topic, f"{JOB}{uuid.uuid4()}")
    driver = sink.driver("")
    look, late = driver.transactions.open_ids, []

    def look_and_begin(prefix: str) -> list[str]:
        found = look(prefix)
        if not late:
            late.append(sink.task("", "late"))
        return found

    monkeypatch.setattr(driver.transactions, "open_ids", look_and_begin)
    monkeypatch.setattr("dmq.spark.commits.STRAGGLERS_S", 0.5)
    driver.abort(0, [])
    eventually(lambda: sink.are_over(*late), "aborted", 10)
    assert sink.read() == []


def test_the_log_of_decisions_stays_small(query: str) -> None:
    settings = {"log.cleaner.backoff.ms": 100, "log.retention.check.interval.ms": 100}
    tiny = {"cleanup.policy": "compact", "internal.segment.bytes": "2000"}
    tiny |= {"min.cleanable.dirty.ratio": "0", "delete.retention.ms": "1"}
    with Broker(settings) as broker:
        create(broker.bootstrap_servers, TOPIC, 1, tiny)
        reached = Settings.of({"kafka.bootstrap.servers": broker.bootstrap_servers})
        with closing(Cluster(reached)) as cluster:
            driver = Committer(cluster, Writing("dmq-spark", query, "r1"))
            driver.decider.take_over()
            for batch in range(40):
                driver._decide(batch, [Transaction("dmq-spark.some-task", 1, 0)])

            def decisions_left() -> int:
                log = driver.log
                batches = log._batches(log._offset(-2), log._offset(-1))
                return sum(header.record_count for header, _ in batches if not header.is_control)

            # A batch without records may stand for those that went.
            eventually(lambda: decisions_left() < 20, "what is overtaken goes", 60)
            assert [each.batch for each in driver.log.read().values()] == [39]
