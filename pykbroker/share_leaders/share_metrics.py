"""The metrics of share sessions, of leaders of share partitions, and of share fetches that wait, under Apache Kafka's
names.

Responsible for names and tags. Not responsible for the numbers (share_measures.py), nor for requests by topic
(replica/broker_topic_metrics.py). All names are those of Apache Kafka 4.3.

Two names of Apache Kafka do not exist here, `FetchLockTimeMs` and `FetchLockRatio`: a fetch reads and acquires in one
turn of the loop, so it locks no share partition against other fetches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from pykbroker.metrics.recent import RecentHistogram
from pykbroker.metrics.registry import tag
from pykbroker.share_partitions.delivery_states import ACCEPT, REJECT, RELEASE, RENEW

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics, Numbers
    from pykbroker.share_leaders.leader_table import ShareLeaders

_GROUPS: Final = "kafka.server:type=ShareGroupMetrics,name="
_PARTITIONS: Final = "kafka.server:type=SharePartitionMetrics,name="
_SESSIONS: Final = "kafka.server:type=ShareSessionCache,name="
_FETCHES: Final = "kafka.server:type=DelayedShareFetchMetrics,name="
_PURGATORY: Final = "kafka.server:type=DelayedOperationPurgatory,name={},delayedOperation=ShareFetch"
_TYPES: Final = {ACCEPT: "Accept", RELEASE: "Release", REJECT: "Reject", RENEW: "Renew"}


def register(metrics: Metrics, leaders: ShareLeaders, waiting: Callable[[], int]) -> None:
    """Register the metrics of a broker. `waiting` returns the number of share fetches that wait."""
    sessions, measures = leaders.sessions, leaders.measures
    metrics.gauge(_SESSIONS + "ShareSessionsCount", lambda: len(sessions))
    metrics.gauge(_SESSIONS + "SharePartitionsCount", lambda: sessions.partition_count)
    metrics.gauge(_SESSIONS + "ShareSessionEvictionsPerSec", lambda: sessions.evicted)
    metrics.gauge(_FETCHES + "ExpiresPerSec", lambda: measures.expired_fetches)
    for name in ("PurgatorySize", "NumDelayedOperations"):
        metrics.gauge(_PURGATORY.format(name), waiting)
    for kind, word in _TYPES.items():
        name = f"{_GROUPS}RecordAcknowledgementsPerSec,ackType={word}"
        metrics.gauge(name, partial(measures.acknowledgements, kind))
    count, loads = _count_of(f"{_GROUPS}PartitionLoadTimeMs"), measures.loads
    metrics.gauge(count, lambda: loads.count, counts=True)
    metrics.family(lambda: _quantiles(f"{_GROUPS}PartitionLoadTimeMs", "", loads))
    metrics.family(lambda: _of_groups(leaders))
    metrics.family(lambda: _of_partitions(leaders))


def _of_groups(leaders: ShareLeaders) -> Numbers:
    for group, numbers in leaders.measures.groups():
        tags = f",group={tag(group)}"
        yield from _histogram(f"{_GROUPS}RequestTopicPartitionsFetchRatio", tags, numbers.fetch_ratios)
        yield from _histogram(f"{_GROUPS}TopicPartitionsAcquireTimeMs", tags, numbers.acquire_times)


def _of_partitions(leaders: ShareLeaders) -> Numbers:
    for leader in list(leaders):
        if leaders.find(*leader.key) is not leader:
            # It has left while the caller paused.
            continue
        partition, machine = leader.partition, leader.machine
        tags = f",group={tag(leader.key.group_id)},topic={partition.topic},partition={partition.index}"
        numbers = leaders.measures.partition(leader.key)
        yield f"{_PARTITIONS}InFlightMessageCount{tags}", machine.in_flight_count
        yield f"{_PARTITIONS}InFlightBatchCount{tags}", machine.batch_count
        yield f"{_PARTITIONS}AcquisitionLockTimeoutPerSec{tags}", numbers.lock_timeouts
        yield from _histogram(f"{_PARTITIONS}InFlightBatchMessageCount", tags, numbers.batch_sizes)


def _histogram(name: str, tags: str, histogram: RecentHistogram) -> Numbers:
    """Return the numbers of a histogram that Prometheus gets from Apache Kafka."""
    yield _count_of(name) + tags, histogram.count
    yield from _quantiles(name, tags, histogram)


def _quantiles(name: str, tags: str, histogram: RecentHistogram) -> Numbers:
    prefix = f"{name}{tags},quantile="
    for quantile, value in histogram.quantiles():
        yield prefix + quantile, value


def _count_of(name: str) -> str:
    return f"{name}-count"
