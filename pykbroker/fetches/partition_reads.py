"""One pass over the partitions of a fetch: each partition is looked up, checked, and read by a reader.

Responsible for the limit of the whole answer, and for the decision whether an error of one partition ends the wait. Not
responsible for the offsets up to which a client may read (the readers), nor for the answer (fetch_answer.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pykbroker.replica.fetch_sessions import SessionKey, SessionPartition
from pykbroker.replica.partition import Partition
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykbroker.dispatch.services import BrokerServices
    from pykbroker.metadata.image import MetadataImage
    from pykbroker_log.results import ReadResult

NO_EPOCH: Final = -1
#: These errors are answered without a wait for other partitions. The client must fetch from another broker, or another
#: topic.
_AT_ONCE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INCONSISTENT_TOPIC_ID)
#: With these errors the partition is known. Apache Kafka tries to read it, and so answers with null for aborted
#: transactions.
_READ_IN_VAIN: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)


class ReadPlan(Protocol):
    """The part of a plan that a pass needs: the partitions, and how they are named."""

    members: dict[SessionKey, SessionPartition]

    @property
    def uses_topic_ids(self) -> bool: ...

    @property
    def skips_unchanged(self) -> bool: ...


class PartitionRead:
    """The result for one partition: records, an error, another replica to read from, or the end of the common log."""

    __slots__ = ("diverging", "entry", "error", "is_known", "key", "log", "preferred_replica", "records")

    def __init__(self, key: SessionKey, entry: SessionPartition) -> None:
        self.key = key
        self.entry = entry
        self.error = ErrorCode.NONE
        #: True if this node has the partition, or if the metadata has its leader
        self.is_known = False
        #: the log with the offsets for the answer; None after an error
        self.log: PartitionLog | None = None
        self.records: ReadResult | None = None
        self.preferred_replica = -1
        #: the leader epoch and end offset to which a client must truncate if its log diverges (KIP-320)
        self.diverging: tuple[int, int] | None = None

    def diverges(self, partition: Partition) -> bool:
        """Return True if the client has records that are not in this log, and set `diverging`. Raises KafkaError if
        this log has no information about the client's epoch."""
        entry, log = self.entry, partition.log
        epoch, end_offset = log.epoch_end_offset(entry.last_fetched_epoch)
        if epoch == NO_EPOCH or end_offset < 0 or entry.fetch_offset < log.log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition}: the log has no information about leader epoch {entry.last_fetched_epoch}",
            )
        if epoch >= entry.last_fetched_epoch and end_offset >= entry.fetch_offset:
            return False
        self.diverging = (epoch, end_offset)
        self.log = log
        return True

    def failed(self, error: ErrorCode) -> None:
        self.error = error
        if error in _READ_IN_VAIN:
            self.is_known = True
        self.log = self.records = None
        self.entry.partition = None


class Reader(Protocol):
    """Reads partitions for one kind of client. It belongs to one fetch."""

    def begin(self) -> None:
        """Begin a pass over the partitions. A ColdRead may have ended an earlier pass in the middle."""

    def unchanged(self, entry: SessionPartition) -> Partition | None:
        """Return the partition if there is nothing to read and nothing to answer about it. Otherwise return None."""

    def may_read(self, topic: str) -> bool: ...

    def read(
        self, into: PartitionRead, partition: Partition, limit: int, is_first: bool, wait: bool
    ) -> ReadResult | None:
        """Read up to `limit` bytes, or, if `is_first`, at least one whole batch. Return None if the client has to do
        something else first, which is in `into`; the answer then does not wait. Raises KafkaError, and ColdRead unless
        `wait`."""

    def end(self) -> None:
        """End the pass: every partition was read, or its read has failed."""

    def count(self, size: int) -> None:
        """Count the bytes that are answered."""


class PartitionReads:
    """The result of one pass."""

    __slots__ = ("found", "is_urgent", "size", "waiting_for")

    def __init__(self) -> None:
        #: the results of the partitions about which there is something to answer
        self.found: list[PartitionRead] = []
        self.size = 0
        #: True if the answer must not wait, because of an error or because a client must first do something else
        self.is_urgent = False
        #: the partitions that were read without an error, which may have more records later
        self.waiting_for: list[Partition] = []


def asked_partitions(plan: ReadPlan, image: MetadataImage) -> Iterator[tuple[str, int]]:
    """Yield the topic name and index of each partition in a plan, as far as the name is known."""
    by_id = image.topics.by_id
    for entry in plan.members.values():
        topic = entry.topic
        if topic is None and (found := by_id.get(entry.topic_id)) is not None:
            topic = found.name
        if topic is not None:
            yield topic, entry.index


def read_partitions(
    plan: ReadPlan, reader: Reader, services: BrokerServices, limit: int, *, wait: bool
) -> PartitionReads:
    """Read every partition of a plan, up to `limit` bytes in all. May raise ColdRead, unless `wait`; then nothing has
    changed."""
    reads = PartitionReads()
    found, waiting_for = reads.found, reads.waiting_for
    left, size = limit, 0
    skips = plan.skips_unchanged
    reader.begin()
    for key, entry in plan.members.items():
        if skips and (unchanged := reader.unchanged(entry)) is not None:
            # This is the case for nearly all partitions of a follower, nearly always.
            waiting_for.append(unchanged)
            continue
        into = PartitionRead(key, entry)
        found.append(into)
        try:
            partition = entry.partition
            if partition is None or partition.offline or not partition.is_leader:
                partition = _find(plan, reader, services, entry)
            elif entry.topic is not None and not reader.may_read(entry.topic):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            into.is_known = True
            records = reader.read(into, partition, entry.max_bytes if entry.max_bytes < left else left, not size, wait)
            if records is None:
                reads.is_urgent = True
                continue
            into.records = records
            into.log = partition.log
            if records.size:
                size += records.size
                left = max(0, left - records.size)
            waiting_for.append(partition)
        except KafkaError as error:
            # As in Apache Kafka, a fetch still waits for its other partitions if this partition was never found.
            if entry.partition is not None or error.code in _AT_ONCE:
                reads.is_urgent = True
            into.failed(error.code)
    reader.end()
    reads.size = size
    return reads


def _find(plan: ReadPlan, reader: Reader, services: BrokerServices, entry: SessionPartition) -> Partition:
    """Return the partition that the entry of a fetch names. Raises KafkaError."""
    replicas = services.replicas
    if plan.uses_topic_ids:
        topic = services.metadata.image.topics.by_id.get(entry.topic_id)
        if topic is None:
            if entry.topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            # The topic was deleted. The session, or the fetch that waited, still has its name.
            has_namesake = replicas.find(entry.topic, entry.index) is not None
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID if has_namesake else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        entry.topic = topic.name
    assert entry.topic is not None
    if not reader.may_read(entry.topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    partition = entry.partition = replicas.get(entry.topic, entry.index)
    return partition
