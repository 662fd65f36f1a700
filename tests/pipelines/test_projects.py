"""The five templates in one project, run, watched and stopped by `dmq pipeline`: one Spark for all."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from compat.eventually import eventually
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from spark.feeding import create, produce

from demo.generator import Event, Shop
from dmq.testing import Cluster

pytestmark = pytest.mark.timeout(900)

DMQ = str(Path(sys.executable).parent / "dmq")
CHANGES: list[tuple[bytes, bytes | None]] = [
    (b"k1", b'{"name": "one", "n": 1}'),
    (b"k2", b'{"name": "two", "n": 2}'),
    (b"k3", b'{"name": "three", "n": 3}'),
    (b"k1", b'{"name": "uno", "n": 11}'),
    (b"k2", None),
    (b"k3", b'{"name": "three", "n": 3, "op": "d"}'),
]
NO_CHANGES: list[tuple[tuple[bytes | None, bytes | None], str]] = [
    ((b"k1", b'{"name": "uno", "n": "many"}'), 'field n: "many" is no long'),
    ((b"k1", b'{"name": "'), "not JSON"),
    ((b"k2", b"[2]"), "a JSON ARRAY<BIGINT>, not an object"),
    ((None, b'{"name": "nobody", "n": 0}'), "no key"),
]
"""Records of the same topic that say nothing of a row, and why."""
ORDER = (
    "order_id STRING, customer STRING, product STRING, quantity BIGINT, amount DOUBLE, at TIMESTAMP"
)
SAME_NAMES = (
    "key STRING, value STRING, topic STRING, partition STRING, offset STRING, timestamp STRING, "
    "headers STRING, day STRING, broken STRING, parsed STRING, is_good STRING, reason STRING, "
    "records STRING, window STRING, l STRING, r STRING"
)
"""Fields of values that are called as columns of records or of a template's own are."""


class Project:
    """A project on disk and the process that runs it."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap

    def dmq(self, *args: str, code: int = 0) -> str:
        done = subprocess.run(
            [DMQ, "pipeline", *args],
            cwd=self.folder.parent,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    def environment(self) -> dict[str, str]:
        return os.environ | {"DMQ_BOOTSTRAP_SERVERS": self.bootstrap}

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.dmq("status", self.folder.name, "--json"))
        return found

    def rows(self, table: str) -> list[dict[str, Any]]:
        data = ds.dataset(self.folder / "warehouse" / table, format="parquet", partitioning="hive")
        found: list[dict[str, Any]] = data.to_table().to_pylist()
        return found

    def view(self, table: str) -> list[dict[str, Any]]:
        """Rows of a materialized view: none while Spark is writing it anew."""
        try:
            return self.rows(table)
        except OSError:
            return []

    def keys_seen(self, table: str) -> set[str]:
        return {row["_key"] for row in self.view(table)}


@pytest.fixture(scope="module")
def running(
    cluster: Cluster, shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    """All templates in one project that runs every second, after its first update."""
    if shutil.which("java") is None:
        pytest.skip("no Java: see scripts/java.sh")
    work = tmp_path_factory.mktemp("projects")
    project = Project(work / "sales", cluster.bootstrap)
    for topic in ("accounts", "again", "totals", "orders-dead"):
        if topic not in topics(cluster.bootstrap):
            create(cluster.bootstrap, topic, 1)
    produce(cluster.bootstrap, "accounts", CHANGES)
    trace: list[tuple[str, bytes | None]] = [("trace", b"7")]
    produce(cluster.bootstrap, "accounts", [pair for pair, _ in NO_CHANGES], headers=trace)
    (work / "files").mkdir()
    pq.write_table(pa.table({"id": range(10), "word": ["w"] * 10}), work / "files" / "a.parquet")
    orders = ("--topic", "orders", "--schema", f"{ORDER}, {SAME_NAMES}")
    project.dmq("init", "sales", *orders)
    project.dmq("init", "sums", "--template", "aggregate", "--to", "totals", *orders)
    account = f"name STRING, n BIGINT, op STRING, {SAME_NAMES}"
    project.dmq("init", "accounts", "--template", "cdc", "--schema", account)
    backfill = ("--template", "backfill", "--topic", "again", "--table", "files", "--key", "id")
    project.dmq("init", "filled", *backfill)
    join = ("--template", "join", "--with", "payments", "--on", "order_id")
    project.dmq("init", "pairs", *join, *orders)
    for name in ("sums", "accounts", "filled", "pairs"):
        source = work / name / "transformations" / f"{name}.py"
        source.rename(project.folder / "transformations" / source.name)
    spec = project.folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text() + "  spark.sql.streaming.schemaInference: 'true'\n")
    with (work / "said.txt").open("w") as said:
        process = subprocess.Popen(
            [DMQ, "pipeline", "run", "sales", "--every", "1", "--master", "local[2]"],
            cwd=work,
            env=project.environment(),
            stdout=said,
            stderr=said,
        )
    try:
        eventually(lambda: first_update_is_over(project, process, work), "the update", 600)
        yield project
        assert "stopped" in project.dmq("stop", "sales")
        assert process.wait(60) == 130
        assert project.status()["state"] == "stopped"
        project.dmq("stop", "sales", code=1)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def first_update_is_over(project: Project, process: subprocess.Popen[bytes], work: Path) -> bool:
    assert process.poll() is None, (work / "said.txt").read_text()
    if not (project.folder / ".dmq" / "run.json").exists():
        return False
    record = json.loads((project.folder / ".dmq" / "run.json").read_text())
    return bool(record["state"] == "waiting" or record["update"] > 1)


def topics(bootstrap: str) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge"})
    found = list(consumer.list_topics(timeout=30).topics)
    consumer.close()
    return found


def messages(bootstrap: str, topic: str) -> list[Message]:
    """All committed records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found, open_ = [], len(partitions)
    while open_:
        for message in consumer.consume(500, timeout=1):
            if message.error() is None:
                found.append(message)
            else:  # The end of a partition.
                open_ -= 1
    consumer.close()
    return found


