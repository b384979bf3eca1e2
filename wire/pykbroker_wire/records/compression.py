"""Kafka's four codecs, from bytes to bytes: compress at once, decompress at once or in bounded chunks.

Responsible for the frames that Kafka clients really write: gzip members, snappy raw and in xerial framing, lz4 frames
with independent blocks, zstd frames. No memory is allocated for a size that the input only claims. Not responsible for
what the bytes mean: records are in `record.py` and `walk.py`.

Invariants:
* No chunk is longer than `CHUNK_SIZE`. (For snappy it is no longer than one block; a block's declared size is accepted
  only if its input could really expand to it.)
* Decompression raises `TooLarge` as soon as it has produced more than `limit` bytes.
* Any other input than a whole, well-formed stream raises `CompressionError` and nothing else.

The library for each codec was chosen by measuring (1 KB, 100 KB and 1 MB). The packages zstandard and lz4 are 3 to 5
times faster than cramjam on small inputs, python-snappy calls cramjam's raw snappy, and no library is faster than zlib
(docs/decisions/0016-by-hand-or-library.md).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import lz4.frame
import snappy
import zstandard

if TYPE_CHECKING:
    from pykbroker_wire.primitives import Buffer

CHUNK_SIZE = 1 << 20
"""The largest amount of memory that one step of `stream` fills."""
DEFAULT_LIMIT = 128 * 1024 * 1024
"""The default limit for the decompressed size of one batch."""
ZSTD_MAX_WINDOW = 1 << 27
"""The default of zstd, which level 22 writes. Larger windows are refused, as by Kafka's reader."""


class Codec(IntEnum):
    """The low three bits of a batch's attributes; 5 to 7 are not assigned."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_BY_NAME = {
    "none": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""The values of `compression.type` of a producer ("none") and of a topic ("uncompressed")."""


class CompressionError(ValueError):
    """The bytes are not a whole stream of this codec."""


class TooLarge(ValueError):
    """The stream decompresses to more than the limit. Its full size is not known."""


# --- compress ---------------------------------------------------------------------------------------------------------


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Return `data` as one stream. `level` is Kafka's `compression.<codec>.level`, or None for its default."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, level)
    if codec == Codec.ZSTD:
        return _compress_zstd(data, level)
    raise CompressionError(f"Unknown compression type id: {codec}")


