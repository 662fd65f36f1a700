"""Records that don't parse, as records of the dead-letter topic.

A dead letter is the record as it was, key, value and headers, with headers added that say why it
is there and where it was. So it can be mended and sent again by any client.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON = "dmq.dead.reason"
PLACE = {"topic": "dmq.dead.topic", "partition": "dmq.dead.partition", "offset": "dmq.dead.offset"}
WHEN = "dmq.dead.timestamp"


def letters(bad: "DataFrame") -> "DataFrame":
    """Columns for the sink, from records with a `reason` (and with their headers)."""
    from pyspark.sql import functions as f

    added = [_header(REASON, f.col("reason"))]
    added += [_header(name, f.col(column)) for column, name in PLACE.items()]
    added.append(_header(WHEN, f.unix_millis("timestamp")))
    none = f.array().cast("array<struct<key:string,value:binary>>")
    headers = f.concat(f.coalesce(f.col("headers"), none), f.array(*added))
    return bad.select("key", "value", headers.alias("headers"))


def _header(name: str, value: "Column") -> "Column":
    from pyspark.sql import functions as f

    text = f.encode(value.cast("string"), "UTF-8")
    return f.struct(f.lit(name).alias("key"), text.alias("value"))


def places(letters_read: "DataFrame") -> "DataFrame":
    """Where dead letters were: topic, partition and offset, from a topic of them with headers."""
    from pyspark.sql import functions as f

    def text(name: str) -> "Column":
        found = f.filter("headers", lambda header: header["key"] == name)
        return f.element_at(found, -1)["value"].cast("string")

    return letters_read.select(
        text(PLACE["topic"]).alias("topic"),
        text(PLACE["partition"]).cast("int").alias("partition"),
        text(PLACE["offset"]).cast("long").alias("offset"),
        text(REASON).alias("reason"),
    )
