"""Where Spark looks for `format("dmq")`: a package `pyspark_<format>` with a `DefaultSource`."""

from dmq.spark.datasource import DmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
