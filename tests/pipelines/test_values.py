"""Values of the three formats, decoded and refused; types are made without a Java."""

import base64
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dmq.spark.pipelines import avro_values, protobuf_values
from dmq.spark.pipelines.decoded_values import decoded, in_columns
from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.json_values import why_not

SCHEMA = StructType(
    [
        StructField("id", StringType(), nullable=False),
        StructField("n", LongType()),
        StructField("price", StructType([StructField("amount", DoubleType())])),
        StructField("tags", ArrayType(StringType())),
        StructField("at", TimestampType()),
    ]
)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b'{"id": "a", \xff}', "not UTF-8: byte 12 is 0xff"),
        (b'{"id": "a"', "not JSON: Expecting ',' delimiter"),
        (b"[1]", "a JSON array, not an object"),
        (b"3", "a JSON number, not an object"),
        (b"null", "a JSON null, not an object"),
        (b'{"n": 3}', "field id is missing"),
        (b'{"id": "a", "n": "3"}', 'field n: "3" is no long'),
        (b'{"id": "a", "n": true}', "field n: true is no long"),
        (b'{"id": "a", "n": 9223372036854775808}', "is no long"),
        (b'{"id": "a", "price": {"amount": "x"}}', 'field price.amount: "x" is no double'),
        (b'{"id": "a", "price": 3}', "field price: 3 is no object"),
        (b'{"id": "a", "tags": "x"}', 'field tags: "x" is no array'),
        (b'{"id": "a", "at": "soon"}', 'field at: "soon" is no timestamp'),
        (b'{"id": "a", "at": "' + b"x" * 90 + b'"}', "…"),
    ],
)
def test_what_is_wrong_with_json_is_said(value: bytes | None, reason: str) -> None:
    assert reason in why_not(value, SCHEMA)


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "n", "type": ["null", "long"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
    ],
}
ORDER = {
    "id": "a",
    "n": None,
    "kind": "B",
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "price": Decimal("12.50"),
    "tags": ["x"],
    "more": {"y": 1.5},
}


def in_avro(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), value)
    return out.getvalue()


def test_avro_has_columns_of_its_types_and_values_come_back() -> None:
    assert avro_values.type_of(AVRO).simpleString() == (
        "struct<id:string,n:bigint,kind:string,day:date,at:timestamp,price:decimal(9,2),"
        "tags:array<string>,more:map<string,double>>"
    )
    decode = avro_values.decoder_of(json.dumps(AVRO))
    assert decoded(decode, in_avro(ORDER), 0) == (ORDER, None)
    assert decoded(decode, b"\x00\x00\x00\x00\x07" + in_avro(ORDER), 5) == (ORDER, None)


@pytest.mark.parametrize(
    ("value", "skip", "reason"),
    [
        (None, 0, "no value"),
        (b"\x00", 5, "only 1 bytes"),
        (b"", 0, "not Avro of the schema"),
        (in_avro(ORDER)[:-3], 0, "not Avro of the schema"),
        (in_avro(ORDER) + b"..", 0, "2 bytes are left over"),
        (b'{"id": "a"}', 0, "not Avro of the schema"),
    ],
)
def test_what_is_no_avro_has_a_reason(value: bytes | None, skip: int, reason: str) -> None:
    fields, why = decoded(avro_values.decoder_of(json.dumps(AVRO)), value, skip)
    assert fields is None
    assert why is not None
    assert reason in why


def record_of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}


def landed_avro(read_as: Any, *written: tuple[Any, Any]) -> tuple[list[Any], list[Any]]:
    """Values that were written as other types, in the columns of `read_as`; and the reasons."""
    decode = avro_values.decoder_of(json.dumps(record_of(read_as)))
    results = []
    for kind, value in written:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(record_of(kind)), {"x": value})
        results.append(decoded(decode, out.getvalue(), 0))
    parsed, reasons = in_columns(results, avro_values.type_of(record_of(read_as)))
    return parsed.to_pylist(), reasons.to_pylist()


@pytest.mark.parametrize(
    ("read_as", "good", "bad", "reason"),
    [
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            ("bytes", (12345).to_bytes(4)),
            ("bytes", (536_970_000_012).to_bytes(8)),
            "field x: 5.3697E+9 is no decimal(5,2)",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            ("bytes", b""),
            ("bytes", (123456).to_bytes(4)),  # One digit too many: it would have been rounded.
            "field x: 1234.6 is no decimal(5,2)",
        ),
        ("int", ("long", 5), ("long", 2**40), "field x: 1099511627776 is no int"),
    ],
)
def test_avro_beyond_its_column_is_refused_and_its_neighbours_are_not(
    read_as: Any, good: tuple[Any, Any], bad: tuple[Any, Any], reason: str
) -> None:
    rows, reasons = landed_avro(read_as, good, bad, good)
    assert rows[1] is None
    assert rows[0] == rows[2] is not None
    assert reasons == [None, reason, None]


