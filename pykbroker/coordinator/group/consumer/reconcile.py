"""The next step of one member of a consumer group towards its target: partitions to give up, to keep and to get.

Responsible for the table below, as a pure function. Not responsible for records and timers (consumer_heartbeat.py), nor
for the target (target.py).

    Stable                 if the target is newer: revoke first, else take the partitions that are free
    UnrevokedPartitions    waits until the member reports none of these partitions as its own, then as above
    UnreleasedPartitions   as above: revoke first, else take the partitions that have become free
    Unknown                a state that a later release wrote: the member must give up all partitions first

Invariant: a member gets a partition only if no member owns it, or if the member itself had to revoke it and has
confirmed that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pykbroker.coordinator.group.consumer.consumer_group import ConsumerGroup
from pykbroker.coordinator.group.consumer.consumer_member import (
    NO_EPOCH,
    NOTHING,
    AssignedPartitions,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
    TargetAssignment,
)
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker_wire.errors import ErrorCode, KafkaError

#: (topic id, partitions) that a member reports as its own; None if it did not report them
Owned = Sequence[tuple[bytes, Sequence[int]]] | None


class Goal(NamedTuple):
    """The state that a member has to reach."""

    target_epoch: int
    target: TargetAssignment
    #: True if this request changed the subscription of the member, so that it gives up topics without a subscription at
    #: once
    subscription_changed: bool


def subscribed_topics(member: ConsumerMember, resolved: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    """Return the topics that the member subscribes to by name and by regular expression."""
    if member.regex:
        found = resolved.get(member.regex)
        if found is not None:
            return member.topics | found.topics
    return member.topics


def next_step(
    group: ConsumerGroup, member: ConsumerMember, goal: Goal, owned: Owned, topics: GroupTopics
) -> ConsumerMember:
    """Return the member after this step, or the same object if there is no step to take now."""
    state = member.state
    if state is MemberState.STABLE:
        if member.epoch != goal.target_epoch:
            return _advance(group, member, member.epoch, goal, owned, topics)
        return _drop_unsubscribed(group, member, owned, topics) if goal.subscription_changed else member
    if state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, member.revoking):
            return _drop_unsubscribed(group, member, owned, topics) if goal.subscription_changed else member
        return _advance(group, member, member.epoch, goal, owned, topics)
    if state is MemberState.UNRELEASED_PARTITIONS:
        return _advance(group, member, member.epoch, goal, owned, topics)
    if owned is None or owned:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    return _advance(group, member, goal.target_epoch, goal, owned, topics)


def _owns_any(owned: Owned, revoking: AssignedPartitions) -> bool:
    if owned is None:
        return True
    for topic_id, partitions in owned:
        pending = revoking.get(topic_id)
        if pending is not None and any(partition in pending for partition in partitions):
            return True
    return False


def _subscribed_ids(group: ConsumerGroup, member: ConsumerMember, topics: GroupTopics) -> frozenset[bytes]:
    return frozenset(topics.ids_of(subscribed_topics(member, group.subscriptions.resolved)))


def _drop_unsubscribed(
    group: ConsumerGroup, member: ConsumerMember, owned: Owned, topics: GroupTopics
) -> ConsumerMember:
    """Give up topics without a subscription, because the subscription changed and the target did not."""
    subscribed = _subscribed_ids(group, member, topics)
    gone = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id not in subscribed}
    if not gone:
        return member
    kept = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id in subscribed}
    revoking = dict(member.revoking)
    for topic_id, partitions in gone.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **partitions}
    if _owns_any(owned, revoking):
        return member.moved_to(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return member._replace(previous_epoch=member.epoch, assigned=kept)


def _advance(
    group: ConsumerGroup, member: ConsumerMember, epoch: int, goal: Goal, owned: Owned, topics: GroupTopics
) -> ConsumerMember:
    subscribed = _subscribed_ids(group, member, topics)
    kept: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    new: dict[bytes, list[int]] = {}
    unreleased = False
    for topic_id in dict.fromkeys((*goal.target, *member.assigned)):
        target = goal.target.get(topic_id, frozenset()) if topic_id in subscribed else frozenset()
        current = member.assigned.get(topic_id, {})
        stays = {partition: since for partition, since in current.items() if partition in target}
        if len(stays) < len(current):
            revoking[topic_id] = {partition: since for partition, since in current.items() if partition not in target}
        if stays:
            kept[topic_id] = stays
        if len(stays) < len(target):
            own_revoking = member.revoking.get(topic_id, {})
            free = []
            for partition in sorted(target):
                if partition in stays:
                    continue
                if group.partition_epochs.of(topic_id, partition) != NO_EPOCH and partition not in own_revoking:
                    unreleased = True
                else:
                    free.append(partition)
            if free:
                new[topic_id] = free
    if revoking and _owns_any(owned, revoking):
        return member.moved_to(epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    for topic_id, partitions in new.items():
        kept[topic_id] = {**kept.get(topic_id, {}), **dict.fromkeys(partitions, goal.target_epoch)}
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return member.moved_to(goal.target_epoch, state, kept, NOTHING)
