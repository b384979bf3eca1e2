"""DescribeLogDirs, versions 1-5. KIP-113, KIP-827 (total and usable bytes): what each log directory holds."""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(ctx: BrokerContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not ctx.authorize(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = []
    for description in ctx.services.replicas.logs.directories.describe(wanted):
        topics: dict[str, DescribeLogDirsTopic] = {}
        for replica in description.replicas:
            topics.setdefault(replica.topic, DescribeLogDirsTopic(name=replica.topic)).partitions.append(
                DescribeLogDirsPartition(
                    partition_index=replica.index,
                    partition_size=replica.size_bytes,
                    offset_lag=replica.offset_lag,
                    is_future_key=replica.is_future,
                )
            )
        results.append(
            DescribeLogDirsResult(
                error_code=description.error,
                log_dir=description.path,
                topics=list(topics.values()),
                total_bytes=description.total_bytes,
                usable_bytes=description.usable_bytes,
                is_cordoned=description.is_cordoned,
            )
        )
    return DescribeLogDirsResponse(results=results)


HANDLERS = Handlers(handle)
