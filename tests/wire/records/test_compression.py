"""Codecs: round trips at every level, frames of other writers, truncation, bombs, garbage."""

from __future__ import annotations

import gzip
import random
import struct

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker_wire.records.compression import (
    CHUNK_SIZE,
    Codec,
    CompressionError,
    TooLarge,
    compress,
    decompress,
    stream,
)

REAL = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"%d bottles of beer, " % n for n in range(30_000))
NOISE = random.Random(1).randbytes(300_000)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "data", [b"", b"x", TEXT[:1000], TEXT, NOISE], ids=["nothing", "byte", "small", "text", "noise"]
)
def test_round_trip(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(bytearray(packed)), len(data)) == data
    chunks = list(stream(codec, packed))
    assert b"".join(chunks) == data
    assert all(0 < len(chunk) <= CHUNK_SIZE for chunk in chunks)


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, (-1, 1, 6, 9)), (Codec.LZ4, (1, 5, 9, 12, 17)), (Codec.ZSTD, (-131072, -5, 1, 3, 19, 22))],
)
def test_every_level_of_kafka(codec: Codec, levels: tuple[int, ...]) -> None:
    data = TEXT[:20_000]
    for level in levels:
        assert decompress(codec, compress(codec, data, level)) == data


@pytest.mark.parametrize("codec", REAL)
def test_every_truncation_is_found(codec: Codec) -> None:
    for data in (b"", TEXT[:500], TEXT):
        packed = compress(codec, data)
        cuts = (
            range(len(packed)) if len(packed) < 500 else [1, 10, len(packed) // 2, *range(len(packed) - 9, len(packed))]
        )
        for cut in cuts:
            if codec == Codec.SNAPPY and (cut >= 16 and data == b""):
                continue
            try:
                found = decompress(codec, packed[:cut])
            except CompressionError:
                continue
            # xerial streams have no end mark: a cut between two blocks is a shorter stream
            assert codec == Codec.SNAPPY
            assert data.startswith(found)


@pytest.mark.parametrize("codec", REAL)
def test_limits(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(TooLarge):
        decompress(codec, packed, len(TEXT) - 1)
    with pytest.raises(TooLarge):
        decompress(codec, packed, 0)


@pytest.mark.parametrize("codec", REAL)
def test_a_bomb_comes_in_chunks_until_the_limit(codec: Codec) -> None:
    packed = compress(codec, bytes(20 << 20))
    sizes: list[int] = []
    with pytest.raises(TooLarge):
        sizes.extend(map(len, stream(codec, packed, 8 << 20)))
    assert max(sizes) <= CHUNK_SIZE
    assert (7 << 20) <= sum(sizes) <= (8 << 20)


def test_frames_of_others() -> None:
    data = TEXT[:200_000]
    for options in (
        {"store_size": True},
        {"content_checksum": True, "block_checksum": True},
        {"block_size": 7},
        {"block_size": 5, "compression_level": 9},
    ):
        assert decompress(Codec.LZ4, lz4.frame.compress(data, **{"block_linked": False, **options})) == data
    with pytest.raises(CompressionError, match="linked"):
        decompress(Codec.LZ4, lz4.frame.compress(data, block_linked=True))
    assert decompress(Codec.SNAPPY, snappy.compress(data)) == data
    assert decompress(Codec.GZIP, gzip.compress(data[:5]) + gzip.compress(data[5:])) == data
    for sized in (True, False):
        for checksum in (True, False):
            packer = zstandard.ZstdCompressor(write_content_size=sized, write_checksum=checksum)
            assert decompress(Codec.ZSTD, packer.compress(data)) == data
            assert decompress(Codec.ZSTD, packer.compress(data) + packer.compress(b"more")) == data + b"more"
    skippable = b"\x53\x2a\x4d\x18\x03\x00\x00\x00abc"
    assert decompress(Codec.ZSTD, skippable + compress(Codec.ZSTD, data)) == data


def test_declared_sizes_are_not_believed() -> None:
    for declared in (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x40", b"\xff\xff\x7f"):
        with pytest.raises(CompressionError):
            decompress(Codec.SNAPPY, declared + b"abc")
    huge = (
        b"\x28\xb5\x2f\xfd" + bytes((0b11100000,)) + struct.pack("<Q", 1 << 50) + b"\x01\0\0"
    )  # one segment, size 2^50
    with pytest.raises(CompressionError):
        decompress(Codec.ZSTD, huge)
    window = b"\x28\xb5\x2f\xfd" + bytes((0, 28 - 10 << 3)) + b"\x01\0\0"  # a window of 2^28
    with pytest.raises(CompressionError, match="window"):
        decompress(Codec.ZSTD, window)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(REAL), st.binary(max_size=60), st.booleans(), st.data())
def test_garbage_gives_typed_errors(codec: Codec, data: bytes, real: bool, source: st.DataObject) -> None:
    packed = bytearray(compress(codec, data * 5) if real else data)
    if real:
        for _ in range(source.draw(st.integers(1, 3))):
            packed[source.draw(st.integers(0, len(packed) - 1))] = source.draw(st.integers(0, 255))
    try:
        assert len(decompress(codec, packed, 1 << 20)) <= 1 << 20
    except (CompressionError, TooLarge):
        pass


def test_unknown_codecs() -> None:
    for codec in (5, 7):
        with pytest.raises(CompressionError):
            compress(codec, b"")
        with pytest.raises(CompressionError):
            decompress(codec, b"")
