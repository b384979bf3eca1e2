"""AlterReplicaLogDirs, versions 1-2: in which log directory of this broker a replica is to be. KIP-113.

The response means that a move has begun, or that none is needed; DescribeLogDirs shows its progress. If this broker
does not have the replica, it keeps the directory for the time when the replica is created. The error is then
REPLICA_NOT_AVAILABLE, as in Apache Kafka. A request with the present directory of a replica cancels its move.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(ctx: BrokerContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    # If a client names a replica twice, the last directory counts.
    wanted = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    allowed = ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (topic, index), path in wanted.items():
        code = (
            ctx.services.replicas.logs.moves.alter(topic, index, path)
            if allowed
            else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        result = results.setdefault(topic, AlterReplicaLogDirTopicResult(topic_name=topic))
        result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


HANDLERS = Handlers(handle)
