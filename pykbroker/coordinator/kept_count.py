"""How many partitions an internal topic had when its records were written: by this number a key finds its coordinator.

The number stays while the node runs, as in Apache Kafka. A topic that is grown would otherwise send most groups and
transactional ids to partitions that have none of their records. Not responsible for refusing to grow such a topic
(controller/topics.py): the active controller may be one of Apache Kafka, which allows it.
"""

from __future__ import annotations

import logging

from pykbroker.metadata.image import MetadataImage

logger = logging.getLogger(__name__)


class KeptCount:
    """The number is the present one until `start`, and that of the last start or of a new topic from then on."""

    def __init__(self, topic: str, configured: int) -> None:
        """`configured` counts while the topic is not there."""
        self._topic = topic
        self._configured = configured
        self._topic_id: bytes | None = None
        self._count = self._present = configured
        self._started = False

    def start(self, image: MetadataImage) -> None:
        """The metadata is whole: keep the number that the topic has now."""
        self._started = True
        self.look(image)

    def look(self, image: MetadataImage) -> None:
        """Take the number of a topic that is new, and report one that has grown."""
        topic = image.topics.by_name.get(self._topic)
        if topic is None or not self._started:
            return
        present = len(topic.partitions)
        if topic.id != self._topic_id:
            self._topic_id = topic.id
            self._count = present
        elif present != self._present:
            logger.error(
                "Topic %s has grown to %d partitions while it is in use. This node goes on with %d, by which its "
                "records were written, until it restarts. After that most groups or transactional ids have no records.",
                self._topic,
                present,
                self._count,
            )
        self._present = present

    def of(self, image: MetadataImage) -> int:
        """Return the number by which a key finds its partition."""
        topic = image.topics.by_name.get(self._topic)
        if topic is None:
            return self._configured
        if topic.id != self._topic_id:
            return len(topic.partitions)
        return self._count
