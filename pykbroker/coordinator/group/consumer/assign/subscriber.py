"""The input of an assignor and its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

#: The partitions of each topic, by member id. Topics of which a member gets nothing are left out.
Assignment = dict[str, dict[bytes, set[int]]]


class Subscriber(NamedTuple):
    instance_id: str | None
    rack: str | None
    topic_ids: frozenset[bytes]
    assigned: Mapping[bytes, frozenset[int]]  # the member's target so far; disjoint from that of each other member


class Topics(Protocol):
    def partition_count(self, topic_id: bytes) -> int:
        """Return 0 or less if there is no such topic. Then no member gets partitions of it."""
        ...

    def racks(self, topic_id: bytes, partition: int) -> frozenset[str]: ...


def partition_counts(members: Mapping[str, Subscriber], topics: Topics) -> dict[bytes, int]:
    """Return the counts of the topics that exist and that a member subscribes to. Most members share a subscription, so
    each different subscription is read once."""
    counts = {}
    for subscription in {member.topic_ids for member in members.values()}:
        for topic_id in subscription:
            if topic_id not in counts:
                counts[topic_id] = topics.partition_count(topic_id)
    return {topic_id: count for topic_id, count in counts.items() if count > 0}


def still_there(partitions: frozenset[int], count: int) -> frozenset[int]:
    """Return the partitions that exist. A target may name partitions that this broker does not know yet, because
    another coordinator computed it."""
    if partitions and max(partitions) >= count:
        return frozenset(partition for partition in partitions if partition < count)
    return partitions
