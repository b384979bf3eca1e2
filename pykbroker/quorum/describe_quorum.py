"""DescribeQuorum: the leader's knowledge of voters and observers. It is the quorum's half of the API; api/ only
delegates."""

from __future__ import annotations

from pykbroker_raft import rpc
from pykbroker_raft.majority import Progress
from pykbroker_raft.raft_node import RaftNode
from pykbroker_raft.ready import Now
from pykbroker_raft.states import Leader
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)


def describe_quorum(node: RaftNode, request: DescribeQuorumRequest, version: int, now: Now) -> DescribeQuorumResponse:
    """Return the leader's answer. Other replicas return NOT_LEADER_OR_FOLLOWER."""
    if rpc.one_partition(request.topics) is None:
        return _errors(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    leader = node.state
    if not isinstance(leader, Leader):
        return _errors(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leader.replicas.forget_idle_observers(now.steady_ms)
    partition = ResponsePartitionData(
        partition_index=rpc.PARTITION,
        error_code=ErrorCode.NONE,
        leader_id=node.config.node_id,
        leader_epoch=leader.epoch,
        high_watermark=-1 if leader.high_watermark is None else leader.high_watermark,
        current_voters=[
            _replica(progress, node, version, now) for _, progress in sorted(leader.replicas.voters.items())
        ],
        observers=[_replica(progress, node, version, now) for _, progress in sorted(leader.replicas.observers.items())],
    )
    response = DescribeQuorumResponse(topics=[ResponseTopicData(topic_name=rpc.TOPIC, partitions=[partition])])
    if version >= 2:
        response.error_message = partition.error_message = ""
        response.nodes = [
            Node(
                node_id=voter.key.id,
                listeners=[Listener(name=e.listener, host=e.host, port=e.port) for e in voter.endpoints],
            )
            for voter in node.voters
        ]
    return response


def _replica(progress: Progress, node: RaftNode, version: int, now: Now) -> ReplicaState:
    is_self = progress.key.id == node.config.node_id
    state = ReplicaState(
        replica_id=progress.key.id,
        log_end_offset=node.log.end_offset if is_self else progress.end_offset,
        last_fetch_timestamp=now.wall_ms if is_self else progress.last_fetch_wall_ms,
        last_caught_up_timestamp=now.wall_ms if is_self else progress.last_caught_up_wall_ms,
    )
    if version >= 2:
        state.replica_directory_id = progress.key.directory_id
    return state


def _errors(request: DescribeQuorumRequest, error: ErrorCode) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    ResponsePartitionData(
                        partition_index=partition.partition_index,
                        error_code=error,
                        error_message=error.message,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