@pytest.mark.parametrize(
    ("logical", "written", "landed"),
    [
        ({"type": "string", "logicalType": "uuid"}, "5f2c", "5f2c"),
        ({"type": "int", "logicalType": "time-millis"}, 5, 5),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            86_400_000,
            datetime(1970, 1, 2),
        ),
    ],
)
def test_logical_types_of_avro_are_landed_as_what_they_are_or_as_written(
    logical: dict[str, str], written: Any, landed: Any
) -> None:
    assert landed_avro(logical, (logical["type"], written)) == ([{"x": landed}], [None])


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            '{"type":"record","name":"D","fields":[{"name":"d","type":'
            '{"type":"bytes","logicalType":"decimal","precision":39}}]}',
            "more than 38 digits",
        ),
        ("{", "does not hold"),
        ('"string"', "not a record's"),
        (
            '{"type":"record","name":"U","fields":[{"name":"u","type":["int","string"]}]}',
            "union of several types",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}',
            "part of itself",
        ),
    ],
)
def test_an_avro_schema_without_columns_is_refused(schema: str, words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        avro_values.avro_values(schema, 0)


def descriptors() -> str:
    """What protoc would make of a small file."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    line = file.message_type.add(name="Line")
    line.field.add(name="product", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(
        {"id": Field.TYPE_STRING, "n": Field.TYPE_UINT64, "is_paid": Field.TYPE_BOOL}.items(), 1
    ):
        order.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    message = {"type": Field.TYPE_MESSAGE, "type_name": ".shop.Line"}
    order.field.add(name="lines", number=4, label=Field.LABEL_REPEATED, **message)
    order.field.add(name="gift", number=5, label=Field.LABEL_OPTIONAL, **message)
    return base64.b64encode(
        descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    ).decode()


def test_protobuf_has_columns_of_its_types_and_values_come_back() -> None:
    kind = protobuf_values._class_of(descriptors(), "shop.Order")
    type_ = protobuf_values._struct(kind.DESCRIPTOR, ())
    assert type_.simpleString() == (
        "struct<id:string,n:decimal(20,0),is_paid:boolean,"
        "lines:array<struct<product:string>>,gift:struct<product:string>>"
    )
    order = kind(id="a", n=2**64 - 1, lines=[{"product": "tea"}])
    decode = protobuf_values.decoder_of(descriptors(), "shop.Order")
    assert decoded(decode, order.SerializeToString(), 0)[0] == {
        "id": "a",
        "n": Decimal(2**64 - 1),
        "is_paid": False,
        "lines": [{"product": "tea"}],
        "gift": None,
    }


def test_what_is_no_protobuf_has_a_reason() -> None:
    decode = protobuf_values.decoder_of(descriptors(), "shop.Order")
    assert "not Protobuf of shop.Order" in str(decoded(decode, b"\x0a\xff", 0)[1])
    assert "none of its fields" in str(decoded(decode, b"\x98\x06\x01", 0)[1])


def test_text_of_protobuf_that_is_none_is_refused() -> None:
    """Only proto3 makes sure that a string is UTF-8."""
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="old", syntax="proto2")
    word = file.message_type.add(name="Word")
    word.field.add(name="word", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    old = base64.b64encode(files).decode()
    decode = protobuf_values.decoder_of(old, "old.Word")
    results = [decoded(decode, value, 0) for value in (b"\x0a\x01a", b"\x0a\x02\xff\xfe")]
    type_ = protobuf_values._struct(protobuf_values._class_of(old, "old.Word").DESCRIPTOR, ())
    parsed, reasons = in_columns(results, type_)
    assert parsed.to_pylist() == [{"word": "a"}, None]
    assert reasons.to_pylist() == [None, r"field word: b'\xff\xfe' is no string"]


def test_a_descriptor_set_must_have_the_message() -> None:
    with pytest.raises(PipelineError, match="Which message"):
        protobuf_values.protobuf_values(descriptors(), None, 0)
    with pytest.raises(PipelineError, match=r"no message 'shop\.Ordr'"):
        protobuf_values.protobuf_values(descriptors(), "shop.Ordr", 0)
    with pytest.raises(PipelineError, match="no descriptor set"):
        protobuf_values.protobuf_values(base64.b64encode(b"\xff\xff").decode(), None, 0)
