"""The acknowledgements of one request, of ShareFetch or ShareAcknowledge: each partition goes to its leader, and the
results come back together.

Responsible for partitions that have no leader here, and for the checks before a leader is asked. Not responsible for
what an acknowledgement does to records, nor for the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pykbroker.fetches.readable_topics import ReadableTopics
from pykbroker.net.promise import Promise
from pykbroker.share_partitions.acknowledged_ranges import (
    PER_TURN,
    AcknowledgedRange,
    counts_of_types,
    is_well_formed,
)
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.dispatch.context import BrokerContext
    from pykbroker.share_leaders.share_partition_leader import SharePartitionLeader
    from pykbroker.share_partitions.share_sessions import SessionMember, SessionPartitionId


class AcknowledgedPartition(Protocol):
    """A partition of ShareFetch or ShareAcknowledge."""

    @property
    def partition_index(self) -> int: ...
    @property
    def acknowledgement_batches(self) -> Sequence[AcknowledgedRange]: ...


class AcknowledgedTopic(Protocol):
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Sequence[AcknowledgedPartition]: ...


class AcknowledgeResult(NamedTuple):
    """The result for one partition. As in Apache Kafka, only an error of a leader has a text, and only if the ranges
    are well-formed."""

    code: ErrorCode
    message: str | None = None


DONE: Final = AcknowledgeResult(ErrorCode.NONE)


class ShareAcknowledgements:
    """Call `begin` once, and then `when_done`. `results` is complete when the callback is called."""

    __slots__ = ("_callback", "_ctx", "_is_renewal", "_may_read", "_member", "_missing", "results")

    def __init__(self, ctx: BrokerContext, member: SessionMember, *, is_renewal: bool) -> None:
        self._ctx = ctx
        self._member = member
        self._is_renewal = is_renewal
        self._may_read = ReadableTopics(ctx)
        self._missing = 0
        self._callback: Callable[[], None] | None = None
        self.results: dict[SessionPartitionId, AcknowledgeResult] = {}

    def begin(self, topics: Iterable[AcknowledgedTopic]) -> None:
        """Pass the acknowledgements to the leaders. The state of records has changed when this returns, except for very
        long lists of ranges. As in Apache Kafka, a partition without any is in the results only if a leader was
        asked."""
        asked = {
            (topic.topic_id, each.partition_index): each.acknowledgement_batches
            for topic in topics
            for each in topic.partitions
        }
        empty: list[SessionPartitionId] = []
        begun: list[tuple[SessionPartitionId, Promise]] = []
        for named, ranges in asked.items():
            leader = self._leader(named, bool(ranges))
            if leader is None:
                empty.append(named)
            elif isinstance(leader, AcknowledgeResult):
                self.results[named] = leader
            else:
                self.results[named] = DONE
                if leader.partition.traffic is not None:
                    leader.partition.traffic.acknowledged()
                promise = leader.acknowledge(self._member.member, ranges, is_renewal=self._is_renewal)
                begun.append((named, promise))
        if begun:
            self.results.update(dict.fromkeys(empty, DONE))
        self._missing = len(begun)
        for named, promise in begun:
            promise.add_done_callback(partial(self._ended, named, asked[named]))

    def _leader(self, named: SessionPartitionId, has_ranges: bool) -> SharePartitionLeader | AcknowledgeResult | None:
        """Return the leader of a partition, or the error of its acknowledgements. Return None if it has none."""
        topic_id, index = named
        services = self._ctx.services
        topics = services.metadata.image.topics
        topic = topics.by_id.get(topic_id)
        if topic is None:
            return AcknowledgeResult(ErrorCode.UNKNOWN_TOPIC_ID)
        if not self._may_read(topic.name):
            return AcknowledgeResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topics.partition(topic.name, index) is None:
            return AcknowledgeResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not has_ranges:
            return None
        leader = services.share_leaders.find(self._member.group, topic_id, index)
        if leader is not None:
            return leader
        replica = services.replicas.find(topic.name, index)
        leads = replica is not None and replica.is_leader
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return AcknowledgeResult(code, code.message)

    def _ended(self, named: SessionPartitionId, ranges: Sequence[AcknowledgedRange], promise: Promise) -> None:
        code: ErrorCode = promise.result()
        if code is ErrorCode.NONE:
            self._ctx.services.share_leaders.measures.acknowledged(counts_of_types(ranges))
        else:
            is_malformed = code is ErrorCode.INVALID_REQUEST and self._are_malformed(ranges)
            self.results[named] = AcknowledgeResult(code, None if is_malformed else code.message)
        self._missing -= 1
        self._tell()

    def _are_malformed(self, ranges: Sequence[AcknowledgedRange]) -> bool:
        after = -1
        # This decides about a text only, so a long list of ranges is not looked through.
        for each in ranges[:PER_TURN]:
            if not is_well_formed(each, after, allows_renewal=self._is_renewal):
                return True
            after = each.last_offset
        return False

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back when all results are there, at once if they are."""
        self._callback = callback
        self._tell()

    def _tell(self) -> None:
        if not self._missing and self._callback is not None:
            self._count()
            callback, self._callback = self._callback, None
            callback()

    def _count(self) -> None:
        """Count the request for its topics. As in Apache Kafka, it counts for the partitions that went to their
        leaders, so its errors are those that have a text."""
        services = self._ctx.services
        by_id = services.metadata.image.topics.by_id
        counted: set[str] = set()
        failed: set[str] = set()
        for (topic_id, _), (code, message) in self.results.items():
            topic = by_id.get(topic_id)
            if topic is not None and (code is ErrorCode.NONE or message is not None):
                counted.add(topic.name)
                if code is not ErrorCode.NONE:
                    failed.add(topic.name)
        services.replicas.topic_metrics.share_acknowledgements.count(counted, failed)
