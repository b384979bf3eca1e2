"""The changes of topics and their partitions between two images, as Apache Kafka's TopicsDelta.

Not responsible for the configurations of topics, nor for any other record (delta.py).

Invariants: no topic id is in both `changed` and `deleted`. Each topic of `deleted` is a topic of the old image.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from pykbroker.metadata import image as im
from pykbroker.metadata.image import PartitionImage, TopicImage, TopicsImage
from pykbroker.metadata.replay_error import MetadataReplayError
from pykbroker_wire.stored.metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

NO_LEADER_CHANGE = -2
NO_RECOVERY_STATE_CHANGE = -1


@dataclass(slots=True)
class TopicDelta:
    """One topic that is new or has changed partitions. `before` is None for a new topic."""

    name: str
    id: bytes
    before: TopicImage | None
    #: the new state of each partition that was added or changed
    partitions: dict[int, PartitionImage] = field(default_factory=dict)
    #: True if `partitions` has all partitions, so that none of `before` stays
    whole: bool = False

    @property
    def created(self) -> bool:
        return self.before is None

    def partition_before(self, index: int) -> PartitionImage | None:
        return None if self.before is None else self.before.partitions.get(index)

    def apply(self) -> TopicImage:
        if self.before is None or self.whole:
            return TopicImage(self.name, self.id, self.partitions)
        return TopicImage(self.name, self.id, {**self.before.partitions, **self.partitions})


@lru_cache(maxsize=4096)
def shared_image(image: PartitionImage) -> PartitionImage:
    """Return one object for equal partitions, because an object takes 0.5 KB. Most of 10,000 partitions on a few
    brokers are equal."""
    return image


def merge_partition(before: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Return the partition after a change. A record that names a leader begins a new leader epoch, even if the leader
    stays the same."""
    replicas = before.replicas if record.replicas is None else tuple(record.replicas)
    directories = before.directories if record.directories is None else tuple(record.directories)
    if len(directories) != len(replicas):
        directories = (im.DIRECTORY_MIGRATING,) * len(replicas)
    elected = record.leader != NO_LEADER_CHANGE
    recovery = record.leader_recovery_state
    return shared_image(
        PartitionImage(
            replicas,
            directories,
            before.isr if record.isr is None else tuple(record.isr),
            before.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
            before.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
            before.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas),
            before.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
            record.leader if elected else before.leader,
            before.leader_recovery_state if recovery == NO_RECOVERY_STATE_CHANGE else recovery,
            before.leader_epoch + 1 if elected else before.leader_epoch,
            before.partition_epoch + 1,
        )
    )


