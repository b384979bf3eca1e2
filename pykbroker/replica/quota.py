"""The rate at which this node may replicate throttled replicas, as their leader and as their follower; pure.

Each of the two quotas is Kafka's ReplicationQuotaManager. Responsible for the set of throttled replicas (the topic
configurations `leader.` and `follower.replication.throttled.replicas`), for the rate over the last
`replication.quota.window.num` windows, and for comparing it with the broker's limit. Not responsible for leaving
replicas out: fetches/follower_reader.py and fetching/fetcher.py leave out only replicas that are not in sync, so that a
throttle never shrinks an ISR.

All bytes of a throttled replica count, even if the replica is in sync. The limit is checked only before a fetch, so one
fetch may exceed it; the rate then falls with time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pykbroker.config.key_table import TOPIC_KEYS
from pykbroker_log.log_config import MAX_INT64

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker.metrics.registry import Metrics

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
_LEADER_REPLICAS = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


class _Sample:
    """The count of one window."""

    __slots__ = ("count", "first", "last")

    def __init__(self, now: float) -> None:
        self.first = self.last = now
        self.count = 0


class WindowedRate:
    """A rate over the last windows, like Apache Kafka's SimpleRate. `time` returns seconds of a clock that never goes
    back."""

    __slots__ = ("_samples", "_span_seconds", "_time", "_window_seconds")

    def __init__(self, time: Callable[[], float], windows: int, window_seconds: int) -> None:
        self._time = time
        self._window_seconds = window_seconds
        self._span_seconds = windows * window_seconds
        self._samples: deque[_Sample] = deque()

    def record(self, count: int) -> None:
        now = self._time()
        samples = self._samples
        if not samples or now - samples[-1].first >= self._window_seconds:
            self._forget(now)
            samples.append(_Sample(now))
        samples[-1].count += count
        samples[-1].last = now

    def per_second(self) -> float:
        now = self._time()
        self._forget(now)
        samples = self._samples
        if not samples:
            return 0.0
        # The first window counts with its full length. Otherwise the rate would be infinite at its beginning.
        return sum(sample.count for sample in samples) / max(now - samples[0].first, self._window_seconds)

    def _forget(self, now: float) -> None:
        samples = self._samples
        while samples and now - samples[0].last >= self._span_seconds:
            samples.popleft()


class ReplicationQuota:
    """The quota for the replicas that this node leads, or for those that it follows."""

    __slots__ = ("_limit", "_rate", "_throttled")

    def __init__(self, rate: WindowedRate, limit: Callable[[], int]) -> None:
        """`limit` returns bytes per second."""
        self._rate = rate
        self._limit = limit
        # topic -> its throttled partitions, or None if all are throttled.
        self._throttled: dict[str, frozenset[int] | None] = {}

    @property
    def is_used(self) -> bool:
        """True if any replica is throttled."""
        return bool(self._throttled)

    def throttle(self, topic: str, partitions: frozenset[int] | None) -> None:
        """Throttle exactly these partitions of a topic; None means all."""
        if partitions is None or partitions:
            self._throttled[topic] = partitions
        else:
            self._throttled.pop(topic, None)

    def is_throttled(self, topic: str, index: int) -> bool:
        if topic not in self._throttled:
            return False
        partitions = self._throttled[topic]
        return partitions is None or index in partitions

    def record(self, byte_count: int) -> None:
        """Count bytes that were sent or fetched for throttled replicas."""
        self._rate.record(byte_count)

    def is_exceeded(self) -> bool:
        return self._rate.per_second() > self._limit()

    def byte_rate(self) -> float:
        return self._rate.per_second()


class ReplicationQuotas:
    """The quotas of a node for both sides."""

    def __init__(
        self,
        config: Config,
        node_id: int,
        time: Callable[[], float],
        metrics: Metrics,
        rate: Callable[[str], int] = lambda key: MAX_INT64,
    ) -> None:
        """`rate` returns the present value of LEADER_RATE or FOLLOWER_RATE."""
        self._node_id = node_id

        def quota(key: str, name: str) -> ReplicationQuota:
            windows = config.int("replication.quota.window.num")
            window_seconds = config.int("replication.quota.window.size.seconds")
            made = ReplicationQuota(WindowedRate(time, windows, window_seconds), lambda: rate(key))
            metrics.gauge(f"kafka.server:type={name},name=byte-rate", made.byte_rate)
            return made

        self.leader = quota(LEADER_RATE, "LeaderReplication")
        self.follower = quota(FOLLOWER_RATE, "FollowerReplication")

    def configure(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Take the configuration of a topic, as in the metadata."""
        self.leader.throttle(topic, self._partitions(_LEADER_REPLICAS, overrides))
        self.follower.throttle(topic, self._partitions(_FOLLOWER_REPLICAS, overrides))

    def _partitions(self, key: str, overrides: Mapping[str, str]) -> frozenset[int] | None:
        text = overrides.get(key)
        if text is None:
            return frozenset()
        entries = TOPIC_KEYS[key].parse(text)
        assert isinstance(entries, tuple)
        if entries == ("*",):
            return None
        pairs = (entry.split(":") for entry in entries if entry)
        return frozenset(int(partition) for partition, broker in pairs if int(broker) == self._node_id)
