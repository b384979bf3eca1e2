"""The services that all partitions of a node share: the parts that they call.

table.py makes them once. This module only lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pykbroker.replica.follower import FollowerServices
from pykbroker.replica.isr_updates import IsrUpdates
from pykbroker.replica.leader import Judgement
from pykbroker_log.log_config import StorageError
from pykbroker_log.partition_log import PartitionLog

if TYPE_CHECKING:
    from pykbroker.replica.broker_topic_metrics import BrokerTopicMetrics
    from pykbroker.replica.replica_traffic import PartitionTraffic
    from pykbroker.storage.flush_rounds import Then
    from pykbroker.storage.space import DiskSpace


#: the type of the partition (partition.py) that uses these services
P = TypeVar("P")


@dataclass(slots=True, frozen=True)
class PartitionServices(Generic[P]):
    """The services that all partitions of a node share."""

    node_id: int
    now_ms: Callable[[], int]
    #: the time of the loop, which never jumps
    steady_ms: Callable[[], int]
    #: makes all records of a log durable, and then calls back
    want_flush: Callable[[PartitionLog, Then], None]
    #: called with the number of bytes that became readable up to the log end, up to the high watermark and up to the
    #: last stable offset
    changed: Callable[[P, int, int, int], None]
    #: called with True when this node leads the partition in a new epoch, with False when it no longer leads it
    leadership: Callable[[P, bool], None]
    directory_failed: Callable[[StorageError], None]
    space: DiskSpace
    #: the rules for followers, and the changes of the ISR
    judgement: Judgement
    isr_updates: IsrUpdates
    topic_metrics: BrokerTopicMetrics
    follower: FollowerServices
    #: called when this node follows the partition in a new leader epoch
    following: Callable[[P], None]
    #: makes the counters of one replica; None if this node does not report its load
    new_traffic: Callable[[], PartitionTraffic] | None = None