class TopicsDelta:
    """The changes since `image`."""

    __slots__ = ("_names", "_whole", "changed", "deleted", "image")

    def __init__(self, image: TopicsImage, *, whole: bool = False) -> None:
        """`whole`: True if the records will be those of a snapshot, which also name topics that `image` has already."""
        self.image = image
        self._whole = whole
        #: topics that are new or have changed partitions
        self.changed: dict[bytes, TopicDelta] = {}
        #: topics of `image` that were deleted
        self.deleted: dict[bytes, TopicImage] = {}
        # The id of each topic that the records name, None if the topic was deleted.
        self._names: dict[str, bytes | None] = {}

    def __bool__(self) -> bool:
        return bool(self.changed or self.deleted)

    def id_of(self, name: str) -> bytes | None:
        """Return the id of a topic after the records so far, None if there is none."""
        if name in self._names:
            return self._names[name]
        topic = self.image.by_name.get(name)
        return None if topic is None else topic.id

    def set_all(self, new: TopicsImage) -> None:
        """Change the topics to those of `new`. A topic whose image is the same object does not change. Deletes nothing
        (see `delete_others`)."""
        for topic in new.by_id.values():
            before = self.image.by_id.get(topic.id)
            if before is not topic:
                whole = before is not None
                self.changed[topic.id] = TopicDelta(topic.name, topic.id, before, dict(topic.partitions), whole)
            self._names[topic.name] = topic.id

    def delete_others(self, kept: Container[bytes] = ()) -> None:
        """Delete all topics that the records did not set again, except those with the ids `kept`."""
        for topic_id, topic in self.image.by_id.items():
            if topic_id not in self.changed and topic_id not in kept:
                self.deleted[topic_id] = topic

    def remove(self, topic_id: bytes) -> str:
        """Delete a topic, and return its name."""
        change = self.changed.pop(topic_id, None)
        before = self.image.by_id.get(topic_id)
        if topic_id in self.deleted or (change is None and before is None):
            raise MetadataReplayError(f"no topic with id {topic_id.hex()}")
        if before is not None:
            self.deleted[topic_id] = before
        name = change.name if change is not None else before.name if before is not None else ""
        self._names[name] = None
        return name

    def apply(self) -> TopicsImage:
        """Return the topics after the records. Unchanged topics are shared with the old image."""
        old = self.image
        if not self.changed and not self.deleted:
            return old
        by_id = dict(old.by_id)
        by_name = dict(old.by_name)
        for topic_id, topic in self.deleted.items():
            del by_id[topic_id]
            del by_name[topic.name]
        for topic_id, change in self.changed.items():
            by_id[topic_id] = by_name[change.name] = change.apply()
        return TopicsImage(by_name, by_id)

    def _topic(self, record: TopicRecord) -> None:
        before = None
        if self._whole:
            before = self.image.by_id.get(record.topic_id)
        elif self.id_of(record.name) is not None:
            raise MetadataReplayError(f"topic {record.name} exists already")
        self._names[record.name] = record.topic_id
        self.changed[record.topic_id] = TopicDelta(record.name, record.topic_id, before, whole=self._whole)

    def _topic_delta(self, topic_id: bytes) -> TopicDelta:
        change = self.changed.get(topic_id)
        if change is None:
            before = self.image.by_id.get(topic_id)
            if before is None or topic_id in self.deleted:
                raise MetadataReplayError(f"no topic with id {topic_id.hex()}")
            change = self.changed[topic_id] = TopicDelta(before.name, topic_id, before)
        return change

    def _partition(self, record: PartitionRecord) -> None:
        replicas = tuple(record.replicas)
        directories = tuple(record.directories)
        if len(directories) != len(replicas):
            directories = (im.DIRECTORY_MIGRATING,) * len(replicas)
        image = PartitionImage(
            replicas,
            directories,
            tuple(record.isr),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            record.leader,
            record.leader_recovery_state,
            record.leader_epoch,
            record.partition_epoch,
        )
        self._topic_delta(record.topic_id).partitions[record.partition_id] = shared_image(image)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        change = self._topic_delta(record.topic_id)
        before = change.partitions.get(record.partition_id) or change.partition_before(record.partition_id)
        if before is None:
            raise MetadataReplayError(f"no partition {change.name}-{record.partition_id}")
        change.partitions[record.partition_id] = merge_partition(before, record)

    def _clear_elr(self, record: ClearElrRecord) -> None:
        if record.topic_name:
            topic_id = self.id_of(record.topic_name)
            if topic_id is None:
                raise MetadataReplayError(f"no topic {record.topic_name}")
            ids = [topic_id]
        else:
            ids = [i for i in self.image.by_id if i not in self.deleted and i not in self.changed]
            ids.extend(self.changed)
        for topic_id in ids:
            change = self.changed.get(topic_id)
            before = self.image.by_id.get(topic_id)
            partitions = dict(before.partitions) if before is not None else {}
            if change is not None:
                partitions.update(change.partitions)
            for index, partition in partitions.items():
                if partition.elr or partition.last_known_elr:
                    cleared = partition._replace(
                        elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                    )
                    self._topic_delta(topic_id).partitions[index] = cleared


#: The method for each type of record that changes only topics.
TOPIC_RECORDS: Final[dict[type, Callable[[TopicsDelta, Any], None]]] = {
    TopicRecord: TopicsDelta._topic,
    PartitionRecord: TopicsDelta._partition,
    PartitionChangeRecord: TopicsDelta._partition_change,
    ClearElrRecord: TopicsDelta._clear_elr,
}
