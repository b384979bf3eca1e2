"""The dead letters of a share group: what a leader asks of the part that writes them (KIP-1191, share.version 2).

A record that a member has rejected, or that no member has accepted within its deliveries, becomes a dead letter if its
group has a dead letter queue. The leader decides which records those are. The writer copies them to the topic of the
queue. This module has the values that pass between the two, and the interface of the writer.

The leader stores the records as ARCHIVING first. It calls `DeadLetterWriter.write` then, and stores them as ARCHIVED
when the promise has its result. A leader that loads records in the state ARCHIVING asks for their letters again. So
each letter is written at least once, unless the writer gives it up.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from pykbroker.net.promise import Promise


class DeadLetterCause(Enum):
    """The reason for which records become dead letters. The value is the text of the header `__dlq.errors.message`, as
    Apache Kafka 4.4 writes it (ShareGroupDLQManager)."""

    #: a member has acknowledged them with the type Reject
    REJECTED = "Offset rejected by client."
    #: they were released, or their locks have ended, at share.delivery.count.limit
    DELIVERY_LIMIT = "Offset delivery count exceeded the threshold."


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Records of one share partition that become dead letters for one cause, with one delivery count.

    The offsets from `first_offset` to `last_offset` are contiguous, as the members of the group had them. The log need
    not have a record at each of them: control records and offsets that compaction has removed can be in the range, and
    the log may begin after it by now. `topic_id` and `partition` are those of the source.
    """

    group_id: str
    topic_id: bytes
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int
    cause: DeadLetterCause


class DeadLetterWriter(Protocol):
    """Writes dead letters. All leaders of a broker use one writer, on the broker loop."""

    def is_wanted(self, group_id: str) -> bool:
        """Return True if records of this group become dead letters now: share.version 2 is finalised, and the group has
        errors.deadletterqueue.topic.name.

        A leader asks at each acknowledgement and each lock that ends, so the answer must be quick. While it is False
        the leader archives records at once, and stores nothing that share.version 1 does not have.
        """

    def write(self, letters: DeadLetters) -> Promise:
        """Begin to write letters. Return a promise whose result is None when all of them are written, or given up.

        It never raises, and the promise never has an error, because the leader archives the records in both cases (as
        Apache Kafka does). It ends in bounded time, also if the group no longer has a queue: the records hold back the
        start of the share partition until then. The result may come within the call. A leader has a bounded number of
        calls under way. It never cancels one, also when it no longer leads the partition.
        """


class NoDeadLetters:
    """The writer of a broker on which no group has a dead letter queue."""

    def is_wanted(self, group_id: str) -> bool:
        return False

    def write(self, letters: DeadLetters) -> Promise:
        """Give the letters up at once. They come here if another broker has stored their records as ARCHIVING."""
        promise = Promise()
        promise.set_result(None)
        return promise
