"""Compression of record batches: gzip, snappy (raw and xerial-framed), lz4, zstd.

Owns the codec numbers of the batch attributes and the bounds of decompression: nothing here
allocates more than the caller's `bytes_max`, whatever the input claims. Raises `CodecError` on bad
bytes. Called by `records` and by those that open batches; never on the produce and fetch path.
"""

import enum
import struct
import zlib

import cramjam
import lz4.frame

from dmq.errors import DmqError, ErrorCode

CHUNK_BYTES = 1 << 20
"""Step of bounded decompression: small enough to stop a bomb early, large enough to be quick."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_BLOCK_BYTES = 32 * 1024
"""Block size of the Java snappy library, the only one all readers are known to accept."""


class CodecError(DmqError):
    """Bytes that don't decompress, or to more than allowed."""

    code = ErrorCode.CORRUPT_MESSAGE


class Codec(enum.IntEnum):
    """Codec numbers as in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """Compress whole; `level` is in the codec's own scale, None for its default."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.GZIP:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == Codec.SNAPPY:
        return _xerial_compress(data)
    if codec == Codec.LZ4:
        packed: bytes = lz4.frame.compress(
            data, compression_level=level or 0, block_linked=False, store_size=False
        )
        return packed
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))
    raise CodecError(f"unknown compression codec {codec}")


def decompress(codec: int, data: bytes | memoryview, bytes_max: int) -> bytes | memoryview:
    """Decompress whole, to at most `bytes_max` bytes.

    Raises CodecError if the bytes are no such stream or hold more.
    """
    if codec == Codec.NONE:
        if len(data) > bytes_max:
            raise _too_large(bytes_max)
        return data
    if codec == Codec.GZIP:
        return _gunzip(data, bytes_max)
    if codec == Codec.SNAPPY:
        return _unsnappy(data, bytes_max)
    if codec == Codec.LZ4:
        return _unlz4(data, bytes_max)
    if codec == Codec.ZSTD:
        return _unzstd(data, bytes_max)
    raise CodecError(f"unknown compression codec {codec}")


def _too_large(bytes_max: int) -> CodecError:
    return CodecError(f"batch decompresses to more than the allowed {bytes_max} bytes")


def _gunzip(data: bytes | memoryview, bytes_max: int) -> bytes:
    out = bytearray()
    rest: bytes | memoryview = data
    try:
        while rest:  # A gzip stream may have several members.
            unpacker = zlib.decompressobj(31)
            chunk = unpacker.decompress(rest, CHUNK_BYTES)
            while chunk:
                out += chunk
                if len(out) > bytes_max:
                    raise _too_large(bytes_max)
                chunk = unpacker.decompress(unpacker.unconsumed_tail, CHUNK_BYTES)
            if not unpacker.eof:
                raise CodecError("gzip stream ends too early")
            rest = unpacker.unused_data
    except zlib.error as error:
        raise CodecError(f"bad gzip stream: {error}") from error
    return bytes(out)


def _unlz4(data: bytes | memoryview, bytes_max: int) -> bytes:
    unpacker = lz4.frame.LZ4FrameDecompressor()
    out = bytearray()
    try:
        chunk = unpacker.decompress(data, max_length=CHUNK_BYTES)
        while True:
            out += chunk
            if len(out) > bytes_max:
                raise _too_large(bytes_max)
            if unpacker.eof:
                return bytes(out)
            if unpacker.needs_input and not chunk:
                raise CodecError("lz4 frame ends too early")
            chunk = unpacker.decompress(b"", max_length=CHUNK_BYTES)
    except (RuntimeError, EOFError) as error:
        raise CodecError(f"bad lz4 frame: {error}") from error


def _unzstd(data: bytes | memoryview, bytes_max: int) -> memoryview:
    """Into a buffer that grows until it fits: a frame need not say how much it holds."""
    size = min(bytes_max, max(8 * len(data), 4096))
    while True:
        buffer = bytearray(size)
        try:
            used = cramjam.zstd.decompress_into(data, buffer)
            return memoryview(buffer)[:used]
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise CodecError(f"bad zstd stream: {error}") from error
        if size >= bytes_max:
            raise _too_large(bytes_max)
        size = min(bytes_max, 8 * size)


def _unsnappy(data: bytes | memoryview, bytes_max: int) -> bytes | memoryview:
    """Xerial's framing if its magic is there, else one raw block: both are on the wire."""
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _unsnappy_block(data, bytes_max)
    parts: list[bytes | memoryview] = []
    total, at = 0, _XERIAL_HEADER.size
    while at < len(data):
        if at + 4 > len(data):
            raise CodecError("snappy framing ends too early")
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if size < 0 or at + size > len(data):
            raise CodecError("snappy framing ends too early")
        parts.append(_unsnappy_block(data[at : at + size], bytes_max - total))
        total += len(parts[-1])
        at += size
    return b"".join(parts)


def _unsnappy_block(data: bytes | memoryview, bytes_max: int) -> memoryview:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > bytes_max:
            raise _too_large(bytes_max)
        buffer = bytearray(size)
        used = cramjam.snappy.decompress_raw_into(data, buffer)
    except cramjam.DecompressionError as error:
        raise CodecError(f"bad snappy block: {error}") from error
    return memoryview(buffer)[:used]


def _xerial_compress(data: bytes) -> bytes:
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        parts.append(struct.pack(">i", len(block)))
        parts.append(block)
    return b"".join(parts)
