"""The cluster as clients of one listener see it: nodes with that listener, partitions with leaders that have it.

Shared by Metadata, DescribeCluster and DescribeTopicPartitions. Pure: an image and a listener name in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pykbroker.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage
from pykbroker_wire.errors import ErrorCode

NO_LEADER_ID = -1


class Node(NamedTuple):
    broker: BrokerImage
    endpoint: Endpoint


def nodes(image: MetadataImage, listener: str, *, fenced: bool = False) -> Iterator[Node]:
    """Brokers that can be reached over the listener; fenced ones only when asked for."""
    for broker in image.brokers.values():
        endpoint = broker.endpoints.get(listener)
        if endpoint is not None and (fenced or not broker.fenced):
            yield Node(broker, endpoint)


class ClusterView:
    """Answers per partition; made once per request, since 1,000 partitions ask the same of a few brokers."""

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self._image = image
        self._reachable = {broker_id for broker_id, b in image.brokers.items() if listener in b.endpoints}
        self._alive = {broker_id for broker_id in self._reachable if not image.brokers[broker_id].fenced}

    def leader(self, partition: PartitionImage) -> int:
        """The leader, or -1 when clients of this listener cannot talk to it."""
        return partition.leader if partition.leader in self._reachable else NO_LEADER_ID

    def leader_problem(self, partition: PartitionImage, listener_missing: ErrorCode) -> ErrorCode | None:
        if partition.leader in self._reachable:
            return None
        return listener_missing if partition.leader in self._image.brokers else ErrorCode.LEADER_NOT_AVAILABLE

    def alive(self, replicas: Iterable[int]) -> list[int]:
        return [replica for replica in replicas if replica in self._alive]

    def offline(self, partition: PartitionImage) -> list[int]:
        """Replicas that are dead, not on this listener, or in a log directory that failed."""
        found = []
        brokers = self._image.brokers
        for replica, directory in zip(partition.replicas, partition.directories, strict=True):
            if replica not in self._alive or not brokers[replica].has_online_directory(directory):
                found.append(replica)
        return found
