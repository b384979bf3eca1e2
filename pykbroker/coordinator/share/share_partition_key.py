"""The name of one share partition: a group, a topic id and a partition (Kafka's SharePartitionKey).

Responsible for its text form `group:topicId:partition`, which FindCoordinator carries, and for the partition of
`__share_group_state` that keeps its state. Not responsible for that state.

The text is read from the right, because the id of a group may contain colons (KAFKA-19957). Invariant: all spellings of
one key have the same partition, because it is computed from the canonical text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from pykbroker.coordinator.java import partition_for
from pykbroker_wire.primitives import uuid_from_str, uuid_to_str

#: Each write of a share partition makes the text of its key several times.
_text_of = lru_cache(maxsize=4_096)(uuid_to_str)

_LEAST_INT32 = -(2**31)
_MOST_INT32 = 2**31 - 1
_LEAST_PARTS = 3


class SharePartitionKey(NamedTuple):
    """`topic_id` has 16 bytes."""

    group_id: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"{self.group_id}:{_text_of(self.topic_id)}:{self.partition}"

    def state_partition(self, partitions: int) -> int:
        """Return the partition of `__share_group_state` for this key, if the topic has `partitions` partitions."""
        return partition_for(str(self), partitions)


def parse_share_partition_key(text: str) -> SharePartitionKey:
    """Return the key of a FindCoordinator request. Raises ValueError if the text is none."""
    # Java's String.split drops empty parts at the end.
    parts = text.rstrip(":").split(":")
    if len(parts) < _LEAST_PARTS:
        raise ValueError(f"Invalid key format: expected - groupId:topicId:partition, found - {text}")
    group_id = ":".join(parts[:-2])
    # String.trim takes away every character up to the space.
    if not group_id.strip("".join(map(chr, range(0x21)))):
        raise ValueError("GroupId must not be empty")
    topic_id = uuid_from_str(parts[-2].removesuffix("=="))
    partition = int(parts[-1])
    if "_" in parts[-1] or parts[-1].strip() != parts[-1] or not _LEAST_INT32 <= partition <= _MOST_INT32:
        raise ValueError(f"Invalid partition: {parts[-1]}")
    return SharePartitionKey(group_id, topic_id, partition)
