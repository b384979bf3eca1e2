"""`range`: each subscriber gets one run of neighbouring partitions of each topic. The first subscribers get one more.

All subscribers stand in the same order for each topic, so topics with the same number of partitions and the same
subscribers are co-partitioned. Static members come first, by instance id, then the others by member id. A member's
partitions depend on that order alone. So static members keep their partitions when they come back under another member
id; there is no other stickiness.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.coordinator.group.consumer.assign.subscriber import Assignment, Subscriber, Topics, partition_counts
from pykbroker.coordinator.java import java_order


def range_(members: Mapping[str, Subscriber], topics: Topics, *, mixed: bool = False) -> Assignment:
    counts = partition_counts(members, topics)
    subscribers: dict[bytes, list[str]] = {topic_id: [] for topic_id in sorted(counts)}
    for member_id in sorted(members, key=lambda member_id: _place(member_id, members[member_id])):
        for topic_id in members[member_id].topic_ids:
            if topic_id in counts:
                subscribers[topic_id].append(member_id)

    target: Assignment = {member_id: {} for member_id in members}
    for topic_id, member_ids in subscribers.items():
        quota, extra = divmod(counts[topic_id], len(member_ids))
        start = 0
        for place, member_id in enumerate(member_ids):
            end = start + quota + (place < extra)
            if start == end:
                break  # the members after it get nothing
            target[member_id][topic_id] = set(range(start, end))
            start = end
    return target


def _place(member_id: str, member: Subscriber) -> tuple[bool, bytes]:
    return (True, java_order(member_id)) if member.instance_id is None else (False, java_order(member.instance_id))
