"""Log directories of brokers, and what lies in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pykbroker.admin.asked_cluster import AskedCluster
from pykbroker.admin.failure import AskFailed, check, failed


@dataclass(slots=True, frozen=True)
class ReplicaOnDisk:
    topic: str
    partition: int
    size_bytes: int
    #: records that it is behind
    offset_lag: int
    #: a copy that is on its way to another directory
    is_future: bool


@dataclass(slots=True, frozen=True)
class DescribedLogDir:
    path: str
    error: AskFailed | None
    replicas: tuple[ReplicaOnDisk, ...]


def described(
    cluster: AskedCluster, brokers: Iterable[int], topics: Collection[str] = ()
) -> dict[int, list[DescribedLogDir]]:
    """The directories of each broker; with `topics` only their replicas."""
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
