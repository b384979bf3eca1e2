"""The metrics of the three coordinators of a broker, under Apache Kafka's names.

Responsible for names and tags: `group-coordinator-metrics` with the older `GroupMetadataManager`,
`share-coordinator-metrics` and `transaction-coordinator-metrics`. Not responsible for the numbers, which measures.py,
group/group_counts.py and the services keep. All names are those of Apache Kafka 4.3, and `classic-group-count` and
`offset-count` are new in 4.4.

These names of Apache Kafka do not exist here. An operation runs at once and in the loop, so there is no queue of events
(`event-queue-*`), no thread that may be idle and no work in the background (`thread-idle-*`, `background-*`). A batch
has no buffer that is kept (`batch-buffer-cache-*`). Streams groups are not served, so they have no states and no
rebalances.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pykbroker.coordinator.group.group_counts import CountInTurns
from pykbroker.coordinator.measures import CountedEvent
from pykbroker.metadata.topic_names import SHARE_STATE_TOPIC
from pykbroker.metrics.recent import RecentRate, RecentTimes
from pykbroker.runtime.in_turns import in_turns
from pykbroker.runtime.later import Later, and_then, then

if TYPE_CHECKING:
    from pykbroker.coordinator.group.shard import GroupShard
    from pykbroker.coordinator.machine import CoordinatorRuntime
    from pykbroker.coordinator.share.service import ShareCoordinatorService
    from pykbroker.coordinator.transaction.shard import TransactionShard
    from pykbroker.metrics.registry import Metrics, Numbers, Sample

_GROUP: Final = "kafka.server:type=group-coordinator-metrics,name="
_SHARE: Final = "kafka.server:type=share-coordinator-metrics,name="
_TRANSACTION: Final = "kafka.server:type=transaction-coordinator-metrics,name="
_OLD: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="

_OF_GROUPS: Final = (
    CountedEvent.OFFSET_COMMIT,
    CountedEvent.OFFSET_EXPIRATION,
    CountedEvent.OFFSET_DELETION,
    CountedEvent.CLASSIC_REBALANCE,
    CountedEvent.CONSUMER_REBALANCE,
    CountedEvent.SHARE_REBALANCE,
)
_CLASSIC_STATES: Final = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
#: By kind, the states that Apache Kafka has metrics for. No group is ever seen in the state Dead.
_STATES: Final = {
    "classic": _CLASSIC_STATES,
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
    "share": ("Empty", "Stable", "Dead"),
}
_KINDS: Final = ("classic", "consumer", "share", "streams")


class CoordinatorMetrics:
    """Registers the metrics when it is made."""

    def __init__(
        self,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
        groups: CoordinatorRuntime[GroupShard],
        transactions: CoordinatorRuntime[TransactionShard],
        shares: ShareCoordinatorService,
    ) -> None:
        self._metrics = metrics
        self._loop = loop
        self._counting = counting = CountInTurns(loop, lambda: [host.shard for host in groups.hosts() if host.ready])
        for event in _OF_GROUPS:
            _register_event(metrics, groups, _GROUP, event, "count")
        metrics.family(lambda: _of_runtime(groups, _GROUP))
        metrics.family(lambda: _of_groups(counting))
        _register_event(metrics, shares.coordinator, _SHARE, CountedEvent.SHARE_STATE_WRITE, "total")
        metrics.family(lambda: _of_runtime(shares.coordinator, _SHARE))
        metrics.family(lambda: _of_share_states(shares))
        # The only numbers of Apache Kafka's coordinator of transactions.
        metrics.family(lambda: _times(f"{_TRANSACTION}partition-load-time", transactions.measures.loads))
        for coordinator, prefix in ((groups, _GROUP), (shares.coordinator, _SHARE)):
            _register_flush_rate(metrics, coordinator, prefix)

    def samples(self) -> Later[list[Sample]]:
        """Return all samples of the registry, once the groups are counted. Many are read in turns."""
        found: list[Sample] = []
        counted = self._counting.count()
        read = and_then(counted, lambda _: in_turns(self._loop, self._metrics.read_in_steps(found)))
        return then(read, lambda _: found)


def _register_event(
    metrics: Metrics, coordinator: CoordinatorRuntime[Any], prefix: str, event: CountedEvent, total: str
) -> None:
    counts = coordinator.measures.counts

    def read() -> int:
        return counts[event]

    metrics.gauge(f"{prefix}{event.value}-{total}", read, counts=True)
    metrics.gauge(f"{prefix}{event.value}-rate", _rate(coordinator, read))


def _register_flush_rate(metrics: Metrics, coordinator: CoordinatorRuntime[Any], prefix: str) -> None:
    flushes = coordinator.measures.flushes
    metrics.gauge(f"{prefix}batch-flush-rate", _rate(coordinator, lambda: flushes.total))


def _rate(coordinator: CoordinatorRuntime[Any], read: Callable[[], int]) -> RecentRate:
    measures = coordinator.measures
    return RecentRate(read, measures.now_s, windows=measures.windows)


def _of_runtime(coordinator: CoordinatorRuntime[Any], prefix: str) -> Numbers:
    """Return what every new coordinator of Apache Kafka has (CoordinatorRuntimeMetrics)."""
    states = {"loading": 0, "active": 0, "failed": 0}
    for host in coordinator.hosts():
        states["active" if host.ready else "loading" if host.load.is_under_way else "failed"] += 1
    for state, number in states.items():
        yield f"{prefix}num-partitions,state={state}", number
    measures = coordinator.measures
    yield from _times(f"{prefix}partition-load-time", measures.loads)
    for name, histogram in (
        ("event-processing-time-ms", measures.processing),
        ("event-purgatory-time-ms", measures.purgatory),
        ("batch-linger-time-ms", measures.lingers),
        ("batch-flush-time-ms", measures.flushes),
    ):
        for part, ms in histogram.numbers().items():
            yield f"{prefix}{name}-{part}", ms


def _times(name: str, times: RecentTimes) -> Numbers:
    """Return an average and a maximum. While nothing was recorded lately, Apache Kafka shows that they are not a
    number, and here they are left out."""
    found = times.average_and_most()
    if found is not None:
        yield f"{name}-avg", found[0]
        yield f"{name}-max", found[1]


def _of_groups(counting: CountInTurns) -> Numbers:
    counts = counting.latest
    for kind in _KINDS:
        yield f"{_GROUP}group-count,protocol={kind}", counts.of_kind(kind)
    for kind, states in _STATES.items():
        for state in states:
            yield f"{_GROUP}{kind}-group-count,state={state}", counts.groups[kind, state]
    yield f"{_GROUP}offset-count", counts.offsets
    yield f"{_OLD}NumOffsets", counts.offsets
    yield f"{_OLD}NumGroups", counts.of_kind("classic")
    for state in _CLASSIC_STATES:
        yield f"{_OLD}NumGroups{state}", counts.groups["classic", state]


def _of_share_states(shares: ShareCoordinatorService) -> Numbers:
    yield from _times(f"{_SHARE}write-latency", shares.write_times)
    for index, offset in list(shares.pruned_before.items()):
        yield f"{_SHARE}last-pruned-offset,topic={SHARE_STATE_TOPIC},partition={index}", offset
