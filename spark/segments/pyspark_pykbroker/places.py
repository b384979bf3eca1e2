"""The place of a stream, as Spark stores it in the checkpoint.

Pure. Responsible for the format, and for the check that a replica is of the place's topic. Not responsible for how a
stream uses it (segment_stream.py).

Invariant: a place without topic ids can be read. Older checkpoints have none, and neither have directories without
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from pyspark_pykbroker.directories import Replica
from pyspark_pykbroker.source_options import Offsets, TopicPartition

#: The key next to the numbers of a topic's partitions.
_ID = "id"

#: The form in which Spark stores it: topic -> partition -> the next offset, and "id" -> the topic's id.
Stored = dict[str, dict[str, int | str]]


@dataclass(frozen=True, slots=True)
class Place:
    #: the next offset of each partition
    offsets: Offsets
    #: only for topics whose id is known
    topic_ids: Mapping[str, str]

    @classmethod
    def of(cls, offsets: Offsets, replicas: Iterable[Replica]) -> Place:
        return cls(offsets, {replica.topic: replica.topic_id for replica in replicas if replica.topic_id})

    @classmethod
    def decode(cls, given: Stored | str) -> Place:
        topics: Stored = json.loads(given) if isinstance(given, str) else given
        offsets = {
            (topic, int(name)): int(value)
            for topic, values in topics.items()
            for name, value in values.items()
            if name != _ID
        }
        return cls(offsets, {topic: str(values[_ID]) for topic, values in topics.items() if _ID in values})

    def encode(self) -> Stored:
        """Return the form to store, always in the same order, because Spark compares the texts."""
        topics = {topic for topic, _ in self.offsets}
        found: Stored = {topic: {_ID: self.topic_ids[topic]} for topic in sorted(topics) if topic in self.topic_ids}
        for (topic, partition), offset in sorted(self.offsets.items()):
            found.setdefault(topic, {})[str(partition)] = offset
        return found

    def is_in_another(self, replica: Replica) -> bool:
        """Return True if the replica is of another topic than this place. A place without an id fits any."""
        known = self.topic_ids.get(replica.topic, "")
        return known not in ("", replica.topic_id)

    def without(self, topics: Set[str]) -> Place:
        offsets: dict[TopicPartition, int] = {key: at for key, at in self.offsets.items() if key[0] not in topics}
        return Place(offsets, {topic: known for topic, known in self.topic_ids.items() if topic not in topics})


def stored(offsets: Offsets) -> Stored:
    """Return offsets alone, in the form of options."""
    return Place(offsets, {}).encode()
