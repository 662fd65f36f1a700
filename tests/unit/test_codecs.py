"""Compression: round trips, the framings of other implementations, bounds, bad bytes."""

import contextlib
import gzip

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmq.codecs import Codec, CodecError, compress, decompress

PACKING = list(Codec)[1:]


@given(st.sampled_from(list(Codec)), st.binary(max_size=100_000))
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data), len(data) + 1)) == data


@pytest.mark.parametrize("codec", PACKING)
def test_exactly_the_bound_fits_and_one_more_does_not(codec: Codec) -> None:
    packed = compress(codec, bytes(300_000))
    assert len(decompress(codec, packed, 300_000)) == 300_000
    with pytest.raises(CodecError, match="more than the allowed"):
        decompress(codec, packed, 299_999)


@given(st.sampled_from(list(Codec)), st.binary(max_size=500))
def test_any_bytes_give_bytes_or_a_codec_error(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(CodecError):
        assert len(decompress(codec, data, 1 << 20)) <= 1 << 20


@given(st.sampled_from(PACKING), st.binary(min_size=100, max_size=2000), st.data())
def test_truncation_never_passes_for_the_whole(
    codec: Codec, data: bytes, draw: st.DataObject
) -> None:
    packed = compress(codec, data)
    cut = draw.draw(st.integers(0, len(packed) - 1))
    with contextlib.suppress(CodecError):
        assert bytes(decompress(codec, packed[:cut], 1 << 20)) != data


def test_unknown_codec() -> None:
    with pytest.raises(CodecError):
        decompress(5, b"", 10)
    with pytest.raises(CodecError):
        compress(5, b"")


def test_raw_snappy_and_xerial_snappy_are_both_read() -> None:
    data = b"snappy " * 10_000
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert bytes(decompress(Codec.SNAPPY, raw, len(data))) == data
    framed = compress(Codec.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00")
    assert bytes(decompress(Codec.SNAPPY, framed, len(data))) == data


def test_several_gzip_members() -> None:
    data = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")
    assert decompress(Codec.GZIP, data, 100) == b"one two"


def test_lz4_frames_with_and_without_sizes() -> None:
    data = b"lz4 " * 5000
    for store_size in (True, False):
        packed = lz4.frame.compress(data, store_size=store_size)
        assert decompress(Codec.LZ4, packed, len(data)) == data


def test_levels_are_taken() -> None:
    data = bytes(range(256)) * 400
    for codec, level in ((Codec.GZIP, 9), (Codec.LZ4, 9), (Codec.ZSTD, 9)):
        assert bytes(decompress(codec, compress(codec, data, level), len(data))) == data
