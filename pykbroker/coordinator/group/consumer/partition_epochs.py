"""The epoch in which each partition of a consumer group got its owner; pure.

Responsible for the rule that a partition has at most one owner. The owner may read the partition or has not confirmed
yet that it stopped. Not responsible for which member gets a partition (reconcile.py).

Invariant: a topic without owned partitions has no entry.
"""

from __future__ import annotations

import logging

from pykbroker.coordinator.group.consumer.consumer_member import NO_EPOCH, AssignedPartitions, ConsumerMember

logger = logging.getLogger(__name__)


class PartitionEpochs:
    """The owners of one group's partitions. `group_id` is for the log line."""

    __slots__ = ("_group_id", "by_topic")

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        #: topic id -> partition -> epoch of its owner
        self.by_topic: dict[bytes, dict[int, int]] = {}

    def of(self, topic_id: bytes, partition: int) -> int:
        """Return the epoch of a partition's owner, NO_EPOCH if it has none."""
        epochs = self.by_topic.get(topic_id)
        return NO_EPOCH if epochs is None else epochs.get(partition, NO_EPOCH)

    def release(self, member: ConsumerMember) -> None:
        """Let the member own no partition."""
        for assigned in (member.assigned, member.revoking):
            for topic_id, partitions in assigned.items():
                epochs = self.by_topic.get(topic_id)
                if epochs is None:
                    continue
                for partition in partitions:
                    # A partition that another member got since then stays with that member.
                    if epochs.get(partition) == member.epoch:
                        del epochs[partition]
                if not epochs:
                    del self.by_topic[topic_id]

    def own(self, member: ConsumerMember) -> None:
        """Let the member own its partitions, with those that it is still to give up."""
        self._own(member.member_id, member.assigned, member.epoch)
        self._own(member.member_id, member.revoking, member.epoch)

    def _own(self, member_id: str, assigned: AssignedPartitions, epoch: int) -> None:
        for topic_id, partitions in assigned.items():
            epochs = self.by_topic.setdefault(topic_id, {})
            for partition in partitions:
                before = epochs.get(partition)
                if before is not None and before >= epoch:
                    # Another program wrote this log, and it must be readable even so.
                    logger.error(
                        "Group %s: partition %d of topic %s is owned in epoch %d when member %s gets it in epoch %d",
                        self._group_id,
                        partition,
                        topic_id.hex(),
                        before,
                        member_id,
                        epoch,
                    )
                epochs[partition] = epoch
