"""The rules for the topic of a dead letter queue (KIP-1191): which topic a group has, whether letters may be written to
it, and to which partition. Pure: configuration and metadata go in.

The rules are those of Apache Kafka 4.4 (ShareGroupDLQStateManager.validateDlqTopic), in its order. They are judged
again before each try, because the configuration and the topic can change in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pykbroker.config.key_table import TOPIC_KEYS
from pykbroker.metadata.image import ConfigResource

if TYPE_CHECKING:
    from pykbroker.config.kinds import Value
    from pykbroker.config.typed_config import Config
    from pykbroker.metadata.image import MetadataImage

_TOPIC_NAME: Final = "errors.deadletterqueue.topic.name"
_COPIES: Final = "errors.deadletterqueue.copy.record.enable"
_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
_CREATES: Final = "errors.deadletterqueue.auto.create.topics.enable"
_ENABLED: Final = "errors.deadletterqueue.group.enable"
_INTERNAL_PREFIX: Final = "__"

#: The configuration of a topic that a broker creates for dead letters. The other settings are the cluster's defaults.
#: A letter has the time at which it was written, so the topic must not replace its timestamp.
CREATED_TOPIC_CONFIG: Final[Mapping[str, str]] = {_ENABLED: "true", "message.timestamp.type": "CreateTime"}


class LetterQueue(NamedTuple):
    """The dead letter queue of a group. `topic` is empty if it has none. `copies` is True if a letter has the key and
    the value of its record."""

    topic: str = ""
    copies: bool = False


class LetterPartition(NamedTuple):
    """The partition to which letters go. `leader` is -1 while it has none. `most_bytes` is the largest batch that the
    topic accepts (max.message.bytes)."""

    topic: str
    topic_id: bytes
    partition: int
    leader: int
    leader_epoch: int
    most_bytes: int

    @property
    def led_partition(self) -> tuple[bytes, int, int]:
        """The partition in its present leader epoch. Records that are appended in it stay until the epoch ends."""
        return self.topic_id, self.partition, self.leader_epoch


class MissingTopic(NamedTuple):
    """The topic does not exist, and the broker may create it."""

    name: str


class RefusedTopic(NamedTuple):
    """No letters may be written. `reason` is a whole sentence for the log."""

    reason: str


LetterTopic: TypeAlias = LetterPartition | MissingTopic | RefusedTopic


def next_leader(now: LetterTopic, target: LetterPartition) -> int:
    """Return the broker that leads the partition now, if the leader epoch of `target` has ended. Return -1 if the epoch
    goes on, and if there is no leader."""
    return now.leader if isinstance(now, LetterPartition) and now.led_partition != target.led_partition else -1


def letter_queue(values: Mapping[str, Value]) -> LetterQueue:
    """Return the queue from the resolved keys of a group (config/group.py)."""
    return LetterQueue(str(values[_TOPIC_NAME]), values[_COPIES] is True)


def letter_topic(queue: LetterQueue, source_partition: int, config: Config, image: MetadataImage) -> LetterTopic:
    """Judge the topic of a queue. `config`: the broker's present configuration. `source_partition`: the partition of
    the record that becomes a letter. Its index modulo the number of partitions is the index of the letter's
    partition."""
    name, prefix = queue.topic, config.str(_PREFIX)
    if not name:
        return RefusedTopic(f"The group has no longer a dead letter topic ({_TOPIC_NAME}).")
    if name.startswith(_INTERNAL_PREFIX):
        return RefusedTopic(f"The name of the dead letter topic {name} begins with {_INTERNAL_PREFIX}.")
    topic = image.topics.by_name.get(name)
    own = image.configs.of(ConfigResource.TOPIC, name)
    if topic is not None and not _is_enabled(own):
        return RefusedTopic(f"The dead letter topic {name} does not have {_ENABLED}=true.")
    if topic is None and not config.bool(_CREATES):
        return RefusedTopic(f"The dead letter topic {name} does not exist, and {_CREATES} is false.")
    if not name.startswith(prefix):
        return RefusedTopic(f"The name of the dead letter topic {name} does not begin with {prefix} ({_PREFIX}).")
    if topic is None:
        return MissingTopic(name)
    index = source_partition % max(1, len(topic.partitions))
    found = topic.partitions.get(index)
    most_bytes = int(own["max.message.bytes"]) if "max.message.bytes" in own else config.int("message.max.bytes")
    if found is None:
        return LetterPartition(name, topic.id, index, -1, -1, most_bytes)
    return LetterPartition(name, topic.id, index, found.leader, found.leader_epoch, most_bytes)


def _is_enabled(own: Mapping[str, str]) -> bool:
    text = own.get(_ENABLED)
    return text is not None and TOPIC_KEYS[_ENABLED].parse(text) is True
