"""The changes of the cluster in its metadata: leaders, ISRs, members. For the story, and for the history.

It compares the newest image of a node at intervals; a change that is undone between two of them is not recorded.
"""

from __future__ import annotations

import asyncio

from pykbroker.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage
from pykbroker_worlds.history.events import Forgot, History
from pykbroker_worlds.simulated.sim_cluster import SimCluster

_EVERY_SECONDS = 0.02
_GROUPS = "__consumer_offsets"


class Chronicle:
    """Runs as `forever` in the background of a run."""

    def __init__(self, cluster: SimCluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._tell = cluster.world.tell
        self._image: MetadataImage = EMPTY_IMAGE
        self._controller: int | None = None

    async def forever(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(_EVERY_SECONDS)

    def _look(self) -> None:
        cluster = self._cluster
        leader = cluster.leader()
        if leader is not None and leader.number != self._controller:
            self._controller = leader.number
            self._tell("quorum", f"node {leader.number} leads in epoch {leader.node.shared.quorum.epoch}")
        images = [node.node.loader.image for node in cluster.nodes.values() if node.runs]
        newest = max(images, key=lambda image: image.offset, default=self._image)
        if newest.offset <= self._image.offset:
            return
        before, self._image = self._image, newest
        self._members(before, newest)
        if before.topics is not newest.topics:
            self._topics(before, newest)

    def _members(self, before: MetadataImage, after: MetadataImage) -> None:
        for number, broker in after.brokers.items():
            known = before.brokers.get(number)
            if known is None or known.epoch != broker.epoch:
                self._tell("metadata", f"broker {number} is registered in epoch {broker.epoch}")
            if known is not None and known.fenced != broker.fenced:
                self._tell("metadata", f"broker {number} is {'fenced' if broker.fenced else 'unfenced'}")
            if known is not None and broker.in_controlled_shutdown > known.in_controlled_shutdown:
                self._tell("metadata", f"broker {number} is let go")

    def _topics(self, before: MetadataImage, after: MetadataImage) -> None:
        for name in sorted(before.topics.by_name.keys() - after.topics.by_name.keys()):
            self._tell("metadata", f"{name} is deleted")
        for name, topic in after.topics.by_name.items():
            for index, partition in topic.partitions.items():
                known = before.topics.partition(name, index)
                if known == partition:
                    continue
                self._tell("metadata", f"{name}-{index}: {_describe(partition)}")
                if name == _GROUPS and (known is None or known.leader_epoch != partition.leader_epoch):
                    # A new coordinator lacks what the former one had not written, as after a restart.
                    self._history.record(Forgot(started=self._history.now(), code=0, node=partition.leader))


def _describe(partition: PartitionImage) -> str:
    text = f"leader {partition.leader} in epoch {partition.leader_epoch}, ISR {list(partition.isr)}"
    if partition.elr:
        text += f", ELR {list(partition.elr)}"
    if partition.last_known_elr:
        text += f", last known {list(partition.last_known_elr)}"
    if partition.is_reassigning:
        text += f", adding {list(partition.adding_replicas)}, removing {list(partition.removing_replicas)}"
    return f"{text}, replicas {list(partition.replicas)}"
