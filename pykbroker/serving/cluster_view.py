"""The cluster as clients of one listener see it: nodes with that listener, partitions with leaders that have it.

Shared by Metadata, DescribeCluster and DescribeTopicPartitions. Pure: an image and a listener name in, values out; what
was made of them once is kept for the next request.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from pykbroker.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from pykbroker.net.promise import Promise
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.metadata import MetadataResponsePartition

R = TypeVar("R")

NO_LEADER_ID = -1

#: Of so many partitions a view keeps what it answered: some 100 bytes each.
KEPT_PARTITIONS = 20_000
#: The processes on one machine that hear of a death by their sockets have read it by then: a client asks within 1 ms.
UNREAD_SECONDS = 0.002


class ListedBroker(NamedTuple):
    broker: BrokerImage
    endpoint: Endpoint


def nodes(image: MetadataImage, listener: str, *, fenced: bool = False) -> Iterator[ListedBroker]:
    """Brokers that can be reached over the listener, by id; fenced ones only when asked for."""
    for _, broker in sorted(image.brokers.items()):
        endpoint = broker.endpoints.get(listener)
        if endpoint is not None and (fenced or not broker.fenced):
            yield ListedBroker(broker, endpoint)


class ClusterView:
    """Answers per partition, for as long as the brokers stay what they are: images share what did not change."""

    def __init__(self, brokers: Mapping[int, BrokerImage], listener: str, gone: frozenset[int] = frozenset()) -> None:
        """`gone`: brokers whose processes are, though the metadata does not say so yet."""
        self.brokers = brokers
        self.gone = gone
        self._reachable = {broker_id for broker_id, b in brokers.items() if listener in b.endpoints}
        self._alive = {broker_id for broker_id in self._reachable if not brokers[broker_id].fenced}
        # (topic id, kind) -> the topic as it was then, and its partitions.
        self._kept: dict[tuple[bytes, int], tuple[TopicImage, list[MetadataResponsePartition]]] = {}
        self._kept_partitions = 0
        self._lists: dict[tuple[int, ...], list[int]] = {}

    def partitions(
        self, topic: TopicImage, kind: int, make: Callable[[int, PartitionImage], MetadataResponsePartition]
    ) -> list[MetadataResponsePartition]:
        """All of a topic, not to be changed by the caller. A hundred consumers of a thousand partitions ask the same
        whenever something happens. `kind`: answers of one kind are the same in all versions that have it."""
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
        """The leader, or -1 when clients of this listener cannot talk to it."""
        leader = partition.leader
        return leader if leader in self._reachable and leader not in self.gone else NO_LEADER_ID

    def leader_problem(self, partition: PartitionImage, listener_missing: ErrorCode) -> ErrorCode | None:
        if partition.leader in self.gone:
            return ErrorCode.LEADER_NOT_AVAILABLE
        if partition.leader in self._reachable:
            return None
        return listener_missing if partition.leader in self.brokers else ErrorCode.LEADER_NOT_AVAILABLE

    def listed(self, replicas: tuple[int, ...]) -> list[int]:
        """One list for all partitions that have the same, not to be changed by the caller: they are kept, and many."""
        found = self._lists.get(replicas)
        if found is None:
            if len(self._lists) >= KEPT_PARTITIONS:
                self._lists.clear()
            found = self._lists[replicas] = list(replicas)
        return found

    def alive(self, replicas: Iterable[int]) -> list[int]:
        return [replica for replica in replicas if replica in self._alive]

    def offline(self, partition: PartitionImage) -> list[int]:
        """Replicas that are dead, not on this listener, or in a log directory that failed; as `listed`."""
        brokers = self.brokers
        found = tuple(
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=True)
            if replica not in self._alive or not brokers[replica].has_online_directory(directory)
        )
        return self.listed(found)


class ClusterViews:
    """A node's views, one for each of its listeners; and which brokers are gone, until an image says something new of
    them (a publisher)."""

    __slots__ = ("_call_later", "_doubts", "_gone", "_has_others", "_views", "_waiting")

    def __init__(self, call_later: Callable[[float, Callable[[], None]], object] | None = None) -> None:
        """`call_later(seconds, callback)`: given where it is watched which brokers are gone."""
        self._views: dict[str, ClusterView] = {}
        self._gone: frozenset[int] = frozenset()
        self._doubts: set[Hashable] = set()
        self._waiting: list[Callable[[], None]] = []
        self._call_later = call_later
        self._has_others = False

    def when_settled(self, answer: Callable[[], R]) -> R | Promise:
        """`answer()`; later while it is in doubt whether a broker is gone, and after UNREAD_SECONDS where a broker may
        have died so lately that its end has not been read. A client that hears a dead leader's name right after its
        death may ask again only after a second (librdkafka)."""
        wait = self._call_later if self._has_others else None
        if wait is None and not self._doubts:
            return answer()
        promise = Promise()

        def go_on() -> None:
            if promise.done():
                return
            try:
                promise.set_result(answer())
            except Exception as error:  # noqa: BLE001  # the connection answers as it does for any handler
                promise.set_exception(error)

        if wait is None:
            self._waiting.append(go_on)
        else:
            wait(UNREAD_SECONDS, lambda: self._waiting.append(go_on) if self._doubts else go_on())
        return promise

    def doubt(self, peer: Hashable) -> None:
        """It is not known whether this peer is gone, until `settle`."""
        self._doubts.add(peer)

    def settle(self, peer: Hashable) -> None:
        self._doubts.discard(peer)
        if not self._doubts:
            waiting, self._waiting = self._waiting, []
            for go_on in waiting:
                go_on()

    def lose(self, broker_ids: Iterable[int]) -> None:
        """These brokers refuse connections: clients are told of no partition that they lead it."""
        self._gone |= frozenset(broker_ids)

    def find_again(self, broker_ids: Iterable[int]) -> None:
        self._gone -= frozenset(broker_ids)

    def publish(self, delta: object, old: MetadataImage, new: MetadataImage) -> None:
        """Publisher of the loader: the controller may have decided. Other changes say nothing of these brokers: a new
        active controller writes before it fences."""
        self._has_others = len(new.brokers) > 1
        if self._gone:
            self._gone = frozenset(each for each in self._gone if new.brokers.get(each) is old.brokers.get(each))

    def of(self, image: MetadataImage, listener: str) -> ClusterView:
        view = self._views.get(listener)
        if view is None or view.brokers is not image.brokers or view.gone is not self._gone:
            view = self._views[listener] = ClusterView(image.brokers, listener, self._gone)
        return view
