"""The cluster as clients of one listener see it: the nodes that have that listener, and the partitions. A leader
without the listener is not shown.

Used by Metadata, DescribeCluster and DescribeTopicPartitions. Pure: from an image and a listener name it makes values,
and keeps them for the next request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from pykbroker.liveness.dead_brokers import DeadBrokers
from pykbroker.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from pykbroker.net.promise import Promise
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.metadata import MetadataResponsePartition

R = TypeVar("R")

NO_LEADER_ID = -1

#: A view keeps the answers for this many partitions, about 100 bytes each.
KEPT_PARTITIONS = 20_000


class ListedBroker(NamedTuple):
    broker: BrokerImage
    endpoint: Endpoint


def nodes(image: MetadataImage, listener: str, *, fenced: bool = False) -> Iterator[ListedBroker]:
    """Yield the brokers that have the listener, ordered by id. Fenced brokers are included only if `fenced`."""
    for _, broker in sorted(image.brokers.items()):
        endpoint = broker.endpoints.get(listener)
        if endpoint is not None and (fenced or not broker.fenced):
            yield ListedBroker(broker, endpoint)


class ClusterView:
    """The answers about partitions, for one listener. A view is used until the brokers change: images share their map
    of brokers as long as it is the same."""

    def __init__(self, brokers: Mapping[int, BrokerImage], listener: str, gone: frozenset[int] = frozenset()) -> None:
        """`gone`: brokers whose processes have ended, although the metadata does not show that yet."""
        self.brokers = brokers
        self.gone = gone
        self._reachable = {broker_id for broker_id, b in brokers.items() if listener in b.endpoints}
        self._alive = {broker_id for broker_id in self._reachable if not brokers[broker_id].fenced}
        # (topic id, kind) -> the topic for which the answers were made, and the answers.
        self._kept: dict[tuple[bytes, int], tuple[TopicImage, list[MetadataResponsePartition]]] = {}
        self._kept_partitions = 0
        self._lists: dict[tuple[int, ...], list[int]] = {}

    def partitions(
        self, topic: TopicImage, kind: int, make: Callable[[int, PartitionImage], MetadataResponsePartition]
    ) -> list[MetadataResponsePartition]:
        """Return the answers for all partitions of a topic. The caller must not change them. They are kept because many
        consumers ask for the same partitions after each change. `kind`: all versions with the same kind have the same
        answers."""
        key = topic.id, kind
        kept = self._kept.get(key)
        if kept is not None and kept[0] is topic:
            return kept[1]
        made = [make(index, partition) for index, partition in topic.partitions.items()]
        self._kept_partitions += len(made) - (len(kept[1]) if kept is not None else 0)
        self._kept[key] = topic, made
        if self._kept_partitions > KEPT_PARTITIONS:
            self._kept.clear()
            self._kept_partitions = 0
        return made

    def leader(self, partition: PartitionImage) -> int:
        """Return the leader, or -1 if clients of this listener cannot reach it."""
        leader = partition.leader
        return leader if leader in self._reachable and leader not in self.gone else NO_LEADER_ID

    def leader_problem(self, partition: PartitionImage, listener_missing: ErrorCode) -> ErrorCode | None:
        if partition.leader in self.gone:
            return ErrorCode.LEADER_NOT_AVAILABLE
        if partition.leader in self._reachable:
            return None
        return listener_missing if partition.leader in self.brokers else ErrorCode.LEADER_NOT_AVAILABLE

    def listed(self, replicas: tuple[int, ...]) -> list[int]:
        """Return one list for all partitions with the same replicas, to save memory. The caller must not change it."""
        found = self._lists.get(replicas)
        if found is None:
            if len(self._lists) >= KEPT_PARTITIONS:
                self._lists.clear()
            found = self._lists[replicas] = list(replicas)
        return found

    def alive(self, replicas: Iterable[int]) -> list[int]:
        return [replica for replica in replicas if replica in self._alive]

    def offline(self, partition: PartitionImage) -> list[int]:
        """Return the replicas whose broker is fenced or not on this listener, or whose log directory has failed. The
        list is shared, like the lists of `listed`."""
        brokers = self.brokers
        found = tuple(
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=True)
            if replica not in self._alive or not brokers[replica].has_online_directory(directory)
        )
        return self.listed(found)


class ClusterViews:
    """The views of a node, one for each of its listeners."""

    __slots__ = ("_gone", "_views")

    def __init__(self, gone: DeadBrokers | None = None) -> None:
        """A partition whose leader is in `gone` has no leader in the answers to clients."""
        self._views: dict[str, ClusterView] = {}
        self._gone = gone if gone is not None else DeadBrokers()

    def when_settled(self, answer: Callable[[], R]) -> R | Promise:
        """Return `answer()`, or a Promise of it as long as it is unknown if a broker is gone."""
        return self._gone.when_settled(answer)

    def of(self, image: MetadataImage, listener: str) -> ClusterView:
        view, gone = self._views.get(listener), self._gone.ids
        if view is None or view.brokers is not image.brokers or view.gone is not gone:
            view = self._views[listener] = ClusterView(image.brokers, listener, gone)
        return view
