"""A job for `spark-submit`, as a user writes it: counts a topic's records, copies them to another.

With `register` it takes dmq from `--py-files`; without, Spark has to find it.
"""

import sys

from pyspark.sql import SparkSession


def main() -> None:
    servers, source, sink, *how = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    if "register" in how:
        from dmq.spark.datasource import DmqDataSource

        spark.dataSource.register(DmqDataSource)
    reader = spark.read.format("dmq").option("kafka.bootstrap.servers", servers)
    rows = reader.option("subscribe", source).load()
    writer = rows.select("key", "value").write.format("dmq")
    writer = writer.option("kafka.bootstrap.servers", servers).option("topic", sink)
    writer.mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main()
