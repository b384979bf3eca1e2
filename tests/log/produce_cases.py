"""Produced batches, good and bad, by name: the mistakes of clients, and cases near them.

The bytes are built here by hand, not by our builder, so that anything can be wrong in them. The same cases go to Apache
Kafka's own validator (tests/golden/records/README.md) and to pykbroker's.

    python -m tests.log.produce_cases          prints them for the oracle
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import crc32c
import lz4.frame
import snappy
import zstandard

NOW = 1_700_000_000_000
FOREVER = (1 << 63) - 1


def zigzag(value: int) -> bytes:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def field(content: bytes | None) -> bytes:
    return zigzag(-1) if content is None else zigzag(len(content)) + content


def record(
    delta: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"v",
    ts: int = 0,
    header_count: int = 0,
    extra: bytes = b"",
    size: int | None = None,
    attributes: int = 0,
) -> bytes:
    body = bytes((attributes,)) + zigzag(ts) + zigzag(delta) + field(key) + field(value) + zigzag(header_count) + extra
    return zigzag(len(body) if size is None else size) + body


def batch(
    records: list[bytes],
    *,
    count: int | None = None,
    attributes: int = 0,
    magic: int = 2,
    base: int = 0,
    last: int | None = None,
    crc: int | None = None,
    pid: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    ts: int = NOW,
    max_ts: int | None = None,
    length: int | None = None,
    raw: bytes | None = None,
    leader_epoch: int = -1,
) -> bytes:
    count = len(records) if count is None else count
    last = count - 1 if last is None else last
    body = struct.pack(
        ">hiqqqhii", attributes, last, ts, ts if max_ts is None else max_ts, pid, epoch, sequence, count
    ) + (b"".join(records) if raw is None else raw)
    checksum: int = crc32c.crc32c(body) if crc is None else crc
    rest = struct.pack(">ibI", leader_epoch, magic, checksum) + body
    return struct.pack(">qi", base, len(rest) if length is None else length) + rest


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    data: bytes
    timestamp_type: str = "CreateTime"
    before: int = FOREVER
    after: int = 3_600_000
    compression: str = "producer"
    compacted: bool = False
    max_bytes: int = 1_048_588
    offset: int = 42
    epoch: int = 7

    def line(self) -> str:
        return (
            f"{self.name} {self.timestamp_type} {self.before} {self.after} {self.compression} "
            f"{str(self.compacted).lower()} {self.max_bytes} {self.offset} {self.epoch} {NOW} {self.data.hex()}"
        )


XERIAL = bytes.fromhex("82534e4150505900") + struct.pack(">ii", 1, 1)


def xerial(data: bytes, block: int = 32768) -> bytes:
    out = XERIAL
    for start in range(0, len(data), block):
        packed = snappy.compress(data[start : start + block])
        out += struct.pack(">i", len(packed)) + packed
    return out


def lz4_frame(data: bytes, **options: object) -> bytes:
    chosen: dict[str, object] = {"block_size": 4, "block_linked": False, "store_size": False, **options}
    packed: bytes = lz4.frame.compress(data, **chosen)
    return packed


def zstd_frame(data: bytes, *, sized: bool = False, checksum: bool = False) -> bytes:
    packer = zstandard.ZstdCompressor(write_content_size=sized, write_checksum=checksum)
    packed: bytes = packer.compress(data)
    return packed


CODECS: dict[int, tuple[str, Callable[[bytes], bytes]]] = {
    1: ("gzip", lambda data: gzip.compress(data, 6, mtime=0)),
    2: ("snappy", xerial),
    3: ("lz4", lz4_frame),
    4: ("zstd", zstd_frame),
}


def bomb(codec: int, size: int = 200 << 20) -> bytes:
    """One record of `size` zero bytes."""
    head = b"\0" + zigzag(0) + zigzag(0) + zigzag(-1) + zigzag(size)
    content = zigzag(len(head) + size + 1) + head + bytes(size) + zigzag(0)
    return batch([], count=1, attributes=codec, raw=CODECS[codec][1](content))


def cases() -> list[Case]:
    ok = [record()]
    three = [record(i, b"k%d" % i, b"value %d" % i, i * 10) for i in range(3)]
    good = batch(ok)
    found = [
        Case("valid", good),
        Case("three", batch(three, max_ts=NOW + 20)),
        Case("bad-crc", batch(ok, crc=1)),
        Case("magic-3", batch(ok, magic=3)),
        Case("magic-1", batch(ok, magic=1)),
        Case("magic-0", batch(ok, magic=0)),
        Case("magic-minus-1", batch(ok, magic=-1)),
        Case("empty", b""),
        Case("five-bytes", b"12345"),
        Case("twelve-zero-bytes", bytes(12)),
        Case("twelve-bytes-length-100", bytes(11) + b"\x64"),
        Case("sixteen-bytes-length-100", bytes(11) + b"\x64" + bytes(4)),
        Case("seventeen-bytes-length-100", bytes(11) + b"\x64" + bytes(4) + b"\x02"),
        Case("seventeen-bytes-magic-9", bytes(11) + b"\x64" + bytes(4) + b"\x09"),
        Case("thirty-bytes-length-18", bytes(11) + b"\x12" + bytes(4) + b"\x02" + bytes(13)),
        Case("thirty-bytes-length-18-magic-1", bytes(11) + b"\x12" + bytes(4) + b"\x01" + bytes(13)),
        Case("two-batches", good + good),
        Case("length-minus-1", batch(ok, length=-1)),
        Case("length-13", batch(ok, length=13)),
        Case("length-14", batch(ok, length=14)),
        Case("length-48", batch(ok, length=48)),
        Case("length-49", batch(ok, length=49)),
        Case("length-one-less", batch(ok, length=len(good) - 13)),
        Case("torn", batch(ok, length=1000)),
        Case("torn-magic-1", batch(ok, length=1000, magic=1)),
        *(Case(f"cut-at-{n}", good[:n]) for n in (11, 12, 16, 17, 40, 60, 61, len(good) - 1)),
        *(Case(f"trailing-zeros-{n}", good + bytes(n)) for n in (1, 5, 11, 12, 16, 17, 30, 61, 100)),
        *(Case(f"trailing-torn-{n}", good + good[:n]) for n in (11, 12, 16, 17, 30, 60, len(good) - 1)),
        Case("trailing-bad-magic", good + good[:16] + b"\x09" + good[17:20]),
        Case("count-0", batch([], count=0, last=-1)),
        Case("count-0-last-0", batch([], count=0, last=0)),
        Case("count-minus-1", batch(ok, count=-1, last=0)),
        Case("count-max", batch(ok, count=2**31 - 1)),
        Case("count-max-last-0", batch(ok, count=2**31 - 1, last=0)),
        Case("count-2-of-1", batch(ok, count=2)),
        Case("count-1-of-2", batch([record(), record(1)], count=1)),
        Case("last-delta-5", batch(ok, last=5)),
        Case("last-delta-minus-5", batch(ok, last=-5)),
        Case("base-offset-5", batch(ok, base=5)),
        Case("offset-delta-7", batch([record(7)])),
        Case("offset-deltas-swapped", batch([record(1), record(0)])),
        Case("record-size-too-large", batch([record(size=5000)])),
        Case("record-size-too-small", batch([record(size=6)])),
        Case("record-size-0", batch([zigzag(0)])),
        Case("record-size-minus-1", batch([zigzag(-1)])),
        Case("record-size-min", batch([zigzag(-(2**31))])),
        Case("key-length-max", batch([zigzag(12) + b"\0" + zigzag(0) + zigzag(0) + zigzag(2**31 - 1) + b"abcde"])),
        Case(
            "key-length-minus-5", batch([zigzag(6) + b"\0" + zigzag(0) + zigzag(0) + zigzag(-5) + zigzag(-9) + b"\0"])
        ),
        Case("value-length-max", batch([zigzag(9) + b"\0\0\0\x01" + zigzag(2**31 - 1)])),
        Case("headers", batch([record(header_count=2, extra=field(b"a") + field(b"1") + field(b"b") + field(None))])),
        Case("header-empty-key", batch([record(header_count=1, extra=field(b"") + field(b""))])),
        Case("header-count-max", batch([record(header_count=2**31 - 1)])),
        Case("header-count-minus-1", batch([record(header_count=-1)])),
        Case("header-count-1-of-0", batch([record(header_count=1)])),
        Case("header-null-key", batch([record(header_count=1, extra=zigzag(-1) + zigzag(-1))])),
        Case("header-value-too-long", batch([record(header_count=1, extra=zigzag(0) + zigzag(99))])),
        Case("header-bytes-left", batch([record(header_count=1, extra=field(b"") + field(b"") + b"x")])),
        Case("record-attributes", batch([record(attributes=0xFF)])),
        Case("trailing-bytes", batch([], count=1, raw=record() + b"junk")),
        Case("empty-payload", batch([], count=1, raw=b"")),
        Case("varint-6-bytes", batch([], count=1, raw=b"\xff" * 6 + bytes(20))),
        Case("varint-cut", batch([], count=1, raw=b"\xff\xff")),
        Case("varlong-11-bytes", batch([], count=1, raw=zigzag(16) + b"\0" + b"\xff" * 11 + bytes(4))),
        Case("varint-not-shortest", batch([], count=1, raw=b"\x8e\x80\x00" + bytes((0, 0, 0, 1, 2, 118, 0)))),
        Case("varint-excess-bits", batch([], count=1, raw=b"\x8e\x80\x80\x80\x70" + bytes((0, 0, 0, 1, 2, 118, 0)))),
        Case("control", batch(ok, attributes=0x20)),
        Case("transactional", batch(ok, attributes=0x10, pid=1, epoch=0, sequence=0)),
        Case("transactional-no-pid", batch(ok, attributes=0x10)),
        Case("delete-horizon", batch(ok, attributes=0x40)),
        Case("unused-attribute", batch(ok, attributes=0x80)),
        Case("high-attributes", batch(ok, attributes=0x7F00)),
        Case("high-attributes-wrong-max", batch(ok, attributes=0x7F80, max_ts=5)),
        Case("pid-sequence-minus-1", batch(ok, pid=5, epoch=0, sequence=-1)),
        Case("pid-minus-5-sequence-minus-1", batch(ok, pid=-5, epoch=0, sequence=-1)),
        Case("pid-wraps", batch([record(0), record(1)], pid=5, epoch=0, sequence=2**31 - 1)),
        Case("timestamp-future", batch(ok, ts=NOW + 2 * 86_400_000)),
        Case("timestamp-after-exactly", batch(ok, ts=NOW + 3_600_000)),
        Case("timestamp-after-one-more", batch(ok, ts=NOW + 3_600_001)),
        Case("timestamp-before-exactly", batch(ok, ts=NOW - 1000), before=1000),
        Case("timestamp-before-one-more", batch(ok, ts=NOW - 1001), before=1000),
        Case("timestamp-none-with-before", batch(ok, ts=-1), before=1000),
        Case("timestamp-minus-5", batch(ok, ts=-5)),
        Case("timestamp-none-but-one", batch([record(), record(1, ts=NOW + 1)], ts=-1, max_ts=NOW)),
        Case("timestamp-overflow", batch([record(), record(1, ts=100)], ts=FOREVER), after=FOREVER),
        Case("timestamp-underflow", batch([record(ts=-100)], ts=-FOREVER - 1)),
        Case(
            "timestamps-some-wrong", batch([record(), record(1, ts=-5000), record(2), record(3, ts=9**8)]), before=1000
        ),
        Case("max-timestamp-wrong", batch(three, max_ts=NOW + 5)),
        Case("max-timestamp-too-high", batch(three, max_ts=NOW + 10**9)),
        Case("append-time-bit", batch(ok, attributes=8)),
        Case("append-time-bit-none", batch(ok, attributes=8, ts=-1)),
        Case("append-time-bit-max-differs", batch(three, attributes=8, max_ts=NOW - 5)),
        Case("append-time-topic", batch(three, max_ts=NOW + 20), timestamp_type="LogAppendTime"),
        Case("append-time-topic-bit", batch(three, attributes=8), timestamp_type="LogAppendTime"),
        Case("append-time-topic-ancient", batch(ok, ts=5), timestamp_type="LogAppendTime", before=10),
        Case("compacted-null-key", batch(ok), compacted=True),
        Case("compacted-some-null", batch([record(0, b"k"), record(1), record(2, b""), record(3)]), compacted=True),
        Case("compacted-null-key-and-time", batch([record(ts=9**8), record(1, b"k", ts=9**8)]), compacted=True),
        Case("compacted-ok", batch(three, max_ts=NOW + 20), compacted=True),
        Case("too-large", batch([record(value=bytes(2000))]), max_bytes=2000),
        Case("max-bytes-exactly", good, max_bytes=len(good)),
        Case("max-bytes-one-less", good, max_bytes=len(good) - 1),
        Case("max-bytes-before-crc", batch(ok, crc=1), max_bytes=60),
        Case("unknown-codec-5", batch(ok, attributes=5)),
        Case("unknown-codec-7", batch(ok, attributes=7)),
        Case("snappy-declares-4g", batch([], count=1, attributes=2, raw=b"\xff\xff\xff\xff\x0fabc")),
        Case("xerial-chunk-max", batch([], count=1, attributes=2, raw=XERIAL + struct.pack(">i", 2**31 - 1) + b"abc")),
        Case("xerial-chunk-minus-1", batch([], count=1, attributes=2, raw=XERIAL + struct.pack(">i", -1) + b"abc")),
        Case("zstd-huge-window", batch([], count=1, attributes=4, raw=bytes.fromhex("28b52ffd0458") + b"\xff" * 20)),
        # The library makes one small block independent in any case, so two blocks are needed.
        Case(
            "lz4-linked-blocks",
            batch([], count=1, attributes=3, raw=lz4_frame(record(value=bytes(70_000)), block_linked=True)),
        ),
        Case("lz4-two-blocks", batch([], count=1, attributes=3, raw=lz4_frame(record(value=bytes(70_000))))),
        Case("lz4-content-size", batch([], count=1, attributes=3, raw=lz4_frame(record(), store_size=True))),
        Case(
            "lz4-checksums",
            batch([], count=1, attributes=3, raw=lz4_frame(record(), block_checksum=True, content_checksum=True)),
        ),
        Case(
            "lz4-4mb-blocks",
            batch([], count=1, attributes=3, raw=lz4_frame(record(value=bytes(5 << 20)), block_size=7)),
        ),
        Case(
            "zstd-sized-checksum", batch([], count=1, attributes=4, raw=zstd_frame(record(), sized=True, checksum=True))
        ),
        Case("zstd-two-frames", batch([], count=2, attributes=4, raw=zstd_frame(record()) + zstd_frame(record(1)))),
        Case(
            "gzip-two-members",
            batch([], count=2, attributes=1, raw=gzip.compress(record(), mtime=0) + gzip.compress(record(1), mtime=0)),
        ),
        Case("gzip-then-garbage", batch([], count=1, attributes=1, raw=gzip.compress(record(), mtime=0) + b"garbage")),
        Case("lz4-then-garbage", batch([], count=1, attributes=3, raw=lz4_frame(record()) + b"garbage")),
        Case("snappy-raw", batch([], count=1, attributes=2, raw=snappy.compress(record()))),
        Case("xerial-two-streams", batch([], count=2, attributes=2, raw=xerial(record()) + xerial(record(1)))),
    ]
    for codec, (name, pack) in CODECS.items():

        def packed(content: bytes, count: int, *, codec: int = codec, flags: int = 0, **options: int) -> bytes:
            chosen: Any = options
            return batch([], count=count, attributes=codec | flags, raw=CODECS[codec][1](content), **chosen)

        plain = b"".join(three)
        found += [
            Case(f"{name}", packed(plain, 3, max_ts=NOW + 20)),
            Case(f"{name}-garbage", batch([], count=1, attributes=codec, raw=b"\xff" * 40)),
            Case(f"{name}-no-bytes", batch([], count=1, attributes=codec, raw=b"")),
            Case(f"{name}-of-nothing", packed(b"", 1)),
            Case(f"{name}-truncated", batch([], count=3, attributes=codec, raw=pack(plain)[:-3], max_ts=NOW + 20)),
            Case(f"{name}-max-timestamp-wrong", packed(plain, 3)),
            Case(f"{name}-not-dense", packed(record(5) + record(6), 2)),
            Case(f"{name}-not-dense-append-time", packed(record(5) + record(6), 2), timestamp_type="LogAppendTime"),
            Case(f"{name}-append-time", packed(plain, 3), timestamp_type="LogAppendTime"),
            Case(f"{name}-append-time-bit", packed(plain, 3, flags=8)),
            Case(f"{name}-count-2-of-1", packed(record(), 2)),
            Case(f"{name}-count-1-of-2", packed(record() + record(1), 1)),
            Case(f"{name}-record-size-0", packed(zigzag(0), 1)),
            Case(f"{name}-record-too-long", packed(record(size=5000), 1)),
            Case(f"{name}-key-length-max", packed(zigzag(12) + b"\0\0\0" + zigzag(2**31 - 1) + b"abcde", 1)),
            Case(f"{name}-header-count-max", packed(record(header_count=2**31 - 1), 1)),
            Case(f"{name}-header-count-minus-1", packed(record(header_count=-1), 1)),
            Case(f"{name}-header-null-key", packed(record(header_count=1, extra=b"\x01\x01"), 1)),
            Case(f"{name}-trailing-bytes", packed(record() + b"junk", 1)),
            Case(f"{name}-compacted-null-key", packed(record() + record(1, b"k"), 2), compacted=True),
            Case(f"{name}-timestamps-some-wrong", packed(record() + record(1, ts=-5000), 2), before=1000),
            Case(f"{name}-control", packed(record(), 1, flags=0x20)),
            Case(
                f"{name}-to-uncompressed",
                packed(plain, 3, max_ts=NOW + 20, pid=9, epoch=1, sequence=3),
                compression="uncompressed",
            ),
            Case(f"{name}-not-dense-to-uncompressed", packed(record(5) + record(6), 2), compression="uncompressed"),
            Case(
                f"{name}-to-uncompressed-append-time",
                packed(plain, 3),
                compression="uncompressed",
                timestamp_type="LogAppendTime",
            ),
            Case(
                f"none-to-{name}",
                batch(three, max_ts=NOW + 20, attributes=0x10, pid=9, epoch=1, sequence=3),
                compression=name,
            ),
            Case(f"none-to-{name}-not-dense", batch([record(4), record(9)]), compression=name),
            Case(
                f"to-uncompressed-too-large-{name}",
                packed(record(value=bytes(9000)), 1),
                compression="uncompressed",
                max_bytes=5000,
            ),
            Case(f"{name}-large", packed(b"".join(record(i, b"key", bytes(5000)) for i in range(30)), 30)),
        ]
    names = [case.name for case in found]
    assert len(names) == len(set(names))
    return found


if __name__ == "__main__":
    for case in cases():
        print(case.line())
