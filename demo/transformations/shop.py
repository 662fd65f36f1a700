"""The demo's pipeline: a shop's topics → a table of events → what a shopkeeper wants to know.

orders, payments, clicks ──▶ events ──┬──▶ revenue (view)    per minute: ordered, paid
                                      ├──▶ products (view)   what sells
                                      ├──▶ customers (view)  who buys
                                      └──▶ topic shop-dead   what does not parse, and why
orders ──▶ topic shop-revenue    per minute and product, exactly once
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

spark: SparkSession  # Given by Spark when it loads this file.

BOOTSTRAP = os.environ["DMQ_BOOTSTRAP_SERVERS"]
SCHEMA = """
    order_id STRING, customer STRING, product STRING, quantity BIGINT, amount DOUBLE,
    paid DOUBLE, method STRING, page STRING, ms BIGINT, at TIMESTAMP, broken STRING
"""
LATE = "10 minutes"


def header(name: str, value: Column) -> Column:
    """One header of a record. (Spark calls definitions as it reads them: helpers stand above.)"""
    text = sf.encode(value.cast("string"), "UTF-8")
    return sf.struct(sf.lit(name).alias("key"), text.alias("value"))


@dp.table
def events() -> DataFrame:
    """Every record of the three topics: its fields if it parses, its text if it does not."""
    text = sf.col("value").cast("string")
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "broken"}
    return (
        spark.readStream.format("dmq")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", "orders,payments,clicks")
        .option("startingOffsets", "earliest")
        .option("groupId", "shop")
        .load()
        .select("topic", "partition", "offset", "timestamp", "key", "value")
        .withColumn("fields", sf.from_json(text, SCHEMA, how))
        .withColumn("is_good", sf.expr("fields IS NOT NULL AND fields.broken IS NULL"))
    )


@dp.materialized_view
def revenue() -> DataFrame:
    """Per minute of the event's own time: what was ordered and what of it was paid."""
    good = spark.read.table("events").where("is_good")
    wanted = ("order_id", "at", "amount")
    orders = good.where("topic = 'orders'").select(*[f"fields.{name}" for name in wanted])
    payments = good.where("topic = 'payments'").select("fields.order_id", "fields.paid")
    return (
        orders.join(payments, "order_id", "left")
        .groupBy(sf.date_trunc("minute", "at").alias("minute"))
        .agg(
            sf.count("*").alias("orders"),
            sf.round(sf.sum("amount"), 2).alias("ordered"),
            sf.round(sf.coalesce(sf.sum("paid"), sf.lit(0.0)), 2).alias("paid"),
        )
    )


@dp.materialized_view
def products() -> DataFrame:
    """What sells."""
    orders = spark.read.table("events").where("is_good AND topic = 'orders'").select("fields.*")
    return orders.groupBy("product").agg(
        sf.count("*").alias("orders"),
        sf.sum("quantity").alias("pieces"),
        sf.round(sf.sum("amount"), 2).alias("revenue"),
    )


@dp.materialized_view
def customers() -> DataFrame:
    """Who buys, and who only looks."""
    good = spark.read.table("events").where("is_good AND topic IN ('orders', 'clicks')")
    return good.groupBy("fields.customer").agg(
        sf.count_if(sf.col("topic") == "orders").alias("orders"),
        sf.count_if(sf.col("topic") == "clicks").alias("clicks"),
    )


dp.create_sink(
    "revenue_out",
    format="dmq",
    options={"kafka.bootstrap.servers": BOOTSTRAP, "topic": "shop-revenue"},
)


@dp.append_flow(target="revenue_out", name="revenue_windows")
def revenue_windows() -> DataFrame:
    """A record per product and minute, as soon as the minute is over for good."""
    window = sf.window("timestamp", "1 minute")
    sums = (
        spark.readStream.format("dmq")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .withColumn("fields", sf.from_json(sf.col("value").cast("string"), SCHEMA))
        .where("fields.amount IS NOT NULL")
        .withWatermark("timestamp", LATE)
        .groupBy(window.alias("window"), sf.col("fields.product").alias("product"))
        .agg(sf.count("*").alias("orders"), sf.sum("fields.amount").alias("revenue"))
    )
    facts = sf.struct("product", sf.col("window.start").alias("minute"), "orders", "revenue")
    return sums.select(
        sf.col("product").cast("binary").alias("key"),
        sf.to_json(facts).cast("binary").alias("value"),
    )


dp.create_sink(
    "dead_out",
    format="dmq",
    options={"kafka.bootstrap.servers": BOOTSTRAP, "topic": "shop-dead"},
)


@dp.append_flow(target="dead_out", name="dead_letters")
def dead_letters() -> DataFrame:
    """Records that don't parse, as they came, with the reason and the place in headers."""
    reason = sf.when(sf.col("value").isNull(), "no value").otherwise("not JSON of the schema")
    headers = {
        "dmq.dead.reason": reason,
        "dmq.dead.topic": sf.col("topic"),
        "dmq.dead.partition": sf.col("partition"),
        "dmq.dead.offset": sf.col("offset"),
    }
    bad = spark.readStream.table("events").where("NOT is_good")
    return bad.select(
        "key", "value", sf.array(*[header(*each) for each in headers.items()]).alias("headers")
    )
