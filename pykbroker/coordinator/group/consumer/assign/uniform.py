"""`uniform`: each member gets the same number of partitions, give or take one, and keeps as many of its partitions as
it can.

If all members subscribe to the same topics, the result is exactly balanced (this module). If they do not, it is as
balanced as moves of single partitions of one topic at a time can make it (balance.py). Balance goes before stickiness.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.coordinator.group.consumer.assign.balance import balance
from pykbroker.coordinator.group.consumer.assign.subscriber import (
    Assignment,
    Subscriber,
    Topics,
    partition_counts,
    still_there,
)
from pykbroker.coordinator.java import collection_buckets, hash_map_order, java_hash, uuid_hash


def uniform(members: Mapping[str, Subscriber], topics: Topics, *, mixed: bool = False) -> Assignment:
    counts = partition_counts(members, topics)
    order = hash_map_order(members, java_hash)
    if not counts:
        return {member_id: {} for member_id in order}
    if mixed or len({member.topic_ids for member in members.values()}) > 1:
        return balance(members, order, counts)
    return _share_out(members, order, counts)


def _share_out(members: Mapping[str, Subscriber], order: list[str], counts: Mapping[bytes, int]) -> Assignment:
    free = _without_owner(members, counts)
    quota, extra = divmod(sum(counts.values()), len(order))
    target: Assignment = {}
    unfilled: list[tuple[str, int]] = []
    for place, member_id in enumerate(order):
        takes_extra = extra > 0
        room = quota + takes_extra
        own: dict[bytes, set[int]] = {}
        assigned = members[member_id].assigned
        for topic_id in hash_map_order(sorted(assigned), uuid_hash):
            if topic_id not in counts:
                continue
            partitions = still_there(assigned[topic_id], counts[topic_id])
            if len(partitions) > room:
                in_order = _set_order(partitions)
                free += [(topic_id, partition) for partition in in_order[room:]]
                partitions = frozenset(in_order[:room])
            if partitions:
                own[topic_id] = set(partitions)
                room -= len(partitions)
        # A member that needs one more partition for the larger share does not get it as long as enough members follow.
        # A later member may already have that many partitions.
        if room > 0 and takes_extra and len(order) - place > extra:
            takes_extra = False
            room -= 1
        if room > 0:
            unfilled.append((member_id, room))
        extra -= takes_extra
        target[member_id] = own

    given = 0
    for member_id, room in unfilled:
        own = target[member_id]
        for topic_id, partition in free[given : given + room]:
            own.setdefault(topic_id, set()).add(partition)
        given += room
    assert given >= len(free), "the quotas add up to all partitions"
    return target


def _without_owner(members: Mapping[str, Subscriber], counts: Mapping[bytes, int]) -> list[tuple[bytes, int]]:
    owned: dict[bytes, set[int]] = {topic_id: set() for topic_id in counts}
    for member in members.values():
        for topic_id, partitions in member.assigned.items():
            if topic_id in owned:
                owned[topic_id] |= partitions
    return [
        (topic_id, partition)
        for topic_id in hash_map_order(sorted(counts), uuid_hash, buckets=collection_buckets(len(counts)))
        for partition in range(counts[topic_id])
        if partition not in owned[topic_id]
    ]


def _set_order(partitions: frozenset[int]) -> list[int]:
    return hash_map_order(sorted(partitions), int, buckets=collection_buckets(len(partitions)))
