"""The leaders of partitions over time, for the story.

Responsible for the first moment at which a broker hears of a new leader. Times are virtual seconds, so wrong clocks of
brokers change nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from pykbroker_worlds.history.events import Place
from pykbroker_worlds.simulated.sim_broker import SimBroker
from pykbroker_worlds.simulated.world import SimWorld


@dataclass(frozen=True, slots=True)
class NewLeader:
    """A partition has got another leader, or none."""

    seconds: float
    place: Place
    text: str


class Leaders:
    """A publisher of the metadata of every node. `changes` are in order; the first leader of a partition is none."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        """`seconds` returns virtual time."""
        self.changes: list[NewLeader] = []
        self._seconds = seconds
        self._known: dict[Place, PartitionImage] = {}
        self._topics: dict[str, bytes] = {}

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        for topic in delta.topics.changed.values():
            if self._topics.setdefault(topic.name, topic.id) != topic.id:
                self._forget(topic.name, topic.id)
            for index, partition in topic.partitions.items():
                self._hear((topic.name, index), partition)

    def _forget(self, topic: str, topic_id: bytes) -> None:
        """Begin anew with a topic that was deleted and made again."""
        self._topics[topic] = topic_id
        self._known = {place: known for place, known in self._known.items() if place[0] != topic}

    def _hear(self, place: Place, partition: PartitionImage) -> None:
        known = self._known.get(place)
        # Every node tells of each change, some of them late.
        if known is not None and partition.partition_epoch <= known.partition_epoch:
            return
        self._known[place] = partition
        if known is None or (known.leader, known.leader_epoch) == (partition.leader, partition.leader_epoch):
            return
        leader = "no leader" if partition.leader == NO_LEADER else f"leader {partition.leader}"
        text = f"{leader} in epoch {partition.leader_epoch}, ISR {sorted(partition.isr)}"
        self.changes.append(NewLeader(self._seconds(), place, text))

    def node(self, world: SimWorld, number: int, properties: Mapping[str, str]) -> SimBroker:
        """Return a node of a cluster that tells of its metadata."""
        return _TellingNode(world, number, properties, self)


class _TellingNode(SimBroker):
    def __init__(self, world: SimWorld, number: int, properties: Mapping[str, str], leaders: Leaders) -> None:
        super().__init__(world, number, properties)
        self._leaders = leaders

    async def has_started(self) -> None:
        self.node.loader.add_publisher(self._leaders)
