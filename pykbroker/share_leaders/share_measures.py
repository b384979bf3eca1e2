"""The numbers that a broker keeps of its leaders of share partitions and of the fetches of share groups.

Responsible for keeping these numbers, apart from names (share_metrics.py). Not responsible for numbers that the state
has already, such as records in flight, nor for counts by topic (replica/broker_topic_metrics.py).

The numbers of a share partition begin and end with its leader, and those of a group with its last leader. So they are
bounded as the leaders are. In Apache Kafka they stay until the broker stops.

Invariant: the costs are per request, per batch in flight and per range, and never per record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.metrics.recent import RecentHistogram
from pykbroker.share_partitions.delivery_states import RENEW

#: the types of acknowledgements, the gap included
_TYPES: Final = RENEW + 1


class SharePartitionMeasures:
    """The numbers of one leader of a share partition."""

    __slots__ = ("batch_sizes", "lock_timeouts")

    def __init__(self, now_s: Callable[[], float]) -> None:
        #: records whose locks have ended at their time
        self.lock_timeouts = 0
        #: the number of offsets of each batch that came into flight, by a fetch or by the load
        self.batch_sizes = RecentHistogram(now_s)


class ShareGroupMeasures:
    """The numbers of one group that has leaders on this broker."""

    __slots__ = ("acquire_times", "fetch_ratios", "partitions")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.partitions: dict[SharePartitionKey, SharePartitionMeasures] = {}
        #: for each fetch that was answered, how many percent of its partitions could be acquired
        self.fetch_ratios = RecentHistogram(now_s)
        #: milliseconds that a fetch waited until a share partition could be acquired
        self.acquire_times = RecentHistogram(now_s)


class ShareMeasures:
    """The numbers of one broker. `now_s` is the clock of its loop."""

    __slots__ = ("_acknowledged", "_groups", "expired_fetches", "loads", "now_s")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        #: milliseconds of each load of a state, also of those that failed
        self.loads = RecentHistogram(now_s)
        #: fetches that were answered because their time was over
        self.expired_fetches = 0
        self._acknowledged = [0] * _TYPES
        self._groups: dict[str, ShareGroupMeasures] = {}

    # -- leaders ------------------------------------------------------------------------------------------------------

    def begin(self, key: SharePartitionKey) -> SharePartitionMeasures:
        """Begin the numbers of a share partition, because it gets a leader."""
        group = self._groups.get(key.group_id)
        if group is None:
            group = self._groups[key.group_id] = ShareGroupMeasures(self.now_s)
        made = group.partitions[key] = SharePartitionMeasures(self.now_s)
        return made

    def end(self, key: SharePartitionKey) -> None:
        """Drop the numbers of a share partition, because its leader has ended."""
        group = self._groups[key.group_id]
        del group.partitions[key]
        if not group.partitions:
            del self._groups[key.group_id]

    def partition(self, key: SharePartitionKey) -> SharePartitionMeasures:
        """Return the numbers of a share partition that has a leader."""
        return self._groups[key.group_id].partitions[key]

    def groups(self) -> Iterator[tuple[str, ShareGroupMeasures]]:
        """Yield the id and the numbers of each group that has leaders. Groups may come and go meanwhile."""
        yield from list(self._groups.items())

    # -- events -------------------------------------------------------------------------------------------------------

    def loaded(self, began_s: float) -> None:
        """Record a load that has ended."""
        self.loads.record(self._ms_since(began_s))

    def acknowledged(self, counts: Iterable[int]) -> None:
        """Count acknowledged records. `counts` has a number for each type, in their order."""
        self._acknowledged = [before + more for before, more in zip(self._acknowledged, counts, strict=True)]

    def acknowledgements(self, kind: int) -> int:
        """Return the number of records that were acknowledged with this type."""
        return self._acknowledged[kind]

    def acquirable(self, group: str, since_s: float) -> None:
        """Record how long a fetch has waited until some share partition of its group could be acquired."""
        found = self._groups.get(group)
        if found is not None:
            found.acquire_times.record(self._ms_since(since_s))

    def fetched(self, group: str, acquirable: int, asked: int) -> None:
        """Record how many of the partitions of an answered fetch could be acquired."""
        found = self._groups.get(group)
        if found is not None:
            found.fetch_ratios.record(100 * acquirable // asked)

    def _ms_since(self, began_s: float) -> float:
        return max(0.0, self.now_s() - began_s) * 1000
