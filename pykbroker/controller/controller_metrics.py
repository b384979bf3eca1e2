"""The gauges of Kafka's ControllerMetadataMetrics and QuorumControllerMetrics, computed when they are read.

Each controller has them, active or standby. They describe the metadata that this node has. Not responsible for events
that are counted as they happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pykbroker.metadata.image import NO_LEADER, MetadataImage, PartitionImage

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics

_CONTROLLER = "kafka.controller:type=KafkaController,name="

#: The numbers of BrokerRegistrationState.
_FENCED, _CONTROLLED_SHUTDOWN, _ACTIVE = 10, 20, 30


def register(metrics: Metrics, image: Callable[[], MetadataImage], is_active: Callable[[], bool]) -> None:
    """Register all gauges. `image` returns the newest image of this node. `is_active` returns True if this node is the
    active controller."""
    gauges: dict[str, Callable[[], float]] = {
        "ActiveControllerCount": lambda: int(is_active()),
        "ActiveBrokerCount": lambda: sum(not broker.fenced for broker in image().brokers.values()),
        "FencedBrokerCount": lambda: sum(broker.fenced for broker in image().brokers.values()),
        "ControlledShutdownBrokerCount": lambda: sum(
            broker.in_controlled_shutdown for broker in image().brokers.values()
        ),
        "GlobalTopicCount": lambda: len(image().topics),
        "GlobalPartitionCount": lambda: sum(1 for _ in _partitions(image())),
        "OfflinePartitionsCount": lambda: sum(partition.leader == NO_LEADER for partition in _partitions(image())),
        "PreferredReplicaImbalanceCount": lambda: sum(
            partition.leader != partition.preferred_leader for partition in _partitions(image())
        ),
        "LastAppliedRecordOffset": lambda: image().offset,
    }
    for name, read in gauges.items():
        metrics.gauge(_CONTROLLER + name, read)
    metrics.family(lambda: _of_brokers(image()))


def _of_brokers(image: MetadataImage) -> Iterator[tuple[str, float]]:
    for broker in image.brokers.values():
        state = _FENCED if broker.fenced else _CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else _ACTIVE
        yield f"{_CONTROLLER}BrokerRegistrationState,broker={broker.id}", state


def _partitions(image: MetadataImage) -> Iterator[PartitionImage]:
    for topic in image.topics.by_id.values():
        yield from topic.partitions.values()
