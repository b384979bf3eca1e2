"""Data directories of brokers: the partitions in them, and the offset up to which each replica is safe to read.

Responsible for `meta.properties`, the checkpoints of a directory, and the choice between replicas. Not responsible for
the segments in a partition's folder (log_view.py).

Invariants:
* Folders that wait for deletion, are future replicas of another directory, or were set aside as strays are no
  partitions.
* All directories belong to one cluster, and all replicas of a topic that are read have one topic id.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pykbroker_log import names
from pykbroker_log.checkpoints import (
    MalformedFile,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
)
from pykbroker_wire.primitives import uuid_to_str
from pyspark_pykbroker.faults import NotADataDirectory, NotYet, RecordsLost, UnknownFormat, WrongOption
from pyspark_pykbroker.source_options import Subscription, TopicPartition

#: Versions of meta.properties. Brokers with ZooKeeper wrote 0; their segments are the same.
KNOWN_VERSIONS = ("0", "1")


@dataclass(frozen=True, slots=True)
class Replica:
    """One folder of a partition."""

    topic: str
    partition: int
    folder: str
    #: "" if partition.metadata is missing
    topic_id: str
    #: from the checkpoint; 0 if it does not name the partition
    log_start: int
    #: None if the checkpoint does not name the partition yet
    high_watermark: int | None
    #: when the checkpoint with the `high_watermark` was written (ns); 0 if there is none
    checkpoint_ns: int = 0

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class DataDirectory:
    path: str
    cluster_id: str
    replicas: tuple[Replica, ...]

    @classmethod
    def look(cls, path: str) -> DataDirectory:
        """Raises NotADataDirectory, UnknownFormat."""
        try:
            entries = sorted(entry.name for entry in os.scandir(path) if entry.is_dir())
        except OSError as error:
            raise NotADataDirectory(
                f"{path} cannot be listed ({error.strerror}): every executor and the driver must see it under this path"
            ) from None
        properties = _properties(path)
        version = properties.get("version", "")
        if version not in KNOWN_VERSIONS:
            raise UnknownFormat(
                f"{path}/{names.META_PROPERTIES} has version {version!r}, this reader knows "
                f"{' and '.join(KNOWN_VERSIONS)}: a newer Apache Kafka needs a newer pyspark-pykbroker"
            )
        starts = _offsets(path, names.LOG_START_OFFSETS)
        # The time is read before the content, because a newer checkpoint may replace the file in between.
        written_ns = _written_ns(os.path.join(path, names.HIGH_WATERMARKS))
        marks = _offsets(path, names.HIGH_WATERMARKS)
        replicas = []
        for name in entries:
            found = names.parse_partition_dir(name)
            if found is None or found.mark or found.topic == names.METADATA_TOPIC:
                continue
            key = found.topic, found.partition
            folder = os.path.join(path, name)
            topic_id = topic_id_of(folder)
            replicas.append(Replica(*key, folder, topic_id, starts.get(key, 0), marks.get(key), written_ns))
        return cls(path, properties.get("cluster.id", ""), tuple(replicas))


def _properties(path: str) -> dict[str, str]:
    file = os.path.join(path, names.META_PROPERTIES)
    try:
        with open(file, "rb") as opened:
            return decode_properties(opened.read())
    except FileNotFoundError:
        raise NotADataDirectory(
            f"{path} is no data directory of a broker, it has no {names.META_PROPERTIES}: give the directories that "
            "log.dirs names, not the folder above them or that of a partition"
        ) from None
    except MalformedFile as error:
        raise UnknownFormat(f"{file}: {error}: no broker that this reader knows wrote it") from None


def _offsets(path: str, name: str) -> dict[TopicPartition, int]:
    """Read a checkpoint; the result is empty before it was first written. A rename replaces it, so it is always
    whole."""
    file = os.path.join(path, name)
    try:
        with open(file, "rb") as opened:
            return decode_offsets(opened.read())
    except FileNotFoundError:
        return {}
    except MalformedFile as error:
        raise UnknownFormat(
            f"{file}: {error}. Start the broker on this directory, which writes it again, or give another replica's"
        ) from None


def topic_id_of(folder: str) -> str:
    """Return the topic id, "" if the folder has no `partition.metadata`, as before Apache Kafka 2.8. Raises
    UnknownFormat."""
    file = os.path.join(folder, names.PARTITION_METADATA)
    try:
        with open(file, "rb") as opened:
            return uuid_to_str(decode_partition_metadata(opened.read()))
    except FileNotFoundError:
        return ""
    except MalformedFile as error:
        raise UnknownFormat(f"{file}: {error}: no broker that this reader knows wrote it") from None


def _written_ns(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except FileNotFoundError:
        return 0


def has_mark_of_its_own(replica: Replica) -> bool:
    """Return True if the high watermark is this topic's. Until a broker's next checkpoint it may be that of a deleted
    topic of the same name."""
    return replica.checkpoint_ns >= _written_ns(os.path.join(replica.folder, names.PARTITION_METADATA))


def find_replicas(directories: Iterable[str]) -> dict[TopicPartition, list[Replica]]:
    """Return every partition with its replicas. Raises NotADataDirectory, UnknownFormat."""
    looked = [DataDirectory.look(path) for path in directories]
    clusters = {each.cluster_id: each.path for each in looked if each.cluster_id}
    if len(clusters) > 1:
        (one, first), (other, second) = list(clusters.items())[:2]
        raise NotADataDirectory(
            f"{first} belongs to the cluster {one}, {second} to {other}: read one cluster at a time"
        )
    found: dict[TopicPartition, list[Replica]] = defaultdict(list)
    for each in looked:
        for replica in each.replicas:
            found[replica.key].append(replica)
    return dict(found)


def choose(
    subscription: Subscription, replicas: Mapping[TopicPartition, list[Replica]]
) -> dict[TopicPartition, Replica]:
    """Return the replica of each partition to read: the one that is safe to read furthest. Raises WrongOption,
    RecordsLost, NotYet."""
    chosen: dict[TopicPartition, Replica] = {}
    partitions: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(replicas):
        partitions[topic].append(partition)
    for topic in subscription.topics_of(set(partitions)):
        numbers = partitions[topic]
        wanted = sorted(number for name, number in subscription.partitions if name == topic) or numbers
        if missing := sorted(set(wanted) - set(numbers)):
            raise WrongOption(f"no directory has {topic}-{missing[0]}: name every directory of log.dirs")
        if not subscription.partitions and numbers != list(range(len(numbers))):
            absent = sorted(set(range(numbers[-1])) - set(numbers))
            raise RecordsLost(
                f"{topic} has a partition {numbers[-1]}, but no directory has {topic}-{absent[0]}: name the data "
                "directories of more brokers, or say with `assign` which partitions are wanted"
            )
        for number in wanted:
            chosen[topic, number] = _most(replicas[topic, number])
        ids = {replica.topic_id: replica for key, replica in chosen.items() if key[0] == topic and replica.topic_id}
        if len(ids) > 1:
            one, other = list(ids.values())[:2]
            raise RecordsLost(
                f"{one.folder} and {other.folder} belong to two topics of the name {topic} ({one.topic_id}, "
                f"{other.topic_id}): one was deleted and made again. Leave out the directory with the old one."
            )
    return chosen


def _most(replicas: list[Replica]) -> Replica:
    known = [replica for replica in replicas if replica.high_watermark is not None]
    if not known:
        return replicas[0]
    return max(known, key=lambda replica: (replica.high_watermark or 0, -replica.log_start))


def high_watermark_of(replica: Replica) -> int:
    """Return the high watermark. Raises NotYet if the checkpoint does not have it."""
    if replica.high_watermark is None:
        raise NotYet(
            f"{replica.folder}: {names.HIGH_WATERMARKS} does not name {replica.topic}-{replica.partition} yet, so how "
            "far its records are safe is not known. A running broker writes it every 5 s "
            "(replica.high.watermark.checkpoint.interval.ms) and when it stops: read again then."
        )
    return replica.high_watermark
