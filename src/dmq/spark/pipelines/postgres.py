"""A table of PostgreSQL that a topic is landed in: rows are replaced by key, each batch counts once.

Executors copy a batch's rows into a table aside (COPY, no log); then the driver merges them in one
transaction, together with the batch's number in `dmq_landings`: a batch that Spark repeats after a
crash is found there and left out. Of several records of a key the last one wins: in a partition the
one with the highest offset; among partitions, whose offsets say nothing of each other, the latest of
these by its time (a key is in several if it is not the record's, or if partitions were added).
Without a key of the caller's, rows are added, and their key is the place in the topic.

psycopg does the talking: Spark's own way to a database is a Java driver, a jar that everybody would
have to find, and it can only append.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.postgres_limits import NESTED, refusal, text_of_key
from dmq.spark.pipelines.tables import Landing

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_PLACE = ("_partition", "_offset")
_TYPES = {
    "string": "text", "byte": "smallint", "short": "smallint", "integer": "integer",
    "long": "bigint", "float": "real", "double": "double precision", "boolean": "boolean",
    "timestamp": "timestamptz", "timestamp_ntz": "timestamp", "date": "date", "binary": "bytea",
}  # fmt: skip
_MAKE_LANDINGS = """
    CREATE TABLE IF NOT EXISTS dmq_landings (
        id text PRIMARY KEY, target text UNIQUE NOT NULL, batch bigint NOT NULL, facts jsonb NOT NULL)
"""


class PostgresTable:
    """The table, and the batches that are merged into it."""

    def __init__(self, url: str, table: str, keys: tuple[str, ...], state: Path) -> None:
        self._url = url
        self._table = table
        self._keys = keys or _PLACE
        self.own = state.expanduser().resolve() / "_dmq"
        self.checkpoint = self.own / "checkpoint"
        self.record = self.own / "run.json"
        self.log = self.own / "spark.log"
        self._id = ""

    def landing(self) -> Landing | None:
        """What is landed in this table already. Raises PipelineError if its checkpoint is gone."""
        with self._connected() as connection:
            connection.execute(_MAKE_LANDINGS)
            found = connection.execute(
                "SELECT facts, batch FROM dmq_landings WHERE target = %s", (self._table,)
            ).fetchone()
        if found is None:
            return None
        if found[1] >= 0 and not self.checkpoint.exists():
            raise PipelineError(
                f"Table {self._table} holds rows, but how far its topic was read is not known here",
                f"Say with --state where its checkpoint is; {self.checkpoint} is not there.",
            )
        return Landing.of(found[0])

    def begin(self, landing: Landing) -> None:
        """Remember what is landed; the tables are made when the first rows say which columns."""
        known = self.landing()
        if known is not None and known != landing:
            raise PipelineError(
                f"Table {self._table} was landed in another way", "Choose another table."
            )
        self.own.mkdir(parents=True, exist_ok=True)
        self._id = landing.id
        facts = json.dumps(asdict(landing))
        with self._connected() as connection:
            connection.execute(
                "INSERT INTO dmq_landings VALUES (%s, %s, -1, %s) ON CONFLICT (id) DO NOTHING",
                (landing.id, self._table, facts),
            )

    def refusal(self, row: "StructType") -> "Column":
        """Why PostgreSQL would not take a row. Raises PipelineError if rows don't have the key."""
        missing = set(self._keys) - set(row.fieldNames())
        if missing:
            raise PipelineError(
                f"The key {', '.join(sorted(missing))} is no column", "Choose --key of the fields."
            )
        return refusal(row, self._keys)

    def put(self, rows: "DataFrame", batch: int) -> None:
        """Merge these rows, unless that was done for this batch already."""
        columns = [(field.name, _type(field.dataType)) for field in rows.schema.fields]
        is_done = self._prepare(columns, batch)
        statement = self._statement("COPY {stage} ({names}) FROM STDIN", columns)
        copy = _copier(self._url, statement.as_string(None))
        # A repeated batch is read too, because records that don't parse are counted on the way. And only
        # what Spark writes is counted: `foreachPartition` would leave the count open for ever.
        read = rows.select(*_texts(rows)).mapInArrow(_reader if is_done else copy, "nothing int")
        read.write.format("noop").mode("overwrite").save()
        if not is_done:
            self._merge(columns, batch)

    def tidy(self, before_batch: int | None) -> None:
        """PostgreSQL does its own housekeeping."""

    def _prepare(self, columns: list[tuple[str, str]], batch: int) -> bool:
        """Make the tables, empty the one aside; True if the batch was merged already."""
        with self._connected() as connection:
            row = connection.execute(
                "SELECT batch FROM dmq_landings WHERE id = %s", (self._id,)
            ).fetchone()
            assert row is not None
            if row[0] >= batch:
                return True
            make = "CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY ({keys}))"
            connection.execute(self._statement(make, columns))
            make = "CREATE UNLOGGED TABLE IF NOT EXISTS {stage} ({columns})"
            connection.execute(self._statement(make, columns))
            connection.execute(self._statement("TRUNCATE {stage}", columns))
        return False

    def _merge(self, columns: list[tuple[str, str]], batch: int) -> None:
        merge = """
            INSERT INTO {table} ({names})
            SELECT DISTINCT ON ({keys}) {names} FROM (
                SELECT DISTINCT ON ({keys}, _partition) {names} FROM {stage}
                ORDER BY {keys}, _partition, _offset DESC
            ) AS last_of_each_partition
            ORDER BY {keys}, _timestamp DESC, _partition
            ON CONFLICT ({keys}) DO UPDATE SET ({names}) = ROW ({excluded})
            WHERE CASE WHEN {table}._partition = excluded._partition
                THEN {table}._offset < excluded._offset
                ELSE {table}._timestamp <= excluded._timestamp END
        """
        with self._connected() as connection:
            self._move(connection, self._statement(merge, columns))
            connection.execute(
                "UPDATE dmq_landings SET batch = %s WHERE id = %s", (batch, self._id)
            )
            connection.execute(self._statement("TRUNCATE {stage}", columns))

    def _move(self, connection: "Connection[Any]", merge: "Composed") -> None:
        """Rows that were copied fit the columns of the table that we would make; others made this one."""
        import psycopg

        try:
            connection.execute(merge)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            why = str(error).strip().splitlines()[0]
            raise PipelineError(
                f"Table {self._table} does not take a row that is good by the schema: {why}",
                "Its columns and constraints must take all that the schema allows: alter the table.",
            ) from error

    def _statement(self, text: str, columns: list[tuple[str, str]]) -> "Composed":
        from psycopg.sql import SQL, Identifier

        names = [Identifier(name) for name, _ in columns]
        typed = [SQL("{} {}").format(Identifier(name), SQL(kind)) for name, kind in columns]
        return SQL(text).format(
            table=Identifier(*self._table.split(".")),
            stage=Identifier(f"dmq_stage_{self._id}"),
            names=SQL(", ").join(names),
            columns=SQL(", ").join(typed),
            keys=SQL(", ").join(Identifier(key) for key in self._keys),
            excluded=SQL(", ").join(SQL("excluded.{}").format(name) for name in names),
        )

    @contextmanager
    def _connected(self) -> "Iterator[Connection[Any]]":
        """A connection whose transaction ends with the block. Raises PipelineError."""
        try:
            import psycopg
        except ImportError as error:
            raise PipelineError(
                "psycopg is not installed", "Install it with `pip install 'dmq[postgres]'`."
            ) from error
        try:
            with psycopg.connect(self._url) as connection:
                yield connection
        except psycopg.Error as error:
            where = re.sub(r"//[^@/]*@", "//…@", self._url)
            why = str(error).strip().splitlines()[0]
            raise PipelineError(f"PostgreSQL at {where}: {why}") from error


