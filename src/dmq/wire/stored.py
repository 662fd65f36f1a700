"""The records that coordinators keep in their topics: which key goes with which value.

A key starts with two bytes that say its type, a value with two that say its version; what follows
is told by the tables in `messages/stored_*`, imported when first used. Byte-compatible with Kafka
4.3, so that its tools read our internal topics. Left out: streams groups (types 17-23).

Called by the hosts of the machines, and by `dmq log dump`.
"""

from functools import cached_property
from importlib import import_module
from struct import Struct
from struct import error as StructError  # noqa: N812 (it is a class)
from types import ModuleType
from typing import Any

from dmq.errors import ProtocolError
from dmq.wire.codec import NEVER_FLEXIBLE, Decoders, Encoders, Versions
from dmq.wire.encoder import Parts
from dmq.wire.primitives import Buffer

_PREFIX = Struct(">h")
_KEY_VERSION = 0
"""Keys never change: a new layout would be another key. Their prefix is the type instead."""


class RecordType:
    """One type of record: the classes of its key and value, and their codecs."""

    def __init__(self, number: int, name: str, module: str, versions: Versions) -> None:
        self.number = number
        self.name = name
        self.versions = versions
        self._module_name = module
        key_versions = Versions(_KEY_VERSION, _KEY_VERSION)
        self.key_decoders = Decoders(lambda: self.key_type, key_versions)
        self.key_encoders = Encoders(lambda: self.key_type, key_versions)
        self.value_decoders = Decoders(lambda: self.value_type, versions)
        self.value_encoders = Encoders(lambda: self.value_type, versions)

    @cached_property
    def module(self) -> ModuleType:
        """The module with the tables of the key and the value."""
        return import_module(f"dmq.wire.messages.stored_{self._module_name}")

    @cached_property
    def key_type(self) -> type:
        """The class of the key."""
        key: type = getattr(self.module, f"{self.name}Key")
        return key

    @cached_property
    def value_type(self) -> type:
        """The class of the value, for all versions."""
        value: type = getattr(self.module, f"{self.name}Value")
        return value


class StoredTopic:
    """The record types of one topic."""

    def __init__(self, *types: RecordType) -> None:
        self.types = {found.number: found for found in types}
        self._by_name = {found.name: found for found in types}

    def is_known(self, key: Buffer) -> bool:
        """Is the key of a type that we can decode? Raises ProtocolError if it has no type."""
        return _prefix(key) in self.types

    def encode_key(self, key: Any) -> bytes:
        """The bytes of a key."""
        found = self._by_name[type(key).__name__.removesuffix("Key")]
        return _prefixed(found.number, found.key_encoders[_KEY_VERSION](key))

    def encode_value(self, value: Any, version: int | None = None) -> bytes:
        """The bytes of a value, in its highest version unless another is asked for."""
        found = self._by_name[type(value).__name__.removesuffix("Value")]
        version = found.versions.highest if version is None else version
        return _prefixed(version, found.value_encoders[version](value))

    def decode(self, key: Buffer, value: Buffer | None) -> tuple[Any, Any]:
        """The key and the value of a record; the value is None for a tombstone.

        Raises ProtocolError if the bytes are none, or of a type or version that we don't know.
        """
        found = self.types.get(_prefix(key))
        if found is None:
            raise ProtocolError(f"a record of unknown type {_prefix(key)}")
        decoded_key, _ = found.key_decoders[_KEY_VERSION](key, _PREFIX.size)
        if value is None:
            return decoded_key, None
        decoded_value, _ = found.value_decoders[_prefix(value)](value, _PREFIX.size)
        return decoded_key, decoded_value


def _prefix(raw: Buffer) -> int:
    try:
        (number,) = _PREFIX.unpack_from(raw)
    except StructError:
        raise ProtocolError("a record's key or value is shorter than its prefix") from None
    return int(number)


def _prefixed(prefix: int, parts: Parts) -> bytes:
    (body,) = parts  # Stored records carry no batches, so there is one part.
    assert isinstance(body, bytes)
    return _PREFIX.pack(prefix) + body


def _type(
    number: int, name: str, module: str, highest: int = 0, first_flexible: int = 0
) -> RecordType:
    return RecordType(number, name, module, Versions(0, highest, first_flexible))


CONSUMER_OFFSETS = StoredTopic(
    # type, name, module, highest version and first flexible version of the value
    _type(0, "LegacyOffsetCommit", "offset_commit", 0, NEVER_FLEXIBLE),
    _type(1, "OffsetCommit", "offset_commit", 4, 4),
    _type(2, "GroupMetadata", "group_metadata", 4, 4),
    _type(3, "ConsumerGroupMetadata", "consumer_group"),
    _type(4, "ConsumerGroupPartitionMetadata", "consumer_group"),
    _type(5, "ConsumerGroupMemberMetadata", "consumer_group"),
    _type(6, "ConsumerGroupTargetAssignmentMetadata", "consumer_group"),
    _type(7, "ConsumerGroupTargetAssignmentMember", "consumer_group"),
    _type(8, "ConsumerGroupCurrentMemberAssignment", "consumer_group"),
    _type(10, "ShareGroupMemberMetadata", "share_group"),
    _type(11, "ShareGroupMetadata", "share_group"),
    _type(12, "ShareGroupTargetAssignmentMetadata", "share_group"),
    _type(13, "ShareGroupTargetAssignmentMember", "share_group"),
    _type(14, "ShareGroupCurrentMemberAssignment", "share_group"),
    _type(15, "ShareGroupStatePartitionMetadata", "share_group"),
    _type(16, "ConsumerGroupRegularExpression", "consumer_group"),
)
"""`__consumer_offsets`: groups of all kinds, and what they committed."""

TRANSACTION_STATE = StoredTopic(_type(0, "TransactionLog", "transaction", 1, 1))
"""`__transaction_state`"""

SHARE_GROUP_STATE = StoredTopic(
    _type(0, "ShareSnapshot", "share_state"),
    _type(1, "ShareUpdate", "share_state"),
)
"""`__share_group_state`: what of a partition a share group has been given, and has done."""
