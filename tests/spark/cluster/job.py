"""A job for `spark-submit`, as a user writes it: counts a topic's records, copies them to another.

Imports nothing of dmq: whether its Python has that is what is tried.
"""

import sys

from pyspark.sql import SparkSession


def main() -> None:
    servers, source, sink = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    reader = spark.read.format("dmq").option("kafka.bootstrap.servers", servers)
    rows = reader.option("subscribe", source).load()
    writer = rows.select("key", "value").write.format("dmq")
    writer = writer.option("kafka.bootstrap.servers", servers).option("topic", sink)
    writer.mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main()
