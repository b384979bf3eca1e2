"""Leader hints of KIP-951: the leader to which a client should send its request instead. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from pykbroker.metadata.image import MetadataImage
from pykbroker_wire.errors import ErrorCode

#: With these errors the answer to a fetch also names the present leader.
MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class ReachableBroker(NamedTuple):
    """A broker, with the address at which clients of one listener reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None


def node_on_listener(image: MetadataImage, broker_id: int, listener_name: str) -> ReachableBroker | None:
    """Return a broker with its endpoint on a listener. Return None if it has none, or if it is fenced or unknown."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return None
    endpoint = broker.endpoints.get(listener_name)
    if endpoint is None:
        return None
    return ReachableBroker(broker_id, endpoint.host, endpoint.port, broker.rack)


def leader_hint(
    image: MetadataImage, listener_name: str, topic: str, index: int
) -> tuple[int, int, ReachableBroker | None]:
    """Return the leader's id and epoch (-1, -1 if unknown), and its node (None if clients cannot reach it)."""
    partition = image.topics.partition(topic, index)
    if partition is None:
        return -1, -1, None
    return partition.leader, partition.leader_epoch, node_on_listener(image, partition.leader, listener_name)


class LeaderHints:
    """The leaders that one answer names, and the addresses of their brokers on the client's listener (KIP-951)."""

    __slots__ = ("_image", "_listener", "brokers")

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self._image = image
        self._listener = listener
        self.brokers: dict[int, ReachableBroker] = {}

    def leader_of(self, topic_id: bytes, index: int) -> tuple[int, int]:
        """Return the id and the epoch of the leader, (-1, -1) if it is unknown. Its broker is noted for the answer."""
        topic = self._image.topics.by_id.get(topic_id)
        if topic is None:
            return -1, -1
        leader, epoch, broker = leader_hint(self._image, self._listener, topic.name, index)
        if leader >= 0 and broker is not None:
            self.brokers[broker.node_id] = broker
        return leader, epoch
