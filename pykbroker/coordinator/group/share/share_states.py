"""The interface to the share coordinators, which keep the state of share partitions (KIP-932).

Responsible for what the group coordinator asks of them: a start, an end and a summary for each share partition of a
group. Not responsible for how they are found and asked. A share coordinator may be on another broker, and may be Apache
Kafka's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from pykbroker.runtime.later import Later
from pykbroker_wire.errors import ErrorCode

#: The start offset of a partition whose leader chooses the start, by `share.auto.offset.reset` of the group.
UNSET_OFFSET: Final = -1

#: (topic id, partition)
TopicIdPartition = tuple[bytes, int]


class ShareStart(NamedTuple):
    """The state with which a share partition begins. `start_offset` -1 leaves the choice to the partition's leader."""

    topic_id: bytes
    partition: int
    state_epoch: int
    start_offset: int = UNSET_OFFSET


class ShareSummary(NamedTuple):
    """The summary of a share partition. An unknown one has no error and the defaults, as in Apache Kafka."""

    error: ErrorCode = ErrorCode.NONE
    start_offset: int = UNSET_OFFSET
    leader_epoch: int = 0
    #: records at or after `start_offset` whose delivery is complete; -1 if it is not known
    delivery_complete_count: int = -1


class ShareStateKeeper(Protocol):
    """Asks the share coordinators. Each answer has one entry per share partition, in the order of the request. An error
    is an entry, and nothing is raised. A call may be repeated, because each of them sets a state."""

    def initialize(self, group_id: str, starts: Sequence[ShareStart]) -> Later[list[ErrorCode]]:
        """Replace the state of these share partitions by an empty one."""
        ...

    def delete(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> Later[list[ErrorCode]]:
        """Delete the state of these share partitions. The deletion of an unknown one succeeds."""
        ...

    def read_summaries(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> Later[list[ShareSummary]]:
        """Return the summaries. Nothing changes by that, also not the leader epoch."""
        ...
