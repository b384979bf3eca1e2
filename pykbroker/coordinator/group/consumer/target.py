"""The target assignment of a consumer group: asks the assignor and writes what has changed.

Responsible for the assignor's input (the group as it will be after this request) and for the records of members whose
target has changed. Not responsible for when that happens (consumer_heartbeat.py).
"""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.coordinator.group.consumer.assign import Assignor, Subscriber
from pykbroker.coordinator.group.consumer.consumer_group import ConsumerGroup
from pykbroker.coordinator.group.consumer.consumer_member import NO_TARGET, ConsumerMember, TargetAssignment
from pykbroker.coordinator.group.consumer.consumer_records import target_epoch_record, target_record
from pykbroker.coordinator.group.consumer.reconcile import subscribed_topics
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.java import hash_map_order, java_hash
from pykbroker.coordinator.result import CoordinatorRecord


def compute_target(
    group: ConsumerGroup, epoch: int, updated: ConsumerMember, assignor: Assignor, topics: GroupTopics, now_ms: int
) -> tuple[list[CoordinatorRecord], TargetAssignment]:
    """Return the records, and the target of `updated`, which joins, replaces the holder of its instance id or has
    changed."""
    subscribers, mixed = _subscribers(group, updated, topics)
    assignment = assignor(subscribers, topics, mixed=mixed)
    records: list[CoordinatorRecord] = []
    for member_id in hash_map_order(subscribers, java_hash):
        target = {topic_id: frozenset(partitions) for topic_id, partitions in assignment.get(member_id, {}).items()}
        if group.target.get(member_id) != target:
            records.append(target_record(group.group_id, member_id, target))
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    own = assignment.get(updated.member_id, {})
    return records, {topic_id: frozenset(partitions) for topic_id, partitions in own.items()}


def _subscribers(
    group: ConsumerGroup, updated: ConsumerMember, topics: GroupTopics
) -> tuple[dict[str, Subscriber], bool]:
    """Return the subscribers, and True if they subscribe in different ways: by other names or patterns, or by names and
    patterns at once."""
    ids_of = _memo(topics)
    subscribers: dict[str, Subscriber] = {}
    ways: set[tuple[frozenset[str], str]] = set()

    def add(member: ConsumerMember, target: TargetAssignment) -> None:
        ways.add((member.topics, member.regex or ""))
        subscribers[member.member_id] = Subscriber(
            member.instance_id, member.rack_id, ids_of(subscribed_topics(member, group.subscriptions.resolved)), target
        )

    previous_id = None if updated.instance_id is None else group.static_members.get(updated.instance_id)
    for member_id, member in group.members.items():
        if member_id != updated.member_id and member_id != previous_id:
            add(member, group.target.get(member_id, NO_TARGET))
    if previous_id is not None and previous_id != updated.member_id:
        add(updated, group.target.get(previous_id, NO_TARGET))
    else:
        add(updated, group.target.get(updated.member_id, NO_TARGET))
    return subscribers, len(ways) > 1 or any(names and regex for names, regex in ways)


def _memo(topics: GroupTopics) -> Callable[[frozenset[str]], frozenset[bytes]]:
    """Keep one set of ids for each subscription. Most members share a subscription, and the assignors compare shared
    sets fast."""
    seen: dict[frozenset[str], frozenset[bytes]] = {}

    def ids_of(names: frozenset[str]) -> frozenset[bytes]:
        ids = seen.get(names)
        if ids is None:
            ids = seen[names] = frozenset(topics.ids_of(names))
        return ids

    return ids_of
