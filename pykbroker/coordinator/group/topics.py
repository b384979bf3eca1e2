"""The topics as group coordinators need them: names, ids, partitions, racks, and a hash that shows a change.

Responsible for answering the questions of groups and assignors from the metadata image, and for Apache Kafka's metadata
hash (one per topic, kept until the topic changes; one per group, computed from the topics' hashes). Not responsible for
subscriptions.

Invariant: the hash of a topic is that of Apache Kafka 4.3.1, because it is written into the group's record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from pykbroker.metadata.image import EMPTY_IMAGE, MetadataImage

if TYPE_CHECKING:
    from pykbroker.metadata.delta import MetadataDelta

#: The version of the hash. It is hashed before a topic's fields, in case a later version has other fields.
_HASH_MAGIC = b"\0"


class GroupTopics:
    """The topics at one moment; `publish` takes a newer image. All shards share it. It is also the assignors'
    `Topics`."""

    __slots__ = ("_hashes", "image", "new_topics_offset")

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        #: the metadata offset of the last creation of a topic; regular expressions that were resolved before it are
        #: stale
        self.new_topics_offset = image.offset
        self._hashes: dict[str, int] = {}

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> set[str]:
        """Take a new image. Return the names of topics that were created, deleted or changed."""
        self.image = new
        changed = {topic.name for topic in delta.topics.changed.values()}
        changed.update(topic.name for topic in delta.topics.deleted.values())
        if any(topic_id not in old.topics.by_id for topic_id in delta.topics.changed):
            self.new_topics_offset = new.offset
        for name in changed:
            self._hashes.pop(name, None)
        return changed

    @property
    def offset(self) -> int:
        return self.image.offset

    def names(self) -> Iterable[str]:
        return self.image.topics.by_name

    def exists(self, name: str) -> bool:
        return name in self.image.topics.by_name

    def id_of(self, name: str) -> bytes | None:
        topic = self.image.topics.by_name.get(name)
        return None if topic is None else topic.id

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self.image.topics.by_id.get(topic_id)
        return None if topic is None else topic.name

    def ids_of(self, names: Iterable[str]) -> Iterator[bytes]:
        by_name = self.image.topics.by_name
        return (topic.id for name in names if (topic := by_name.get(name)) is not None)

    # -- the assignors' questions -------------------------------------------------------------------------------------

    def partition_count(self, topic_id: bytes) -> int:
        """Return -1 if there is no such topic."""
        topic = self.image.topics.by_id.get(topic_id)
        return -1 if topic is None else len(topic.partitions)

    def racks(self, topic_id: bytes, partition: int) -> frozenset[str]:
        topic = self.image.topics.by_id.get(topic_id)
        return frozenset() if topic is None else frozenset(self._racks(topic.partitions[partition].replicas))

    def _racks(self, replicas: Iterable[int]) -> list[str]:
        """Return one rack per replica that has one, with repetitions."""
        brokers = self.image.brokers
        return [
            broker.rack
            for replica in replicas
            if (broker := brokers.get(replica)) is not None and broker.rack is not None
        ]

    # -- hashes -------------------------------------------------------------------------------------------------------

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Return the hash for a group that subscribes to these names, as a signed number; 0 if none of them exists."""
        by_name = self.image.topics.by_name
        known = sorted((name for name in names if name in by_name), key=_java_order)
        if not known:
            return 0
        return _signed(xxh3_64_intdigest(b"".join(self._hash_of(name).to_bytes(8, "little") for name in known)))

    def _hash_of(self, name: str) -> int:
        value = self._hashes.get(name)
        if value is None:
            value = self._hashes[name] = self._compute(name)
        return value

    def _compute(self, name: str) -> int:
        topic = self.image.topics.by_name[name]
        most, least = struct.unpack(">QQ", topic.id)
        count = len(topic.partitions)
        parts = [_HASH_MAGIC, struct.pack("<QQ", most, least), _text(name), count.to_bytes(4, "little")]
        for index in range(count):
            parts.append(index.to_bytes(4, "little"))
            for rack in sorted(self._racks(topic.partitions[index].replicas), key=_java_order):
                parts.append((len(rack.encode("utf-16-le")) // 2).to_bytes(4, "little"))
                parts.append(_text(rack))
        return xxh3_64_intdigest(b"".join(parts))


def _java_order(text: str) -> bytes:
    """Return a key that sorts like Java's strings, by their UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def _text(text: str) -> bytes:
    """Return the text as UTF-16, followed by the number of its UTF-16 units."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + (len(units) // 2).to_bytes(4, "little")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
