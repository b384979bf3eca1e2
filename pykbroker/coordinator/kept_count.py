"""The number of partitions that an internal topic had when its records were written. The coordinator of a key is found
by this number.

The number stays while the node runs, as in Apache Kafka. Otherwise, if the topic got more partitions, most groups and
transactional ids would move to partitions that have none of their records. Not responsible for refusing to grow such a
topic (controller/topics.py). The active controller may run Apache Kafka, which allows it.
"""

from __future__ import annotations

import logging

from pykbroker.metadata.image import MetadataImage

logger = logging.getLogger(__name__)


class KeptCount:
    """Before `start`, `of` returns the present number. After it, `of` returns the number at `start`, or that of a topic
    created since."""

    def __init__(self, topic: str, configured: int) -> None:
        """`configured` is used while the topic does not exist."""
        self._topic = topic
        self._configured = configured
        self._topic_id: bytes | None = None
        self._count = self._present = configured
        self._started = False

    def start(self, image: MetadataImage) -> None:
        """Keep the number that the topic has now. Call it when the metadata is complete."""
        self._started = True
        self.look(image)

    def look(self, image: MetadataImage) -> None:
        """Take the number of partitions of a new topic, and log an error if the topic has grown."""
        topic = image.topics.by_name.get(self._topic)
        if topic is None or not self._started:
            return
        present = len(topic.partitions)
        if topic.id != self._topic_id:
            self._topic_id = topic.id
            self._count = present
        elif present != self._present:
            logger.error(
                "Topic %s has grown to %d partitions while it is in use. Until this node restarts, it uses %d, as when "
                "the records were written. After that it will not find those of most groups or transactional ids.",
                self._topic,
                present,
                self._count,
            )
        self._present = present

    def of(self, image: MetadataImage) -> int:
        """Return the number by which the partition of a key is found."""
        topic = image.topics.by_name.get(self._topic)
        if topic is None:
            return self._configured
        if topic.id != self._topic_id:
            return len(topic.partitions)
        return self._count
