"""The share partitions of a share group whose state is kept by share coordinators, as the group's record has them.

    not here → initializing → initialized → deleting → not here

A partition may be assigned while it is initialized. It is initializing from the moment at which the group decides to
ask for its state until a share coordinator has confirmed it. Topics are deleting from an administrator's request until
share coordinators have confirmed that.

Responsible for the values before and after each of these steps; pure. Not responsible for asking (share_step.py) and
for the bytes of the record (share_records.py).

Invariants: values never change. A topic that begins to be initialized is no longer deleting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

#: The name of a topic that this broker does not know. Apache Kafka writes it too.
UNKNOWN_TOPIC: Final = "<UNKNOWN>"


class NamedPartitions(NamedTuple):
    """Partitions of a topic, with the name that it had."""

    name: str
    partitions: frozenset[int]


#: topic id -> its name and partitions
TopicStates = Mapping[bytes, NamedPartitions]


class SharePartitionStates(NamedTuple):
    """The states of all share partitions of one group."""

    initializing: TopicStates = {}
    initialized: TopicStates = {}
    #: topic id -> name
    deleting: Mapping[bytes, str] = {}

    def knows(self, topic_id: bytes) -> bool:
        """Return True if the topic is not new to the group."""
        return topic_id in self.initializing or topic_id in self.initialized

    def initialized_of(self, topic_id: bytes) -> frozenset[int]:
        found = self.initialized.get(topic_id)
        return frozenset() if found is None else found.partitions

    def initializing_of(self, topic_id: bytes) -> frozenset[int]:
        found = self.initializing.get(topic_id)
        return frozenset() if found is None else found.partitions

    def begin(self, topics: TopicStates) -> SharePartitionStates:
        """Return the states after these partitions have begun to be initialized."""
        initializing = _united(self.initializing, topics)
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in initializing}
        return SharePartitionStates(initializing, self.initialized, deleting)

    def confirm(self, topics: TopicStates) -> SharePartitionStates:
        """Return the states after these partitions have been initialized. A partition that is no longer initializing
        stays as it is, because its group or topic was deleted in the meantime."""
        confirmed = {
            topic_id: found._replace(partitions=found.partitions & self.initializing[topic_id].partitions)
            for topic_id, found in topics.items()
            if topic_id in self.initializing
        }
        return SharePartitionStates(
            _without(self.initializing, confirmed), _united(self.initialized, confirmed), self.deleting
        )

    def give_up(self, topics: TopicStates) -> SharePartitionStates:
        """Return the states after these partitions could not be initialized."""
        return SharePartitionStates(_without(self.initializing, topics), self.initialized, self.deleting)

    def delete(self, topics: Mapping[bytes, str]) -> SharePartitionStates:
        """Return the states after the initialized partitions of these topics have begun to be deleted."""
        initialized = {topic_id: found for topic_id, found in self.initialized.items() if topic_id not in topics}
        return SharePartitionStates(self.initializing, initialized, {**self.deleting, **topics})

    def deleted(self, topic_ids: Collection[bytes]) -> SharePartitionStates:
        """Return the states after share coordinators have deleted those of these topics."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topic_ids}
        return SharePartitionStates(self.initializing, self.initialized, deleting)

    def without_topics(self, topic_ids: Collection[bytes]) -> SharePartitionStates:
        """Return the states after these topics have been deleted from the cluster."""
        return SharePartitionStates(
            {topic_id: found for topic_id, found in self.initializing.items() if topic_id not in topic_ids},
            {topic_id: found for topic_id, found in self.initialized.items() if topic_id not in topic_ids},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topic_ids},
        )

    def everything(self) -> TopicStates:
        """Return the partitions that have, or may have, a state at a share coordinator."""
        return _united(self.initialized, self.initializing)


NO_STATES: Final = SharePartitionStates()


def topic_states(partitions: Iterable[tuple[bytes, int]], names: Mapping[bytes, str]) -> TopicStates:
    """Return the partitions by topic. `names` has the names of topics that are known."""
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, set()).add(partition)
    return {
        topic_id: NamedPartitions(names.get(topic_id, UNKNOWN_TOPIC), frozenset(numbers))
        for topic_id, numbers in found.items()
    }


def _united(first: TopicStates, second: TopicStates) -> TopicStates:
    """Return both. The names of `second` count."""
    united = dict(first)
    for topic_id, found in second.items():
        before = united.get(topic_id)
        united[topic_id] = found if before is None else found._replace(partitions=found.partitions | before.partitions)
    return united


def _without(states: TopicStates, gone: TopicStates) -> TopicStates:
    left: dict[bytes, NamedPartitions] = {}
    for topic_id, found in states.items():
        partitions = found.partitions - gone[topic_id].partitions if topic_id in gone else found.partitions
        if partitions:
            left[topic_id] = found._replace(partitions=partitions)
    return left
