"""Protobuf values of a declared message, decoded by Google's own library.

The message is described by a descriptor set: `protoc --include_imports --descriptor_set_out=shop.desc
shop.proto`. Any bytes of another message may look like fields that nobody knows: a value in which no
field is known counts as broken.
"""

import base64
from typing import TYPE_CHECKING, Any

from dmq.spark.pipelines.decoded_values import DecodedValues, Decoder
from dmq.spark.pipelines.failures import PipelineError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_MOMENT = "google.protobuf.Timestamp"


def protobuf_values(descriptors: str, message: str | None, skip_bytes: int) -> DecodedValues:
    """The format of a message in a descriptor set (base64). Raises PipelineError."""
    name = _chosen(descriptors, message)
    type_ = _struct(_class_of(descriptors, name).DESCRIPTOR, ())
    return DecodedValues(type_, lambda: decoder_of(descriptors, name), skip_bytes)


def decoder_of(descriptors: str, message: str) -> Decoder:
    """Bytes → fields."""
    from google.protobuf.message import DecodeError

    kind = _class_of(descriptors, message)

    def decode(value: bytes) -> dict[str, Any]:
        try:
            found = kind.FromString(value)
        except DecodeError as error:
            raise ValueError(f"not Protobuf of {message}: {error}") from error
        if value and not found.ListFields():
            raise ValueError(f"not Protobuf of {message}: none of its fields is in it")
        return _fields(found)

    return decode


def _chosen(descriptors: str, message: str | None) -> str:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = FileDescriptorSet.FromString(base64.b64decode(descriptors)).file
    except DecodeError as error:
        raise PipelineError(
            "The schema is no descriptor set of Protobuf",
            "Make one with `protoc --include_imports --descriptor_set_out=FILE`.",
        ) from error
    names = [
        f"{file.package}.{each.name}".lstrip(".") for file in files for each in file.message_type
    ]
    if message is not None:
        if message not in names:
            raise PipelineError(
                f"There is no message {message!r}", f"There are {', '.join(names)}."
            )
        return message
    if len(names) != 1:
        raise PipelineError("Which message?", f"Give --message: {', '.join(names)}.")
    return names[0]


def _class_of(descriptors: str, message: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(descriptors)).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:  # In the order of their imports, as protoc writes them.
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))


def _struct(descriptor: Any, inside: tuple[str, ...]) -> "StructType":
    from pyspark.sql.types import StructField, StructType

    if descriptor.full_name in inside:
        raise PipelineError(f"Message {descriptor.full_name} is part of itself: it has no columns")
    inside = (*inside, descriptor.full_name)
    return StructType([StructField(each.name, _type(each, inside)) for each in descriptor.fields])


def _type(field: Any, inside: tuple[str, ...]) -> "DataType":
    from pyspark.sql.types import ArrayType, MapType

    if _is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_single(entry["key"], inside), _single(entry["value"], inside))
    kind = _single(field, inside)
    return ArrayType(kind) if field.is_repeated else kind


def _single(field: Any, inside: tuple[str, ...]) -> "DataType":
    from google.protobuf.descriptor import FieldDescriptor as Kind
    from pyspark.sql import types as t

    if field.type in (Kind.TYPE_MESSAGE, Kind.TYPE_GROUP):
        if field.message_type.full_name == _MOMENT:
            return t.TimestampType()
        return _struct(field.message_type, inside)
    if field.type in (Kind.TYPE_UINT64, Kind.TYPE_FIXED64):
        return t.DecimalType(20, 0)
    plain: dict[int, DataType] = {
        Kind.CPPTYPE_INT32: t.IntegerType(),
        Kind.CPPTYPE_UINT32: t.LongType(),
        Kind.CPPTYPE_INT64: t.LongType(),
        Kind.CPPTYPE_DOUBLE: t.DoubleType(),
        Kind.CPPTYPE_FLOAT: t.FloatType(),
        Kind.CPPTYPE_BOOL: t.BooleanType(),
        Kind.CPPTYPE_ENUM: t.StringType(),
    }
    if field.type == Kind.TYPE_BYTES:
        return t.BinaryType()
    return plain.get(field.cpp_type, t.StringType())


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry and field.is_repeated


def _fields(message: Any) -> dict[str, Any]:
    """A message as Python values; a field that may be absent and is has None."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            kind = field.message_type.fields_by_name["value"]
            found[field.name] = {key: _value(kind, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_value(field, each) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    from datetime import UTC

    from google.protobuf.descriptor import FieldDescriptor as Kind

    if field.type in (Kind.TYPE_MESSAGE, Kind.TYPE_GROUP):
        if field.message_type.full_name == _MOMENT:
            return value.ToDatetime(tzinfo=UTC)
        return _fields(value)
    if field.type == Kind.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    if field.type in (Kind.TYPE_UINT64, Kind.TYPE_FIXED64):
        from decimal import Decimal

        return Decimal(value)
    return value
