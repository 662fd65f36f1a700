"""Run the demo: `make demo`, or `python -m demo --orders 20000`.

Three brokers are started, a shop's events are sent, the pipeline in `transformations/` is run by
`dmq pipeline run`, and its tables are shown, drawn and checked against what was sent.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from demo.generator import TOPICS, Shop
from demo.picture import draw
from dmq.cli.output import Column, Output
from dmq.testing import Cluster

HERE = Path(__file__).parent
FOLDER = HERE.parent / ".cache" / "demo"
SPEC = """name: shop
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: UTC
"""
JAVA = "spark.driver.extraJavaOptions"
OUT = ("shop-revenue", "shop-dead")
VIEWS = ("revenue", "products", "customers")


def main() -> int:
    """The whole demo; 1 if something is missing at its end."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--orders", type=int, default=20_000, help="about five records each")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the project is made")
    asked = parser.parse_args()
    began = time.monotonic()
    output = Output()
    shutil.rmtree(asked.folder, ignore_errors=True)
    step("1/4 Starting three brokers")
    with Cluster(3, network="direct") as cluster:
        print(f"    {cluster.bootstrap}")
        step(f"2/4 Sending the events of {asked.orders:,} orders")
        shop = Shop(asked.orders, round(time.time() * 1000))
        feed(output, cluster.bootstrap, shop)
        step("3/4 Running the pipeline on Spark")
        run(asked.folder, cluster.bootstrap)
        step("4/4 Results")
        tables = {name: pq.read_table(asked.folder / "warehouse" / name) for name in VIEWS}
        show(output, tables)
        picture = asked.folder / "shop.png"
        draw(
            picture, tables, f"{sum(shop.sent.values()):,} events of a shop, through dmq and Spark"
        )
        is_good = check(output, shop, cluster.bootstrap, tables)
    print(f"\nPicture: {picture}\nProject: {asked.folder}\nTook {time.monotonic() - began:.0f} s")
    return 0 if is_good else 1


def step(text: str) -> None:
    """What comes next."""
    print(f"\n{text}", flush=True)


def feed(output: Output, bootstrap: str, shop: Shop) -> None:
    """Make the topics and send all events."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, 4, 3) for name in (*TOPICS, *OUT)])
    for future in made.values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    with output.progress("events") as bar:
        for event in shop.events():
            while True:
                try:
                    producer.produce(
                        event.topic, event.value, event.key, timestamp=event.timestamp_ms
                    )
                    break
                except BufferError:  # The brokers are slower than we are.
                    producer.poll(0.1)
            producer.poll(0)
            bar.advance(1, len(event.value or b""))
        assert producer.flush(60) == 0
    for topic in TOPICS:
        print(f"    {topic:<9} {shop.sent[topic]:>7,} records, {shop.broken[topic]:,} do not parse")


def run(folder: Path, bootstrap: str) -> None:
    """Make the project and run it, with the progress that everybody sees."""
    shutil.copytree(HERE / "transformations", folder / "transformations")
    storage = (folder / "storage").resolve().as_uri()
    (folder / "spark-pipeline.yml").write_text(SPEC.format(storage=storage))
    dmq = Path(sys.executable).parent / "dmq"
    done = subprocess.run(
        # A short run ends before Java's second compiler pays off.
        [dmq, "pipeline", "run", folder, "--conf", f"{JAVA}=-XX:TieredStopAtLevel=1"],
        env=os.environ | {"DMQ_BOOTSTRAP_SERVERS": bootstrap},
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.returncode)  # It has said why.


def show(output: Output, tables: dict[str, pa.Table]) -> None:
    """The views that people like to see."""
    products = tables["products"].sort_by([("revenue", "descending")]).to_pylist()
    columns = [Column("product"), Column("orders", True), Column("pieces", True)]
    rows = [
        [r["product"], f"{r['orders']:,}", f"{r['pieces']:,}", f"{r['revenue']:,.2f}"]
        for r in products
    ]
    output.table([*columns, Column("revenue", True)], rows)
    customers = tables["customers"].sort_by([("orders", "descending")]).slice(0, 5).to_pylist()
    columns = [Column("customer"), Column("orders", True), Column("clicks", True)]
    found = [[r["customer"], f"{r['orders']:,}", f"{r['clicks']:,}"] for r in customers]
    output.table(columns, found)


def check(output: Output, shop: Shop, bootstrap: str, tables: dict[str, pa.Table]) -> bool:
    """Everything that was sent is somewhere, once."""
    orders = sum(tables["products"]["orders"].to_pylist())
    clicks = sum(tables["customers"]["clicks"].to_pylist())
    facts = [
        ("orders in the tables", orders, shop.sent["orders"] - shop.broken["orders"]),
        ("clicks in the tables", clicks, shop.sent["clicks"] - shop.broken["clicks"]),
        ("dead letters", count(bootstrap, "shop-dead"), sum(shop.broken.values())),
    ]
    for name, found, expected in facts:
        word = output.verdict("ok" if found == expected else "fail")
        print(f"{word} {name}: {found:,} of {expected:,}")
    print(f"   records in topic shop-revenue: {count(bootstrap, 'shop-revenue'):,}")
    return all(found == expected for _, found, expected in facts)


def count(bootstrap: str, topic: str) -> int:
    """Committed records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found, open_ = 0, len(partitions)
    while open_:
        for message in consumer.consume(500, timeout=1):
            if message.error() is None:
                found += 1
            else:  # The end of a partition.
                open_ -= 1
    consumer.close()
    return found


if __name__ == "__main__":
    raise SystemExit(main())
