"""`format("dmq")`: the class that Spark makes for each use, and that hands to readers and writers.

Spark finds it as `pyspark_dmq.DefaultSource`. It only dispatches: readers are in `source` and
`stream`, writers in `sink`; each is imported when it is asked for, so that a driver which only
writes never loads what reads.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from dmq.spark.shipping import Shipped

if TYPE_CHECKING:
    from dmq.spark.options import SourceOptions


class DmqDataSource(Shipped, DataSource):
    """Topics of a dmq or Kafka cluster, to read and to write, in batches and streams."""

    @classmethod
    def name(cls) -> str:
        """The word in `format(…)`."""
        return "dmq"

    def schema(self) -> StructType:
        """The columns of the Kafka source."""
        from dmq.spark.schema import source_schema

        return source_schema(self._source_options().includes_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        from dmq.spark.source import batch_reader

        return batch_reader(self._source_options(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        from dmq.spark.stream import StreamReader

        return StreamReader(self._source_options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        from dmq.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        from dmq.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _source_options(self) -> "SourceOptions":
        from dmq.spark.options import SourceOptions

        return SourceOptions.of(self.options)
