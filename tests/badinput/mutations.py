"""Damaged requests: every API and version that is advertised, and every kind of record body.

A seed determines the whole list. Frames come with their size; some sizes are wrong.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import crc32c

from pykbroker.api import TABLE
from pykbroker.dispatch.rows import On
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.primitives import EncodeError, TopLevel
from testkit.messages.catalogue import Maker, Style, entry
from testkit.nodes.wire import frame_of
from tests.log.produce_cases import CODECS, batch, record

TOPIC = "hostile"
BOMBS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff",
    b"\xff\xfe",
)
_CRC_AT, _CRC_FROM = 17, 21


@dataclass(slots=True)
class Hostile:
    """One request as it is sent. `what` describes it for a person."""

    what: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Known:
    """Existing names of the node, so that requests with them find something."""

    topic: str = TOPIC
    topic_id: bytes = bytes(16)
    cluster_id: str = ""


def served(on: On = On.BROKER) -> list[tuple[ApiKey, int]]:
    """Return the APIs and versions that a listener of this kind serves."""
    return [
        (row.key, version)
        for row in TABLE
        if row.on & on
        for version in range(APIS[row.key].min_version, APIS[row.key].max_version + 1)
    ]


def requests(seed: int, each: int, record_bodies: int, known: Known = Known(), on: On = On.BROKER) -> Iterator[Hostile]:
    """Yield `each` for every API and version, and `record_bodies` more with records, in an order by the seed."""
    rng = random.Random(seed)
    made = [_request(rng, key, version, known) for key, version in served(on) for _ in range(each)]
    made += [_records(rng) for _ in range(record_bodies)]
    rng.shuffle(made)
    yield from made


def _request(rng: random.Random, key: ApiKey, version: int, known: Known) -> Hostile:
    name = APIS[key].name
    style: Style = rng.choice(("full", "random", "random", "empty"))
    message = Maker(rng, style).message(entry(f"{name}Request"), version)
    if rng.random() < 0.6:
        _Plausible(rng, message, version, known).make(message)
    frame = _encoded(message, version)
    kind = rng.choice(MUTATIONS)
    return Hostile(f"{name} v{version} {style} {kind.__name__}", kind(rng, frame))


# Values that exist on the node, so that a request gets beyond its first check.
_TEXTS = {
    "group_id": ("hostile-group", "hostile-group-2", ""),
    "key": ("hostile-group",),
    "member_id": ("", "ghost"),
    "transactional_id": ("hostile-transaction", "hostile-transaction", ""),
    "server_assignor": ("uniform", "range", "x"),
    "subscribed_topic_regex": (f"{TOPIC}.*", "(", ""),
    "protocol_type": ("consumer",),
    "resource_name": (TOPIC, "1", "", "hostile-group"),
    "value": ("1", "-1", "compact", "x", "9223372036854775808", ""),
}
_NUMBERS = {
    "resource_type": (2, 2, 4, 8, 16, 32),
    "config_operation": (0, 1, 2, 3),
    "isolation_level": (0, 1),
    "key_type": (0, 1),
    "transaction_timeout_ms": (1000, 60_000, -1),
    "replica_id": (-1, -1, -2, 1),
    "acks": (-1, 0, 1),
    "session_id": (0, 0, 1),
    "session_epoch": (-1, 0, 1),
    "num_partitions": (-1, 1, 2),
    "replication_factor": (-1, 1),
    "count": (1, 2, 3),
    "endpoint_type": (1, 2),
}
_CONFIGS = ("retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes", "compression.type", "no.such.key")


class _Plausible:
    """Puts values that exist on the node into a message, if its version has the field."""

    def __init__(self, rng: random.Random, message: TopLevel, version: int, known: Known) -> None:
        self._rng = rng
        self._message = message
        self._version = version
        self._known = known
        # The topic must stay.
        self._may_name_topic = message.API_KEY != ApiKey.DELETE_TOPICS

    def make(self, item: Any) -> None:
        for name in item.__slots__:
            value = getattr(item, name)
            for inner in value if isinstance(value, list) else [value]:
                if hasattr(inner, "__slots__"):
                    self.make(inner)
            better = self._better(type(item).__name__, name, value)
            if better is not None:
                setattr(item, name, better)
                try:
                    self._message.encode(self._version)
                except EncodeError:
                    setattr(item, name, value)

    def _better(self, owner: str, name: str, value: Any) -> Any:
        choice = self._rng.choice
        if isinstance(value, str):
            if name in ("name", "topic", "topic_name") and self._may_name_topic:
                return choice(_CONFIGS) if "Config" in owner else self._known.topic
            if name == "cluster_id":
                return choice((self._known.cluster_id, self._known.cluster_id, value))
            return choice(_TEXTS[name]) if name in _TEXTS else None
        if isinstance(value, bytes):
            return self._known.topic_id if name == "topic_id" and self._may_name_topic else None
        if isinstance(value, int) and not isinstance(value, bool):
            if name in _NUMBERS:
                return choice(_NUMBERS[name])
            if name.endswith(("index", "partition")):
                return choice((0, 0, 0, 1, -1))
            if "epoch" in name or "offset" in name or "generation" in name:
                return choice((-1, 0, 0, 1, 5, value))
        return None


def _encoded(message: TopLevel, version: int) -> bytes:
    return frame_of(message, version, correlation_id=7, client_id="hostile")


def _records(rng: random.Random) -> Hostile:
    """Return a valid Produce request with an invalid batch, which often has a correct CRC."""
    body = b"".join(
        record(index, rng.choice((None, b"k")), rng.randbytes(rng.randrange(40)), rng.randrange(-3, 3))
        for index in range(3)
    )
    codec = rng.randrange(5)
    packed = CODECS[codec][1](body) if codec else body
    fields = {"pid": rng.choice((-1, 7)), "epoch": rng.choice((-1, 0)), "sequence": rng.choice((-1, 0, 5))}
    data = bytearray(batch([], count=3, attributes=codec, raw=packed, **fields))
    for _ in range(rng.choice((0, 1, 2, 8))):
        data[rng.randrange(8, len(data))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.2:
        del data[rng.randrange(len(data)) :]
    if rng.random() < 0.1:
        at = rng.randrange(len(data) + 1)
        data[at:at] = rng.choice(BOMBS)
    if rng.random() < 0.8 and len(data) > _CRC_FROM:
        struct.pack_into(">I", data, _CRC_AT, crc32c.crc32c(bytes(data[_CRC_FROM:])))
        if rng.random() < 0.8:
            struct.pack_into(">i", data, 8, len(data) - 12)
    version = rng.randrange(3, 13)
    asked = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=bytes(data))])
    request = ProduceRequest(acks=rng.choice((-1, 1)), timeout_ms=1000, topic_data=[asked])
    return Hostile(f"records of codec {codec} in Produce v{version}", _encoded(request, version))


# -- damage to a frame


def _resized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def untouched(rng: random.Random, frame: bytes) -> bytes:
    return frame


def flipped_bits(rng: random.Random, frame: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 8, 32))):
        # Mostly after key and version, so that the body is reached.
        data[rng.randrange(8 if rng.random() < 0.9 and len(data) > 8 else 4, len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def truncated(rng: random.Random, frame: bytes) -> bytes:
    return _resized(frame[4 : rng.randrange(5, len(frame) + 1)])


def torn(rng: random.Random, frame: bytes) -> bytes:
    """Cut the frame off, so that its size is too large."""
    return frame[: rng.randrange(5, len(frame) + 1)]


def length_bomb(rng: random.Random, frame: bytes) -> bytes:
    data, bomb = bytearray(frame), rng.choice(BOMBS)
    at = rng.randrange(min(12, len(data)), len(data) + 1)
    data[at : at + len(bomb)] = bomb
    return _resized(bytes(data[4:]))


def random_body(rng: random.Random, frame: bytes) -> bytes:
    """Keep the header, and put random bytes after it."""
    return _resized(frame[4:21] + rng.randbytes(rng.choice((0, 1, 8, 64, 1000))))


def inserted_bytes(rng: random.Random, frame: bytes) -> bytes:
    at = rng.randrange(4, len(frame) + 1)
    return _resized(frame[4:at] + rng.randbytes(rng.randrange(1, 9)) + frame[at:])


def twisted_header(rng: random.Random, frame: bytes) -> bytes:
    data = bytearray(frame)
    struct.pack_into(">h", data, rng.choice((4, 6)), rng.choice((-1, 0, 3, 99, 32767, rng.randrange(100))))
    return bytes(data)


def wrong_size(rng: random.Random, frame: bytes) -> bytes:
    return struct.pack(">i", rng.choice((0, -1, 1, 2**31 - 1, 104_857_600, len(frame)))) + frame[4:]


MUTATIONS = (
    untouched,
    flipped_bits,
    flipped_bits,
    flipped_bits,
    truncated,
    torn,
    length_bomb,
    length_bomb,
    random_body,
    inserted_bytes,
    twisted_header,
    wrong_size,
)
