"""The numbers that the machine of one coordinator keeps: counted events, and the times of its work.

Responsible for keeping these numbers, apart from names (coordinator_metrics.py). Not responsible for the choice of
events: an operation names them in its Result (`Result.count`), and they count once its records are written.

Invariant: the costs are per operation, per batch and per load, and never per record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from pykbroker.metrics.recent import KAFKAS_WINDOWS, RecentTimes, SampleWindows, TimeHistogram


class CountedEvent(Enum):
    """The events that coordinators count. A value is the beginning of the metric's name in Apache Kafka."""

    OFFSET_COMMIT = "offset-commit"
    OFFSET_EXPIRATION = "offset-expiration"
    OFFSET_DELETION = "offset-deletion"
    CLASSIC_REBALANCE = "group-completed-rebalance"
    CONSUMER_REBALANCE = "consumer-group-rebalance"
    SHARE_REBALANCE = "share-group-rebalance"
    SHARE_STATE_WRITE = "write"


class CoordinatorMeasures:
    """The numbers of one machine (machine.py). They outlive the shards."""

    __slots__ = ("counts", "flushes", "lingers", "loads", "now_s", "processing", "purgatory", "windows")

    def __init__(self, now_s: Callable[[], float], windows: SampleWindows = KAFKAS_WINDOWS) -> None:
        self.now_s = now_s
        #: what rates, averages and maxima cover
        self.windows = windows
        self.counts: dict[CountedEvent, int] = dict.fromkeys(CountedEvent, 0)
        #: from an election until the shard was loaded
        self.loads = RecentTimes(now_s, windows)
        #: the operations of requests and timers
        self.processing = TimeHistogram(now_s)
        #: from the first collected result to the append of its batch
        self.lingers = TimeHistogram(now_s)
        #: the appends of batches to the log
        self.flushes = TimeHistogram(now_s)
        #: answers that waited for the commit of their records
        self.purgatory = TimeHistogram(now_s)

    def count(self, events: Mapping[CountedEvent, int]) -> None:
        """Add what one operation counted."""
        for event, number in events.items():
            self.counts[event] += number

    def ms_since(self, began_s: float) -> float:
        """Return the milliseconds since that reading of the clock."""
        return (self.now_s() - began_s) * 1000
