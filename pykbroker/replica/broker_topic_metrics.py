"""The counters of records and bytes of all topics on this broker, Apache Kafka's BrokerTopicMetrics.

Not responsible for the counts of one replica (replica_traffic.py), nor for the gauges of replicas (replica_metrics.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics

_NAME: Final = "kafka.server:type=BrokerTopicMetrics,name="


class BrokerTopicMetrics:
    """The counters. The code that appends or reads records increments them."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "replication_bytes_in", "replication_bytes_out")

    def __init__(self, metrics: Metrics) -> None:
        #: records and bytes that this broker appended as leader
        self.messages_in = metrics.counter(_NAME + "MessagesInPerSec")
        self.bytes_in = metrics.counter(_NAME + "BytesInPerSec")
        #: bytes that consumers read
        self.bytes_out = metrics.counter(_NAME + "BytesOutPerSec")
        #: bytes that this broker appended as follower, and bytes that followers read
        self.replication_bytes_in = metrics.counter(_NAME + "ReplicationBytesInPerSec")
        self.replication_bytes_out = metrics.counter(_NAME + "ReplicationBytesOutPerSec")
