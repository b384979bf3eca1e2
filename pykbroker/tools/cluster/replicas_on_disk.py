"""Log directories of brokers, the replicas in them, and moves from one directory to another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.tools.cluster.failure import AskFailed, check, failed

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster


class ReplicaName(NamedTuple):
    topic: str
    partition: int
    broker: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker}"


class ReplicaPlace(NamedTuple):
    """The directory of a replica, and the directory that it moves to. None if there is no such directory online."""

    current: str | None = None
    future: str | None = None


@dataclass(slots=True, frozen=True)
class ReplicaOnDisk:
    topic: str
    partition: int
    size_bytes: int
    #: the number of offsets by which the replica lags
    offset_lag: int
    #: True for the copy in the directory that a replica moves to
    is_future: bool


@dataclass(slots=True, frozen=True)
class DescribedLogDir:
    path: str
    error: AskFailed | None
    replicas: tuple[ReplicaOnDisk, ...]


def described(
    cluster: AskedCluster, brokers: Iterable[int], topics: Collection[str] = ()
) -> dict[int, list[DescribedLogDir]]:
    """Return the directories of each broker; with `topics`, they have only the replicas of these topics."""
    from pykbroker_wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

    found = {}
    for broker in brokers:
        answer = cluster.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, node=broker)
        check(answer.error_code)
        found[broker] = [
            DescribedLogDir(
                row.log_dir,
                failed(row.error_code) if row.error_code else None,
                tuple(
                    ReplicaOnDisk(
                        topic.name, one.partition_index, one.partition_size, one.offset_lag, one.is_future_key
                    )
                    for topic in row.topics
                    if not topics or topic.name in topics
                    for one in topic.partitions
                ),
            )
            for row in answer.results
        ]
    return found


def places(cluster: AskedCluster, replicas: Collection[ReplicaName]) -> dict[ReplicaName, ReplicaPlace]:
    """Return the place of each replica."""
    found = dict.fromkeys(replicas, ReplicaPlace())
    topics = {replica.topic for replica in replicas}
    for broker, directories in described(cluster, sorted({replica.broker for replica in replicas}), topics).items():
        for directory in directories:
            for one in directory.replicas:
                name = ReplicaName(one.topic, one.partition, broker)
                if name in found:
                    before = found[name]
                    found[name] = (
                        before._replace(future=directory.path)
                        if one.is_future
                        else before._replace(current=directory.path)
                    )
    return found


def ways_back(found: Mapping[ReplicaName, ReplicaPlace]) -> dict[ReplicaName, str]:
    """Return the directory to which each replica must be moved so that the move that is under way ends."""
    return {
        replica: place.current
        for replica, place in found.items()
        if place.future is not None and place.current is not None
    }


def move(cluster: AskedCluster, wanted: Mapping[ReplicaName, str]) -> dict[ReplicaName, AskFailed]:
    """Begin to move each replica to a directory of its broker. Returns the errors of the replicas that failed."""
    from pykbroker_wire.messages.alter_replica_log_dirs import (
        AlterReplicaLogDir,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopic,
    )

    failures = {}
    for broker in sorted({replica.broker for replica in wanted}):
        directories: dict[str, dict[str, list[int]]] = {}
        for replica, path in sorted(wanted.items()):
            if replica.broker == broker:
                directories.setdefault(path, {}).setdefault(replica.topic, []).append(replica.partition)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[AlterReplicaLogDirTopic(name=name, partitions=found) for name, found in topics.items()],
                )
                for path, topics in directories.items()
            ]
        )
        for topic in cluster.ask(request, AlterReplicaLogDirsResponse, node=broker).results:
            for row in topic.partitions:
                if row.error_code:
                    name = ReplicaName(topic.topic_name, row.partition_index, broker)
                    failures[name] = failed(row.error_code)
    return failures
