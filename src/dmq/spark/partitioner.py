"""Which partition a key goes to: hashes of whole Arrow columns, as other clients compute them.

`murmur2` is the hash of Java's default partitioner and of librdkafka's `murmur2_random`; `crc32` that
of librdkafka's default, `consistent_random`. Keys are looked at from the longest to the shortest, so
that a step of the hash touches only those keys that still have bytes: the work is that of the bytes
there are, not that of the longest key times the rows.
"""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint32]
Integers = npt.NDArray[np.int64]

_SEED = np.uint32(0x9747B28C)
_MULTIPLIER = np.uint32(0x5BD1E995)
_SIGN_LESS = np.uint32(0x7FFFFFFF)
"""Java takes the lowest 31 bits, for its numbers have a sign."""
_CRC_TABLE = np.array(
    [zlib.crc32(bytes([octet]), 0xFFFFFFFF) ^ 0xFFFFFFFF for octet in range(256)], dtype=np.uint32
)


def murmur2(keys: Any) -> Hashes:
    """Kafka's murmur2 of an Arrow binary column; what a null hashes to is not defined."""
    data, starts, lengths, back = _sorted(keys)
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    hashes = _SEED ^ lengths.astype(np.uint32)
    whole = lengths // 4
    for at in range(int(whole.max(initial=0))):
        active = _longer_than(whole, at)
        word = words[starts[:active] + 4 * at] * _MULTIPLIER
        word ^= word >> np.uint32(24)
        hashes[:active] = (hashes[:active] * _MULTIPLIER) ^ (word * _MULTIPLIER)
    rest, tails = lengths & 3, starts + 4 * whole
    for place, shift in ((2, 16), (1, 8), (0, 0)):
        has = rest > place
        hashes[has] ^= data[tails[has] + place].astype(np.uint32) << np.uint32(shift)
    hashes[rest > 0] *= _MULTIPLIER
    hashes ^= hashes >> np.uint32(13)
    hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint32(15)
    return hashes[back]


def crc32(keys: Any) -> Hashes:
    """CRC-32 (zlib's) of an Arrow binary column; what a null hashes to is not defined."""
    data, starts, lengths, back = _sorted(keys)
    hashes = np.full(len(lengths), 0xFFFFFFFF, np.uint32)
    for at in range(int(lengths.max(initial=0))):
        active = _longer_than(lengths, at)
        octets = data[starts[:active] + at]
        index = (hashes[:active] & np.uint32(0xFF)) ^ octets
        hashes[:active] = _CRC_TABLE[index] ^ (hashes[:active] >> np.uint32(8))
    return (~hashes)[back]


def _sorted(keys: Any) -> tuple[npt.NDArray[np.uint8], Integers, Integers, Integers]:
    """Bytes, starts and lengths from the longest key to the shortest, and the way back."""
    _, offsets, buffer = keys.buffers()
    narrow = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    bounds: Integers = narrow.astype(np.int64)
    data = np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    if len(data) < 4:  # Words are read four bytes at a time.
        data = np.concatenate([data, np.zeros(4, np.uint8)])
    lengths = np.diff(bounds)
    order = np.argsort(-lengths, kind="stable")
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return data, bounds[:-1][order], lengths[order], back


def _longer_than(sorted_lengths: Integers, length: int) -> int:
    """How many lengths, which fall from the first on, are larger."""
    return int(np.searchsorted(-sorted_lengths, -length, side="left"))


class Partitioner:
    """A way to choose partitions: a hash of the key, and whether an empty key counts as none."""

    def __init__(
        self, hash_of: Callable[[Any], Hashes], *, mask: np.uint32, empty_is_keyless: bool
    ) -> None:
        self._hash_of = hash_of
        self._mask = mask
        self._empty_is_keyless = empty_is_keyless

    def keyless(self, keys: Any) -> npt.NDArray[np.bool_]:
        """Which rows have no key to go by: the sender spreads them."""
        missing = np.asarray(keys.is_null())
        if self._empty_is_keyless:
            _, offsets, _ = keys.buffers()
            bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
            missing = missing | (np.diff(bounds) == 0)
        return missing

    def partitions(self, keys: Any, count: int) -> npt.NDArray[np.int32]:
        """The partition of each key; without meaning for keyless rows."""
        hashes = self._hash_of(keys) & self._mask
        return (hashes % np.uint32(count)).astype(np.int32)


_JAVA = Partitioner(murmur2, mask=_SIGN_LESS, empty_is_keyless=False)
PARTITIONERS = {
    "java": _JAVA,
    "murmur2_random": _JAVA,
    "consistent_random": Partitioner(crc32, mask=np.uint32(0xFFFFFFFF), empty_is_keyless=True),
}
"""By the value of the option `partitioner`. The first two are the same rule under two names."""
