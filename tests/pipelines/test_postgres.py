"""Topics landed in a real PostgreSQL, started for these tests."""

import json
import os
import pwd
import random
import shutil
import string
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipelines.test_landing import letters
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from spark.feeding import create, produce, topic_name

from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.landing import Order, land
from dmq.spark.pipelines.postgres import PostgresTable
from dmq.spark.pipelines.sessions import Where
from dmq.spark.pipelines.tables import Landing, new_id
from dmq.spark.pipelines.values import Declared
from dmq.testing import Cluster

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: make setup-dev")
pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(1200)]

SCHEMA = "id BIGINT, word STRING, price DECIMAL(10,2), tags ARRAY<STRING>, at TIMESTAMP"


REFUSED: dict[str, Any] = {
    "the key id is null": {"word": "no id"},
    "field word contains NUL, which PostgreSQL cannot store": {"id": 8, "word": "a\0b"},
    "field tags contains NUL, which PostgreSQL cannot store": {"id": 8, "tags": ["a", "\\\0"]},
    "not UTF-8: byte 19 is 0xff": b'{"id": 8, "word": "\xff"}',
    # Milliseconds where Spark takes seconds.
    "field at is outside of the years 1 to 9999": {"id": 8, "at": 1_700_000_000_000},
}


def as_postgres(*command: str) -> list[str]:
    """PostgreSQL does not run as root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.getuid() == 0 else [*command]


def folder_of_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that listens on a socket in a folder of its own."""
    programs = folder_of_programs()
    if programs is None:
        pytest.skip("no PostgreSQL: apt-get install postgresql")
    folder = Path("/tmp") / f"dmq-pg-{os.getpid()}"  # Sockets have short names; others may enter.
    folder.mkdir(mode=0o755)
    if os.getuid() == 0:
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    data = str(folder / "data")
    quiet = {"stdout": subprocess.DEVNULL, "check": True, "cwd": "/"}
    initdb = as_postgres(
        str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "-N"
    )
    subprocess.run(initdb, **quiet)
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"
    control = [str(programs / "pg_ctl"), "-D", data, "-w"]
    start = as_postgres(*control, "-o", options, "-l", str(folder / "log"), "start")
    subprocess.run(start, **quiet)
    try:
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        subprocess.run(as_postgres(*control, "-m", "immediate", "stop"), **quiet)
        shutil.rmtree(folder)


def landed(cluster: Cluster, topic: str, table: PostgresTable) -> Any:
    source = {"kafka.bootstrap.servers": cluster.bootstrap}
    order = Order(topic, source, schema=SCHEMA, partition_by=(), is_once=True)
    return land(order, table, Where(), lambda progress, flow: None, new_id())


def send(cluster: Cluster, topic: str, *values: Any) -> None:
    pairs = [
        (str(value.get("id")).encode(), json.dumps(value).encode())
        if isinstance(value, dict)
        else (b"x", value)
        for value in values
    ]
    produce(cluster.bootstrap, topic, pairs)


