"""What Apache Kafka takes from Java and clients can see: string hashes, and the order in which a HashMap is walked.

Invariant: the same text gives the same number on every broker, whatever language it is written in.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

_BUCKETS = 16
_LOAD_FACTOR = 0.75


@lru_cache(maxsize=65_536)
def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, wrapping at 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_for(key: str, partitions: int) -> int:
    """Where an internal topic keeps `key`. The smallest integer has no opposite and counts as 0 (Kafka's Utils.abs)."""
    value = java_hash(key)
    return (0 if value == -0x8000_0000 else abs(value)) % partitions


def topic_partition_hash(topic: str, partition: int) -> int:
    """TopicPartition.hashCode."""
    return 31 * (31 + partition) + java_hash(topic) & 0xFFFFFFFF


def hash_map_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """The order of a java.util.HashMap to which these were added one by one (its buckets never become trees here)."""
    distinct = list(dict.fromkeys(keys))
    buckets = _BUCKETS
    while len(distinct) > buckets * _LOAD_FACTOR:
        buckets *= 2

    def bucket(key: K) -> int:
        value = hash_of(key) & 0xFFFFFFFF
        return (value ^ value >> 16) & (buckets - 1)

    return sorted(distinct, key=bucket)