def records(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    return [(each.key(), each.value()) for each in messages(bootstrap, topic)]


def reason(letter: Message) -> str:
    return dict(letter.headers())["dmq.dead.reason"].decode()


def sent(shop: Shop, topic: str) -> list[Event]:
    again = Shop(shop.orders, shop.until_ms, broken_share=shop.broken_share)
    return [event for event in again.events() if event.topic == topic]


def parsed(event: Event) -> dict[str, Any] | None:
    """The value, if it is what the schema says."""
    try:
        value = json.loads(event.value or b"")
        datetime.fromisoformat(value["at"])
    except (ValueError, TypeError):
        return None
    assert isinstance(value, dict)
    return value


def test_a_topic_is_a_table_and_what_does_not_parse_is_a_dead_letter(
    running: Project, shop: Shop
) -> None:
    wanted = Counter(value["order_id"] for e in sent(shop, "orders") if (value := parsed(e)))
    assert Counter(row["order_id"] for row in running.rows("sales")) == wanted

    def per_day() -> int:
        return sum(row["records"] for row in running.view("sales_per_day"))

    eventually(lambda: per_day() == len(wanted), "all orders in their days", 120)
    assert list((running.folder / "warehouse" / "sales_per_day").glob("day=*"))


@pytest.mark.parametrize(("topic", "flows"), [("orders", 3), ("payments", 1)])
def test_each_flow_sends_what_does_not_parse_to_the_dead_letters(
    running: Project, shop: Shop, topic: str, flows: int
) -> None:
    broken = [event.value for event in sent(shop, topic) if not parsed(event)]
    dead = messages(running.bootstrap, f"{topic}-dead")
    found = Counter(each.value() for each in dead)
    # One that lands the topic, in another test, may have sent them there, too.
    assert Counter(broken * flows) <= found <= Counter(broken * (flows + 1))
    told = {reason(each) for each in dead}
    assert {"no value", "not UTF-8", "not JSON", "a JSON ARRAY<STRING>, not an object"} <= told
    assert any(each.startswith('field at: "on ') for each in told)


def test_windows_are_counted_once_into_a_topic(running: Project, shop: Shop) -> None:
    wanted: Counter[tuple[str, str]] = Counter()
    for event in filter(parsed, sent(shop, "orders")):
        minute = datetime.fromtimestamp(event.timestamp_ms // 60_000 * 60, UTC)
        wanted[event.key.decode(), minute.strftime("%Y-%m-%dT%H:%M")] += 1
    windows = [json.loads(value) for _, value in records(running.bootstrap, "totals")]
    assert len(windows) > len(wanted) / 2
    counted = {(each["key"], each["window_start"][:16]): each["records"] for each in windows}
    assert len(counted) == len(windows), "a window comes once"
    assert {where: wanted[where] for where in counted} == counted


def test_changes_are_the_current_state(running: Project) -> None:
    def state() -> dict[str, tuple[str, int]]:
        return {row["_key"]: (row["name"], row["n"]) for row in running.view("accounts")}

    eventually(lambda: state().get("k1") == ("uno", 11), "the last change of k1", 120)
    assert running.keys_seen("accounts") <= {"k1", "k4"}, "what was deleted is gone"
    assert len(running.rows("accounts_changes")) in (len(CHANGES), len(CHANGES) + 1)


def test_what_is_no_change_changes_nothing_and_is_a_dead_letter(running: Project) -> None:
    dead = messages(running.bootstrap, "accounts-dead")
    assert [((each.key(), each.value()), reason(each)) for each in dead] == NO_CHANGES
    places = [dict(each.headers()) for each in dead]
    assert [int(each["dmq.dead.offset"]) for each in places] == [
        len(CHANGES) + number for number in range(len(NO_CHANGES))
    ]
    assert {each["trace"] for each in places} == {b"7"}, "a letter has the record's own headers"


def test_rows_of_a_table_are_records_of_a_topic(running: Project) -> None:
    found = {key: json.loads(value) for key, value in records(running.bootstrap, "again")}
    assert found == {str(i).encode(): {"id": i, "word": "w"} for i in range(10)}


def test_two_topics_are_joined(running: Project, shop: Shop) -> None:
    def ids(topic: str) -> set[str]:
        return {value["order_id"] for e in sent(shop, topic) if (value := parsed(e))}

    pairs = Counter(row["l"]["order_id"] for row in running.rows("pairs"))
    assert set(pairs) == ids("orders") & ids("payments")
    assert set(pairs.values()) == {1}

    def per_day() -> int:
        return sum(row["pairs"] for row in running.view("pairs_per_day"))

    eventually(lambda: per_day() == sum(pairs.values()), "all pairs in their days", 120)


def test_the_status_tells_of_flows_and_lag_and_a_second_run_is_refused(running: Project) -> None:
    wanted = {"sales", "sums_windows", "accounts", "filled_rows", "pairs"}

    def names() -> set[str]:  # Each update begins with none.
        return {flow["name"] for flow in running.status()["flows"]}

    eventually(lambda: wanted <= names(), "all flows in one status", 300)
    assert running.status()["state"] in ("running", "waiting")
    # The next update may have begun since.
    eventually(lambda: "LAG" in running.dmq("status", "sales"), "lag in a status", 300)
    assert running.dmq("run", "sales", code=1) == ""


def test_each_flow_has_a_group_of_its_own(running: Project) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    found = {each.group_id for each in admin.list_consumer_groups().result(30).valid}
    wanted = ("sales", "sums", "accounts", "pairs-orders", "pairs-payments")
    assert found >= {name + end for name in wanted for end in ("", "-dead")}


def test_the_next_update_goes_on_where_the_last_ended(running: Project) -> None:
    before = running.status()["update"]
    produce(running.bootstrap, "accounts", [(b"k4", b'{"name": "four", "n": 4}')])
    eventually(lambda: running.status()["update"] >= before + 2, "two updates", 600)
    eventually(lambda: running.keys_seen("accounts") == {"k1", "k4"}, "the new state", 120)
    assert len(running.rows("accounts_changes")) == len(CHANGES) + 1
    assert len(records(running.bootstrap, "again")) == 10