_LZ4_DEFAULT_LEVEL = 9  # in Kafka 9 means "the fast compressor", any other level the high compressor


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # Kafka's reader refuses linked blocks; its writer uses 64 KiB blocks.
    lz4_level = 0 if level is None or level == _LZ4_DEFAULT_LEVEL else min(max(level, 3), 12)
    packed: bytes = lz4.frame.compress(
        data,
        compression_level=lz4_level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return packed


_zstd_packers: dict[int, list[Any]] = {}  # free compressors by level: a context costs more than a small batch


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    level = 3 if level is None else level
    free = _zstd_packers.setdefault(level, [])
    try:
        packer = free.pop()  # list.pop and append are atomic, and a context in use is in no list: safe from any thread
    except IndexError:
        packer = zstandard.ZstdCompressor(level=level)
    try:
        packed: bytes = packer.compress(data)
        return packed
    finally:
        if len(free) < 4:
            free.append(packer)


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version, oldest version that can read it
_XERIAL_BLOCK = 32 * 1024


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block: bytes = snappy.compress(view[start : start + _XERIAL_BLOCK])
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


# --- decompress -------------------------------------------------------------------------------------------------------


def decompress(codec: int, data: Buffer, limit: int = DEFAULT_LIMIT) -> bytes:
    """Return the whole content. Raises TooLarge, CompressionError."""
    chunks = list(stream(codec, data, limit))
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def stream(codec: int, data: Buffer, limit: int = DEFAULT_LIMIT) -> Iterator[bytes]:
    """Yield the content in chunks of at most CHUNK_SIZE. The stream was whole if the iteration ends without an error.
    Raises TooLarge, CompressionError."""
    view = memoryview(data)
    if codec == Codec.LZ4:
        return _stream_lz4(view, limit)
    if codec == Codec.ZSTD:
        return _stream_zstd(view, limit)
    if codec == Codec.SNAPPY:
        return _stream_snappy(view, limit)
    if codec == Codec.GZIP:
        return _stream_gzip(view, limit)
    if codec == Codec.NONE:
        return _stream_none(view, limit)
    raise CompressionError(f"Unknown compression type id: {codec}")


def _stream_none(view: memoryview, limit: int) -> Iterator[bytes]:
    if len(view) > limit:
        raise TooLarge(f"{len(view)} bytes are more than {limit}")
    for start in range(0, len(view), CHUNK_SIZE):
        yield bytes(view[start : start + CHUNK_SIZE])


def _stream_gzip(view: memoryview, limit: int) -> Iterator[bytes]:
    total = 0
    rest: Buffer = view
    while True:  # one turn per member: the format allows several in sequence
        unpacker = zlib.decompressobj(31)
        while not unpacker.eof:
            try:
                chunk = unpacker.decompress(rest, CHUNK_SIZE)
            except zlib.error as error:
                raise CompressionError(f"gzip: {error}") from None
            rest = unpacker.unconsumed_tail
            if chunk:
                total += len(chunk)
                if total > limit:
                    raise TooLarge(f"gzip: more than {limit} bytes")
                yield chunk
            elif not unpacker.eof and not rest:
                raise CompressionError("gzip: the stream ends early")
        rest = unpacker.unused_data
        if not rest.startswith(b"\x1f\x8b"):  # like Java's reader: bytes after a member that are no member are not read
            return


def _stream_snappy(view: memoryview, limit: int) -> Iterator[bytes]:
    if view[:8] != _XERIAL_MAGIC:
        yield _snappy_block(view, limit)
        return
    total = 0
    position = 0
    end = len(view)
    while position < end:
        if view[position : position + 4] == _XERIAL_MAGIC[:4]:  # the first header, or a stream that follows another
            if view[position : position + 8] != _XERIAL_MAGIC or end - position < 16:
                raise CompressionError("snappy: broken xerial header")
            position += 16
            continue
        if end - position < 4:
            raise CompressionError("snappy: the stream ends in a block's length")
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if size > end - position:
            raise CompressionError(f"snappy: a block of {size} bytes, {end - position} are left")
        block = _snappy_block(view[position : position + size], limit - total)
        position += size
        total += len(block)
        if block:
            yield block


def _snappy_block(view: memoryview, limit: int) -> bytes:
    declared = _declared_by_snappy(view)
    # The densest element of the format is 3 bytes for 64. A block that claims more is invalid, and nothing is
    # allocated.
    if declared > 22 * len(view):
        raise CompressionError(f"snappy: {len(view)} bytes cannot hold {declared}")
    if declared > limit:
        raise TooLarge(f"snappy: more than {limit} bytes")
    try:
        content: bytes = snappy.uncompress(view)
    except snappy.UncompressError as error:
        raise CompressionError(f"snappy: {error.__cause__}") from None
    return content


def _declared_by_snappy(view: memoryview) -> int:
    """Return the size at the beginning of a raw block. The library would allocate that many bytes."""
    size = shift = 0
    for byte in view[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
        shift += 7
    raise CompressionError("snappy: no size at the beginning")


_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_lz4_contexts: list[Any] = []


def _stream_lz4(view: memoryview, limit: int) -> Iterator[bytes]:
    _check_lz4_descriptor(view)
    try:
        context = _lz4_contexts.pop()
    except IndexError:
        context = lz4.frame.create_decompression_context()
    # Only a context that has reached the end of its frame is reused; the garbage collector takes any other.
    total = 0
    position = 0
    while True:
        # The first guess for small inputs is below the allocator's mmap threshold: allocating 1 MiB takes 20 us.
        wanted = min(CHUNK_SIZE, max(16384, 4 * len(view)))
        try:
            chunk, consumed, ended = lz4.frame.decompress_chunk(context, view[position:], max_length=wanted)
        except RuntimeError as error:
            raise CompressionError(f"lz4: {error}") from None
        position += consumed
        total += len(chunk)
        if total > limit:
            raise TooLarge(f"lz4: more than {limit} bytes")
        if ended and len(_lz4_contexts) < 4:
            _lz4_contexts.append(context)
        if chunk:
            yield chunk
        if ended:  # like Kafka's reader: one frame; bytes after the end mark are not read
            return
        if not chunk and (not consumed or position >= len(view)):
            raise CompressionError("lz4: the stream ends early")


def _check_lz4_descriptor(view: memoryview) -> None:
    """Refuse frames that Kafka's readers refuse although the lz4 library could read them."""
    if len(view) < 7 or view[:4] != _LZ4_MAGIC:
        raise CompressionError("lz4: no frame header")
    flags, block_descriptor = view[4], view[5]
    if flags >> 6 != 1:
        raise CompressionError(f"lz4: frame version {flags >> 6}")
    if not flags & 0x20:
        raise CompressionError("lz4: linked blocks")
    if flags & 0x03:
        raise CompressionError("lz4: dictionary or reserved flag")
    if block_descriptor & 0x8F or block_descriptor >> 4 < 4:
        raise CompressionError("lz4: wrong block size")


_zstd_unpackers: list[Any] = []
_ZSTD_BLOCK = 128 * 1024


def _stream_zstd(view: memoryview, limit: int) -> Iterator[bytes]:
    frames = _check_zstd_frames(view)
    try:
        unpacker = _zstd_unpackers.pop()
    except IndexError:
        unpacker = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW)
    if frames == 1:
        # -1 if the frame has no size. A size is used only if it is at most a chunk.
        content_size = zstandard.frame_content_size(view)
        if 0 <= content_size <= CHUNK_SIZE:
            try:
                chunk = unpacker.decompress(view) if content_size else b""
            except zstandard.ZstdError as error:
                raise CompressionError(f"zstd: {error}") from None
            if len(_zstd_unpackers) < 4:
                _zstd_unpackers.append(unpacker)
            if len(chunk) > limit:
                raise TooLarge(f"zstd: more than {limit} bytes")
            if chunk:
                yield chunk
            return
    total = 0
    wanted = min(CHUNK_SIZE, max(16384, 4 * len(view)))
    with unpacker.stream_reader(view, read_across_frames=True) as reader:
        while True:
            try:
                chunk = reader.read(wanted)
            except (zstandard.ZstdError, MemoryError) as error:  # a huge window may be impossible to allocate
                raise CompressionError(f"zstd: {error}") from None
            if not chunk:
                break
            total += len(chunk)
            if total > limit:
                raise TooLarge(f"zstd: more than {limit} bytes")
            yield chunk
    # A context keeps the window of the largest frame that it has read: do not keep a large one.
    if len(_zstd_unpackers) < 4 and total <= 8 * CHUNK_SIZE:
        _zstd_unpackers.append(unpacker)


def _check_zstd_frames(view: memoryview) -> int:
    """Count the frames by walking over their block headers (RFC 8878, section 3.1).

    The library's streaming reader takes a truncated stream for a complete one, and other readers would then wait on the
    batch without end. Walking over the block headers costs 0.2 us a block and finds it.
    """
    frames = 0
    position = 0
    end = len(view)
    while position < end:
        magic = int.from_bytes(view[position : position + 4], "little")
        if magic & 0xFFFFFFF0 == 0x184D2A50:  # a skippable frame
            position += 8 + int.from_bytes(view[position + 4 : position + 8], "little")
            frames += 2  # never the simple case
            continue
        if magic != 0xFD2FB528:
            raise CompressionError("zstd: no frame header")
        try:
            parameters = zstandard.get_frame_parameters(view[position:])
            if parameters.window_size > ZSTD_MAX_WINDOW:
                raise CompressionError(f"zstd: a window of {parameters.window_size} bytes")
            position += zstandard.frame_header_size(view[position:])
        except zstandard.ZstdError as error:
            raise CompressionError(f"zstd: {error}") from None
        last = 0
        while not last:
            header = int.from_bytes(view[position : position + 3], "little")
            position += 3
            if position > end:
                raise CompressionError("zstd: the stream ends early")
            last = header & 1
            kind = header >> 1 & 3
            position += 1 if kind == 1 else header >> 3  # kind 1: one byte, repeated
        if parameters.has_checksum:
            position += 4
        frames += 1
    if position != end or not frames:
        raise CompressionError("zstd: the stream ends early")
    return frames
