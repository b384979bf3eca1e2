"""Metadata with brokers and with `__share_group_state`, for a persister without a node around it."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage, TopicsImage
from pykbroker.metadata.topic_names import SHARE_STATE_TOPIC
from pykbroker.metadata.view import MetadataView, Publisher
from pykbroker_wire.primitives import ZERO_UUID

LISTENER = "PLAINTEXT"


class ShareMetadata:
    """A view whose image a test sets. `publisher` gets each change."""

    def __init__(self, brokers: Mapping[int, tuple[str, int]]) -> None:
        self.view = MetadataView()
        self.publisher: Publisher | None = None
        self._epoch = 0
        self._brokers = {
            number: BrokerImage(
                number, 1, ZERO_UUID, {LISTENER: Endpoint(LISTENER, host, port, 0)}, None, False, False, (), {}
            )
            for number, (host, port) in brokers.items()
        }
        self._set({}, self._brokers)

    def address(self, broker_id: int) -> tuple[str, int] | None:
        """The address of a broker, for `BrokerChannels`."""
        broker = self.view.image.brokers.get(broker_id)
        return None if broker is None else (broker.endpoints[LISTENER].host, broker.endpoints[LISTENER].port)

    def lead(self, *leaders: int) -> None:
        """Let `__share_group_state` have a partition for each of these leaders, -1 for a partition without one."""
        self._epoch += 1
        partitions = {
            index: PartitionImage((1,), (ZERO_UUID,), (1,), (), (), (), (), leader, 0, self._epoch, self._epoch)
            for index, leader in enumerate(leaders)
        }
        topic = TopicImage(SHARE_STATE_TOPIC, b"s" * 16, partitions)
        self._set({SHARE_STATE_TOPIC: topic}, self.view.image.brokers)

    def fence(self, *broker_ids: int) -> None:
        """Let these brokers, and no others, be gone."""
        topics = dict(self.view.image.topics.by_name)
        self._set(topics, {number: each for number, each in self._brokers.items() if number not in broker_ids})

    def _set(self, topics: Mapping[str, TopicImage], brokers: Mapping[int, BrokerImage]) -> None:
        old = self.view.image
        by_id = {topic.id: topic for topic in topics.values()}
        self.view.image = MetadataImage(brokers=brokers, topics=TopicsImage(topics, by_id))
        if self.publisher is not None:
            self.publisher.publish(MetadataDelta(old), old, self.view.image)