def _type(kind: "DataType") -> str:
    """PostgreSQL's type for one of Spark's."""
    name = kind.typeName()
    if name.startswith("decimal"):
        return f"numeric{kind.simpleString().removeprefix('decimal')}"
    return "jsonb" if name in NESTED else _TYPES.get(name, "text")


def _texts(rows: "DataFrame") -> "list[Column]":
    """Every column as the text that COPY reads; Python's own types would lose digits and zones."""
    from pyspark.sql import functions as f

    texts = []
    for field in rows.schema.fields:
        column = f.col(f"`{field.name}`")
        name = field.dataType.typeName()
        if field.name == "_key":
            column = text_of_key(column)
        elif name in NESTED:
            column = f.to_json(column)
        elif name == "binary":
            column = f.concat(f.lit("\\x"), f.hex(column))
        elif name == "timestamp":
            column = f.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSSXXX")
        texts.append(column.cast("string").alias(field.name))
    return texts


def _reader(batches: Iterator[Any]) -> Iterator[Any]:
    """Read rows that are merged already."""
    for _ in batches:
        pass
    yield from ()


def _copier(url: str, statement: str) -> Any:
    """What an executor does with its share of a batch: all of it in one transaction."""

    def copy_rows(batches: Iterator[Any]) -> Iterator[Any]:
        import psycopg

        with (
            psycopg.connect(url) as connection,
            connection.cursor() as cursor,
            cursor.copy(statement.encode()) as copy,
        ):
            for batch in batches:
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copy.write_row(row)
        yield from ()

    return copy_rows
