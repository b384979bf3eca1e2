"""Topics: list, describe, create, grow and delete them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.failure import check, failed
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.primitives import uuid_to_str

if TYPE_CHECKING:
    from pykbroker_wire.messages.metadata import MetadataResponseTopic

_TIMEOUT_MS = 60_000
_PAUSE_SECONDS = 0.1


@dataclass(slots=True, frozen=True)
class ListedTopic:
    name: str
    #: as Apache Kafka writes it: 22 characters
    id: str
    is_internal: bool
    partitions: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class DescribedPartition:
    number: int
    #: -1 if there is none
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    #: None if the cluster does not return it (KIP-966)
    elr: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None
    offline: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class DescribedTopic:
    name: str
    id: str
    is_internal: bool
    partitions: tuple[DescribedPartition, ...]


@dataclass(slots=True, frozen=True)
class TopicSummary:
    """The numbers of a topic."""

    name: str
    id: str
    is_internal: bool
    partitions: int
    #: the greatest number of replicas of a partition; partitions differ only while they are reassigned
    replication_factor: int
    #: partitions whose ISR lacks a replica
    under_replicated: int
    #: partitions without a leader, which take no writes
    leaderless: int


@dataclass(slots=True, frozen=True)
class WantedTopic:
    """A topic to create. None means the cluster's default; `assignment`: the brokers of each partition."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Sequence[Sequence[int]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


def listed(cluster: AskedCluster) -> list[ListedTopic]:
    """Return every topic, with internal topics, ordered by name."""
    found = [
        ListedTopic(
            topic.name or "",
            uuid_to_str(topic.topic_id),
            topic.is_internal,
            tuple(sorted(partition.partition_index for partition in topic.partitions)),
        )
        for topic in _metadata(cluster)
    ]
    return sorted(found, key=lambda topic: topic.name)


def summaries(cluster: AskedCluster) -> list[TopicSummary]:
    """Return a summary of every topic, with internal topics, ordered by name."""
    found = [
        TopicSummary(
            topic.name or "",
            uuid_to_str(topic.topic_id),
            topic.is_internal,
            len(topic.partitions),
            max((len(row.replica_nodes) for row in topic.partitions), default=0),
            sum(len(row.isr_nodes) < len(row.replica_nodes) for row in topic.partitions),
            sum(row.leader_id < 0 for row in topic.partitions),
        )
        for topic in _metadata(cluster)
    ]
    return sorted(found, key=lambda topic: topic.name)


def _metadata(
    cluster: AskedCluster, names: Iterable[str] | None = None, *, least: int = 1
) -> list[MetadataResponseTopic]:
    """Return the metadata of the topics of these names, or of all topics. A topic with an error is returned too.
    `least`: the oldest version of the request that will do."""
    from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    return cluster.ask(request, MetadataResponse, least=least if names is None else max(least, 4)).topics


def described(
    cluster: AskedCluster, names: Iterable[str], *, partitions_per_answer: int = 2000
) -> list[DescribedTopic]:
    """Return the topics of these names, ordered by name. Raises AskFailed if a topic does not exist."""
    wanted = sorted(set(names))
    if not wanted:
        return []
    if ApiKey.DESCRIBE_TOPIC_PARTITIONS in cluster.versions():
        return _described_in_pages(cluster, wanted, partitions_per_answer)
    return _described_by_metadata(cluster, wanted)


def _described_in_pages(cluster: AskedCluster, names: list[str], limit: int) -> list[DescribedTopic]:
    from pykbroker_wire.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        RequestCursor,
        TopicRequest,
    )

    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit
    )
    found: dict[str, DescribedTopic] = {}
    while True:
        answer = cluster.ask(request, DescribeTopicPartitionsResponse)
        for topic in answer.topics:
            check(topic.error_code)
            assert topic.name is not None
            partitions = tuple(
                DescribedPartition(
                    row.partition_index,
                    row.leader_id,
                    tuple(row.replica_nodes),
                    tuple(row.isr_nodes),
                    tuple(row.eligible_leader_replicas or ()),
                    tuple(row.last_known_elr or ()),
                    tuple(row.offline_replicas),
                )
                for row in topic.partitions
            )
            before = found[topic.name].partitions if topic.name in found else ()
            found[topic.name] = DescribedTopic(
                topic.name, uuid_to_str(topic.topic_id), topic.is_internal, (*before, *partitions)
            )
        if answer.next_cursor is None:
            return list(found.values())
        cursor = answer.next_cursor
        request.cursor = RequestCursor(topic_name=cursor.topic_name, partition_index=cursor.partition_index)
        # The topics before the cursor are complete.
        request.topics = [TopicRequest(name=name) for name in names if name >= cursor.topic_name]