def test_rows_are_replaced_by_key_and_a_repeated_batch_changes_nothing(
    cluster: Cluster, postgres: str, tmp_path: Path
) -> None:
    topic = create(cluster.bootstrap, topic_name("upserts"), 2)
    create(cluster.bootstrap, f"{topic}-dead", 1)
    table = PostgresTable(postgres, "shop_items", ("id",), tmp_path / "state")
    full = {
        "word": 'tab\there, "quotes" \\ and é',
        "price": 1234.5,
        "tags": ["a", 'b"'],
        "extra": 1,
    }
    send(cluster, topic, {"id": 1, "word": "old"}, {"id": 2} | full, {"id": 1, "word": "new"}, b"{")
    send(cluster, topic, *REFUSED.values())
    progress = landed(cluster, topic, table)
    assert (progress.rows, progress.dead_letters) == (9, 6)
    dead = letters(cluster, f"{topic}-dead", 6)
    assert {each["dmq.dead.reason"] for each in dead if each["value"] != b"{"} == {*REFUSED}
    send(cluster, topic, {"id": 2, "word": "newer", "at": "2026-01-31T12:00:00+02:00"}, {"id": 3})
    landed(cluster, topic, table)
    with psycopg.connect(postgres) as connection:
        query = (
            "SELECT id, word, price, tags, at AT TIME ZONE 'UTC', _key FROM shop_items ORDER BY id"
        )
        rows = connection.execute(query).fetchall()
        assert [(row[0], row[1]) for row in rows] == [(1, "new"), (2, "newer"), (3, None)]
        assert str(rows[1][4]) == "2026-01-31 10:00:00"
        # A crash after the merge and before Spark's note of it: the batch is repeated.
        connection.execute("UPDATE shop_items SET word = 'by hand' WHERE id = 3")
    last = max((table.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (table.checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    landed(cluster, topic, table)
    with psycopg.connect(postgres) as connection:
        rows = connection.execute("SELECT word FROM shop_items ORDER BY id").fetchall()
        assert [word for (word,) in rows] == ["new", "newer", "by hand"]


def test_rows_that_are_just_taken_and_those_that_would_stop_a_batch(
    spark: SparkSession, postgres: str, tmp_path: Path
) -> None:
    """Judged by PostgreSQL: what is not refused, it takes."""
    schema = (
        "id STRING, n DOUBLE, more MAP<STRING, DOUBLE>, at TIMESTAMP, day DATE, _key STRING,"
        " _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
    )
    dice = random.Random(1)  # What can't be compressed.
    letters_ = "".join(dice.choices(string.printable, k=3_000))
    cases = [
        ("'a'", "double('NaN')", "map('a', double('NaN'))", "'0001-01-01'", None),
        ("'b'", "double('-Infinity')", "map('\\\\u0000', 1e300D)", "'9999-12-31'", None),
        ("id", "4.9e-324D", "null", "null", None),
        ("id || '.'", "0D", "null", "null", "the key is longer than 2,500 bytes"),
        ("'c'", "0D", "map(char(0), 0D)", "null", "field more contains NUL"),
        ("'d'", "0D", "null", "'+10000-01-01'", "field at is outside of the years"),
        ("'e'", "0D", "null", "'0000-12-31'", "field at is outside of the years"),
        ("null", "0D", "null", "null", "the key id is null"),
    ]
    base = spark.createDataFrame([(letters_[:2_500],)], "id STRING")
    rows = None
    for offset, (id_, n, more, at, _) in enumerate(cases):
        one = base.selectExpr(
            f"{id_} AS id", f"{n} AS n", f"CAST({more} AS MAP<STRING, DOUBLE>) AS more",
            f"CAST({at} || ' 00:00:00Z' AS TIMESTAMP) AS at", f"CAST({at} AS DATE) AS day",
            "CAST(X'0000ff' AS STRING) AS _key", "0 AS _partition",
            f"{offset}L AS _offset", "timestamp_seconds(0) AS _timestamp",
        )  # fmt: skip
        rows = one if rows is None else rows.union(one)
    assert rows is not None
    rows = rows.to(StructType.fromDDL(schema))
    table = PostgresTable(postgres, "limits", ("id",), tmp_path / "state")
    table.begin(Landing(new_id(), "t", Declared("json", "id STRING"), (), False, "t-dead"))
    told = rows.withColumn("row", f.struct("*")).withColumn("why", table.refusal(rows.schema))
    found = [row.why for row in told.orderBy("_offset").select("why").collect()]
    for why, (*_, expected) in zip(found, cases, strict=True):
        assert (why is None) == (expected is None)
        assert expected is None or why.startswith(expected)
    table.put(told.where("why IS NULL").select(*rows.columns), 0)
    with psycopg.connect(postgres) as connection:
        kept = connection.execute(
            "SELECT n::text, at AT TIME ZONE 'UTC', day, _key FROM limits ORDER BY _offset"
        ).fetchall()
    assert [row[0] for row in kept] == ["NaN", "-Infinity", "5e-324"]
    assert [str(row[2]) for row in kept] == ["0001-01-01", "9999-12-31", "None"]
    assert [row[3] for row in kept] == [None] * 3, "a key that is no text is no reason to refuse"


def test_of_a_key_in_several_partitions_the_latest_record_wins(
    spark: SparkSession, postgres: str, tmp_path: Path
) -> None:
    table = PostgresTable(postgres, "places", ("id",), tmp_path / "state")
    table.begin(Landing(new_id(), "t", Declared("json", "id STRING"), (), False, "t-dead"))
    schema = "id STRING, word STRING, _partition INT, _offset BIGINT, at BIGINT"

    def put(batch: int, *records: tuple[str, str, int, int, int]) -> dict[str, str]:
        rows = spark.createDataFrame(list(records), schema)
        rows = rows.withColumn("_timestamp", f.timestamp_seconds("at")).drop("at")
        table.put(rows, batch)
        with psycopg.connect(postgres) as connection:
            return dict(connection.execute("SELECT id, word FROM places").fetchall())

    # Partition 1 was added later: its offsets are low, its records are new. Within a partition the
    # offset decides, whatever a producer's clock says.
    first = [("a", "older", 0, 900, 5), ("a", "old", 0, 901, 4), ("a", "new", 1, 3, 6)]
    assert put(0, *first, ("b", "b", 0, 902, 9)) == {"a": "new", "b": "b"}
    late = [("a", "late", 0, 903, 5), ("b", "late", 1, 4, 8)]
    assert put(1, *late) == {"a": "new", "b": "b"}
    assert put(2, ("a", "newer", 0, 904, 7), ("b", "clock", 0, 905, 1)) == {
        "a": "newer",
        "b": "clock",
    }


def test_a_table_of_somebody_else_that_is_too_narrow_is_a_sentence(
    spark: SparkSession, postgres: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute(
            "CREATE TABLE narrow (id text PRIMARY KEY, word varchar(3), _partition integer,"
            " _offset bigint, _timestamp timestamptz)"
        )
    table = PostgresTable(postgres, "narrow", ("id",), tmp_path / "state")
    table.begin(Landing(new_id(), "t", Declared("json", "id STRING"), (), False, "t-dead"))
    rows = spark.sql(
        "SELECT 'a' AS id, 'word' AS word, 0 AS _partition, 0L AS _offset,"
        " timestamp_seconds(0) AS _timestamp"
    )
    with pytest.raises(PipelineError, match=r"narrow does not take a row .* too long for type"):
        table.put(rows, 0)


def test_without_a_key_every_record_is_a_row_with_all_its_values(
    cluster: Cluster, postgres: str, tmp_path: Path
) -> None:
    topic = create(cluster.bootstrap, topic_name("rows"), 1)
    create(cluster.bootstrap, f"{topic}-dead", 1)
    odd = {"id": 7, "word": 'tab\there, "quotes" \\N and é', "price": 1234.5, "tags": ["a", 'b"']}
    send(cluster, topic, odd, odd)
    landed(cluster, topic, PostgresTable(postgres, "plain_rows", (), tmp_path / "state"))
    with psycopg.connect(postgres) as connection:
        query = "SELECT id, word, price::text, tags FROM plain_rows ORDER BY _offset"
        assert (
            connection.execute(query).fetchall() == [(7, odd["word"], "1234.50", ["a", 'b"'])] * 2
        )


def test_a_lost_checkpoint_a_wrong_key_and_no_server_are_sentences(
    cluster: Cluster, postgres: str, tmp_path: Path
) -> None:
    topic = create(cluster.bootstrap, topic_name("wrong"), 1)
    create(cluster.bootstrap, f"{topic}-dead", 1)
    send(cluster, topic, {"id": 1})
    with pytest.raises(PipelineError, match="key colour is no column"):
        landed(cluster, topic, PostgresTable(postgres, "keyless", ("colour",), tmp_path / "a"))
    landed(cluster, topic, PostgresTable(postgres, "moved", (), tmp_path / "b"))
    with pytest.raises(PipelineError, match="not known here"):
        landed(cluster, topic, PostgresTable(postgres, "moved", (), tmp_path / "c"))
    nobody = "postgresql://ada:secret@127.0.0.1:1/shop"
    with pytest.raises(PipelineError, match=r"//…@127.0.0.1:1/shop: ") as refused:
        landed(cluster, topic, PostgresTable(nobody, "t", (), tmp_path / "d"))
    assert "secret" not in refused.value.message
