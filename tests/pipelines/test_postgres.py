"""Topics landed in a real PostgreSQL, started for these tests."""

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.feeding import create, produce, topic_name

from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.landing import Order, land
from dmq.spark.pipelines.postgres import PostgresTable
from dmq.spark.pipelines.sessions import Where
from dmq.spark.pipelines.tables import new_id
from dmq.testing import Cluster

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: make setup-dev")
pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(1200)]

SCHEMA = "id BIGINT NOT NULL, word STRING, price DECIMAL(10,2), tags ARRAY<STRING>, at TIMESTAMP"


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
    progress = landed(cluster, topic, table)
    assert (progress.rows, progress.dead_letters) == (4, 1)
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
