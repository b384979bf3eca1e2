"""Java's hashes of texts and ids, and Java's orders of texts, ids and HashMaps, where clients of Apache Kafka see them.

Invariant: a text gives the same number on each broker, whether that is Apache Kafka in Java or pykbroker.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

_BUCKETS = 16
_LOAD_FACTOR = 0.75


#: A longer text is hashed each time, because clients choose names of groups, and 65,536 of the longest names would take
#: 2 GiB.
_KEPT_CHARACTERS = 256


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, wrapping at 32 bits."""
    return _kept_hash(text) if len(text) <= _KEPT_CHARACTERS else _hash(text)


@lru_cache(maxsize=65_536)
def _kept_hash(text: str) -> int:
    return _hash(text)


def _hash(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_for(key: str, partitions: int) -> int:
    """Return the partition of an internal topic that keeps `key`. The smallest integer has no positive counterpart and
    counts as 0 (Kafka's Utils.abs)."""
    value = java_hash(key)
    return (0 if value == -0x8000_0000 else abs(value)) % partitions


def topic_partition_hash(topic: str, partition: int) -> int:
    """TopicPartition.hashCode."""
    return 31 * (31 + partition) + java_hash(topic) & 0xFFFFFFFF


def java_order(text: str) -> bytes:
    """A key that sorts as String.compareTo does: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def uuid_hash(uuid: bytes) -> int:
    """Uuid.hashCode of Kafka's own class. java.util.UUID has the same."""
    bits = int.from_bytes(uuid)
    half = bits >> 64 ^ bits
    return (half >> 32 ^ half) & 0xFFFFFFFF


def uuid_order(uuid: bytes) -> tuple[int, int]:
    """A key that sorts as Uuid.compareTo does: its halves are signed numbers."""
    return int.from_bytes(uuid[:8], signed=True), int.from_bytes(uuid[8:], signed=True)


def collection_buckets(size: int) -> int:
    """Return the initial number of buckets of `new HashSet<>(collection)`. If the elements would fill the buckets
    exactly up to the load factor, the number is doubled: 12 elements get 32 buckets."""
    return max(_BUCKETS, 1 << int(size / _LOAD_FACTOR).bit_length())


def hash_map_order(keys: Iterable[K], hash_of: Callable[[K], int], *, buckets: int = _BUCKETS) -> list[K]:
    """Return the order of a java.util.HashMap to which these keys were added one by one. Its buckets never become trees
    here."""
    distinct = list(dict.fromkeys(keys))
    if len(distinct) <= 1:
        return distinct
    while len(distinct) > buckets * _LOAD_FACTOR:
        buckets *= 2

    def bucket(key: K) -> int:
        value = hash_of(key) & 0xFFFFFFFF
        return (value ^ value >> 16) & (buckets - 1)

    return sorted(distinct, key=bucket)