def _described_by_metadata(cluster: AskedCluster, names: list[str]) -> list[DescribedTopic]:
    found = []
    for topic in _metadata(cluster, names):
        check(topic.error_code)
        assert topic.name is not None
        partitions = tuple(
            DescribedPartition(
                row.partition_index, row.leader_id, tuple(row.replica_nodes), tuple(row.isr_nodes), None, None
            )
            for row in sorted(topic.partitions, key=lambda row: row.partition_index)
        )
        found.append(DescribedTopic(topic.name, uuid_to_str(topic.topic_id), topic.is_internal, partitions))
    return sorted(found, key=lambda topic: topic.name)


def leaders(cluster: AskedCluster, names: Iterable[str]) -> dict[PartitionName, int]:
    """Return the leader of each partition of these topics, or -1 if it has none. A missing topic is left out."""
    wanted = sorted(set(names))
    if not wanted:
        return {}

    def attempt() -> dict[PartitionName, int]:
        found = {}
        for topic in _metadata(cluster, wanted):
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            check(topic.error_code)
            found.update({(topic.name or "", row.partition_index): row.leader_id for row in topic.partitions})
        return found

    return cluster.settled(attempt)


def names_by_id(cluster: AskedCluster, names: Iterable[str]) -> dict[bytes, str]:
    """Return topic id -> name of these topics. A missing topic is left out. Raises AskFailed."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    return {topic.topic_id: topic.name or "" for topic in _metadata(cluster, wanted, least=10) if not topic.error_code}


def leaderless(cluster: AskedCluster, places: Collection[PartitionName], within_seconds: float) -> list[PartitionName]:
    """Return the partitions that get no leader `within_seconds`. A missing partition is left out. Raises AskFailed."""
    deadline = time.monotonic() + within_seconds
    while True:
        led_by = leaders(cluster, {topic for topic, _ in places})
        found = [place for place in places if led_by.get(place, 0) < 0]
        if not found or time.monotonic() >= deadline:
            return found
        time.sleep(_PAUSE_SECONDS)


def appears(cluster: AskedCluster, name: str, within_seconds: float = 5.0) -> bool:
    """Ask for a topic as a producer does, so that the cluster creates it if auto.create.topics.enable allows it. Return
    True when every partition has a leader, or when the topic exists at the end of `within_seconds`. Return False if it
    is missing then. Raises AskFailed."""
    from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    deadline = time.monotonic() + within_seconds
    while True:
        (topic,) = cluster.ask(request, MetadataResponse, least=4).topics
        problem = failed(topic.error_code) if topic.error_code else None
        if problem is None and all(row.leader_id >= 0 for row in topic.partitions):
            return True
        if problem is not None and not problem.retriable:
            raise problem
        if time.monotonic() >= deadline:
            return problem is None
        time.sleep(_PAUSE_SECONDS)


def places(
    cluster: AskedCluster, topic: str | None = None, *, partition: int | None = None, broker: int | None = None
) -> list[PartitionName]:
    """Return the partitions of a topic, or of all topics. `partition`: only the partition of this number. `broker`:
    only partitions that have a replica on this broker. Raises AskFailed if the topic does not exist."""
    names = [topic] if topic is not None else [one.name for one in listed(cluster)]
    return [
        (one.name, row.number)
        for one in described(cluster, names)
        for row in one.partitions
        if (partition is None or row.number == partition) and (broker is None or broker in row.replicas)
    ]


def create(cluster: AskedCluster, topic: WantedTopic) -> None:
    from pykbroker_wire.messages.create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )

    wanted = CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.partitions is None else topic.partitions,
        replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in enumerate(topic.assignment)
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )
    answer = cluster.ask_controller(
        CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS), CreateTopicsResponse, least=4
    )
    for row in answer.topics:
        check(row.error_code, row.error_message)


def add_partitions(cluster: AskedCluster, wanted: Mapping[str, tuple[int, Sequence[Sequence[int]]]]) -> None:
    """Add partitions. `wanted`: topic -> its new number of partitions, and the brokers of each new partition. If the
    list of brokers is empty, the cluster chooses them."""
    from pykbroker_wire.messages.create_partitions import (
        CreatePartitionsAssignment,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
    )

    rows = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=[CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignment] or None,
        )
        for name, (count, assignment) in wanted.items()
    ]
    answer = cluster.ask_controller(
        CreatePartitionsRequest(topics=rows, timeout_ms=_TIMEOUT_MS), CreatePartitionsResponse
    )
    for row in answer.results:
        check(row.error_code, row.error_message)


def delete(cluster: AskedCluster, names: Iterable[str]) -> None:
    from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

    wanted = list(names)
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in wanted], topic_names=wanted, timeout_ms=_TIMEOUT_MS
    )
    for row in cluster.ask_controller(request, DeleteTopicsResponse).responses:
        check(row.error_code, row.error_message)
