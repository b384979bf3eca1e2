"""The target assignment of a share group: asks the assignor, and writes what has changed.

Responsible for the assignor's input (the group as it will be after this input), for the records of members whose target
has changed, and for what a member takes of its target. Not responsible for when that happens (share_step.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pykbroker.coordinator.group.share.share_group import ShareGroup
from pykbroker.coordinator.group.share.share_member import NO_PARTITIONS, SharedPartitions, ShareMember
from pykbroker.coordinator.group.share.share_partition_states import SharePartitionStates
from pykbroker.coordinator.group.share.share_records import target_epoch_record, target_record
from pykbroker.coordinator.group.share.simple_assignor import ShareSubscriber, simple
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.java import collection_buckets, hash_map_order, java_hash
from pykbroker.coordinator.result import CoordinatorRecord


class ShareTarget(NamedTuple):
    """A target, for which epoch, and the records that write it."""

    epoch: int
    by_member: Mapping[str, SharedPartitions]
    records: list[CoordinatorRecord]

    def of(self, member_id: str) -> SharedPartitions:
        return self.by_member.get(member_id, NO_PARTITIONS)


def written_target(group: ShareGroup) -> ShareTarget:
    """Return the target that the group has."""
    return ShareTarget(group.target_epoch, group.target, [])


def compute_share_target(
    group: ShareGroup,
    epoch: int,
    updated: ShareMember | None,
    states: SharePartitionStates,
    topics: GroupTopics,
    now_ms: int,
) -> ShareTarget:
    """Return the target for the group with `updated`, which joins or has changed. `states` says which partitions may be
    assigned."""
    members = dict(group.members)
    if updated is not None:
        members[updated.member_id] = updated
    ids_of: dict[frozenset[str], list[bytes]] = {}
    for member in members.values():
        if member.topics not in ids_of:
            # Apache Kafka walks the member's set of names.
            names = sorted(member.topics)
            in_order = hash_map_order(names, java_hash, buckets=collection_buckets(len(names)))
            ids_of[member.topics] = list(topics.ids_of(in_order))
    assignable = {
        topic_id: sorted(
            partition for partition in states.initialized_of(topic_id) if partition < topics.partition_count(topic_id)
        )
        for topic_id in dict.fromkeys(topic_id for ids in ids_of.values() for topic_id in ids)
    }
    subscribers = {
        member_id: ShareSubscriber(ids_of[member.topics], group.target_of(member_id))
        for member_id, member in members.items()
    }
    assignment = simple(subscribers, assignable, mixed=len(ids_of) > 1)
    records: list[CoordinatorRecord] = []
    by_member: dict[str, SharedPartitions] = {}
    for member_id, own in assignment.items():
        target = by_member[member_id] = {topic_id: frozenset(partitions) for topic_id, partitions in own.items()}
        if group.target.get(member_id) != target:
            records.append(target_record(group.group_id, member_id, target))
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return ShareTarget(epoch, by_member, records)


def with_target(
    member: ShareMember, epoch: int, target: SharedPartitions, topics: GroupTopics, *, changed: bool
) -> ShareMember:
    """Return the member after it has taken its target, or the same object if it has it. `changed` is True if the member
    has changed its subscription in this input, so that it takes its target again.

    A topic that was deleted stays in the member's partitions until its next epoch. In Apache Kafka it goes at once, and
    if the answer is lost, the member keeps it, because no later answer has news."""
    if member.epoch == epoch and not changed:
        return member
    subscribed = frozenset(topics.ids_of(member.topics))
    assigned = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed}
    if member.epoch == epoch:
        return member if assigned == member.assigned else member._replace(assigned=assigned)
    return member._replace(epoch=epoch, previous_epoch=member.epoch, assigned=assigned)
