"""The counters of records and bytes of all topics on this broker, and of the requests of share groups by topic: Apache
Kafka's BrokerTopicMetrics.

Not responsible for the counts of one replica (replica_traffic.py), nor for the gauges of replicas (replica_metrics.py).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Counter, Metrics

_NAME: Final = "kafka.server:type=BrokerTopicMetrics,name="
_SHARE_REQUESTS: Final = ("ShareFetch", "ShareAcknowledgement")


class BrokerTopicMetrics:
    """The counters. The code that appends or reads records increments them."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "messages_in",
        "replication_bytes_in",
        "replication_bytes_out",
        "share_acknowledgements",
        "share_fetches",
    )

    def __init__(self, metrics: Metrics) -> None:
        #: records and bytes that this broker appended as leader
        self.messages_in = metrics.counter(_NAME + "MessagesInPerSec")
        self.bytes_in = metrics.counter(_NAME + "BytesInPerSec")
        #: bytes that consumers read
        self.bytes_out = metrics.counter(_NAME + "BytesOutPerSec")
        #: bytes that this broker appended as follower, and bytes that followers read
        self.replication_bytes_in = metrics.counter(_NAME + "ReplicationBytesInPerSec")
        self.replication_bytes_out = metrics.counter(_NAME + "ReplicationBytesOutPerSec")
        #: ShareFetch, and acknowledgements in ShareFetch or ShareAcknowledge
        self.share_fetches, self.share_acknowledgements = (TopicRequests(metrics, kind) for kind in _SHARE_REQUESTS)

    def forget(self, topic: str) -> None:
        """Drop the counters of a topic that is gone, or of which this broker has no replica any longer."""
        self.share_fetches.forget(topic)
        self.share_acknowledgements.forget(topic)


class TopicRequests:
    """The requests of one kind: those that named a topic, and those that failed for one of its partitions. A request of
    several topics counts for each of them, and as often for the broker. A counter of a topic begins with its first
    request, as in Apache Kafka."""

    __slots__ = ("_failed", "_metrics", "_topics", "_total")

    def __init__(self, metrics: Metrics, kind: str) -> None:
        self._metrics = metrics
        self._total = metrics.counter(f"{_NAME}Total{kind}RequestsPerSec")
        self._failed = metrics.counter(f"{_NAME}Failed{kind}RequestsPerSec")
        #: by the counter of the broker and the topic
        self._topics: dict[tuple[Counter, str], Counter] = {}

    def count(self, topics: Collection[str], failed: Collection[str]) -> None:
        """Count a request. `topics` are all its topics, and `failed` those with an error of a partition."""
        for counter, named in ((self._total, topics), (self._failed, failed)):
            counter.value += len(named)
            for topic in named:
                key = (counter, topic)
                found = self._topics.get(key)
                if found is None:
                    found = self._topics[key] = self._metrics.counter(f"{counter.name},topic={topic}")
                found.value += 1

    def forget(self, topic: str) -> None:
        """Drop the counters of a topic."""
        for counter in (self._total, self._failed):
            found = self._topics.pop((counter, topic), None)
            if found is not None:
                self._metrics.remove(found.name)
