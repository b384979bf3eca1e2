"""Building and reading the protocol messages of KRaft. Each is about one partition of one topic.

Responsible only for the shapes: which field contains what, and which fields a version has. Decides nothing.
"""

from __future__ import annotations

from typing import Any

from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.voters import Endpoint, Endpoints, ReplicaKey, VoterNode, with_hosts
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import add_raft_voter as add_messages
from pykbroker_wire.messages import begin_quorum_epoch as begin_messages
from pykbroker_wire.messages import end_quorum_epoch as end_messages
from pykbroker_wire.messages import fetch as fetch_messages
from pykbroker_wire.messages import fetch_snapshot as snapshot_messages
from pykbroker_wire.messages import remove_raft_voter as remove_messages
from pykbroker_wire.messages import update_raft_voter as update_messages
from pykbroker_wire.messages import vote as vote_messages
from pykbroker_wire.messages.api_versions import ApiVersionsRequest

TOPIC = "__cluster_metadata"
PARTITION = 0
TOPIC_ID = bytes(15) + b"\x01"

# The first versions in which a response can contain the endpoints of the leader.
_FIRST_WITH_ENDPOINTS = {"vote": 1, "begin": 1, "end": 1, "fetch": 17, "snapshot": 1}


def one_partition(topics: Any) -> Any | None:
    """Return the partition of a message that is only about the metadata partition; None for any other message."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic, partition = topics[0], topics[0].partitions[0]
    name = getattr(topic, "topic_name", None)
    if name is None:
        name = topic.name
    index = getattr(partition, "partition_index", None)
    return partition if name == TOPIC and index == PARTITION else None


def one_fetch_partition(topics: Any) -> Any | None:
    """Like `one_partition`, for Fetch, which names the topic by its id."""
    if len(topics) != 1 or len(topics[0].partitions) != 1 or bytes(topics[0].topic_id) != TOPIC_ID:
        return None
    partition = topics[0].partitions[0]
    index = getattr(partition, "partition_index", None)
    if index is None:
        index = partition.partition
    return partition if index == PARTITION else None


def one_snapshot_partition(topics: Any) -> Any | None:
    if len(topics) != 1 or len(topics[0].partitions) != 1 or topics[0].name != TOPIC:
        return None
    partition = topics[0].partitions[0]
    index = getattr(partition, "index", None)
    if index is None:
        index = partition.partition
    return partition if index == PARTITION else None


def leader_of(partition: Any) -> tuple[int, int]:
    """Return the leader and its epoch from the partition of a response."""
    named = getattr(partition, "current_leader", partition)
    return named.leader_id, named.leader_epoch


def endpoints_from(nodes: Any, leader_id: int, listener: str) -> Endpoints:
    """Return the leader's endpoint from a response's node endpoints. It belongs to the listener that the request went
    to, which is why the response does not name one."""
    found = (Endpoint(listener, node.host, node.port) for node in nodes or () if node.node_id == leader_id)
    return with_hosts(tuple(found))


def endpoints_from_request(listeners: Any) -> Endpoints:
    """Return the endpoints that the sender names, also those without a host."""
    return tuple(Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in listeners or ())


def _nodes(module: Any, kind: str, version: int, leader_id: int, leader: Endpoint | None) -> list[Any]:
    if leader is None or leader_id < 0 or version < _FIRST_WITH_ENDPOINTS[kind]:
        return []
    return [module.NodeEndpoint(node_id=leader_id, host=leader.host, port=leader.port)]


# Vote


def vote_request(
    cluster_id: str, candidate: ReplicaKey, epoch: int, voter: ReplicaKey, end: OffsetAndEpoch, pre_vote: bool
) -> Any:
    return vote_messages.VoteRequest(
        cluster_id=cluster_id,
        voter_id=voter.id,
        topics=[
            vote_messages.RequestTopicData(
                topic_name=TOPIC,
                partitions=[
                    vote_messages.RequestPartitionData(
                        partition_index=PARTITION,
                        replica_epoch=epoch,
                        replica_id=candidate.id,
                        replica_directory_id=candidate.directory_id,
                        voter_directory_id=voter.directory_id,
                        last_offset_epoch=end.epoch,
                        last_offset=end.offset,
                        pre_vote=pre_vote,
                    )
                ],
            )
        ],
    )


def vote_error(error: ErrorCode) -> Any:
    return vote_messages.VoteResponse(error_code=error)


def vote_response(
    version: int, error: ErrorCode, leader_id: int, epoch: int, leader: Endpoint | None, granted: bool
) -> Any:
    return vote_messages.VoteResponse(
        topics=[
            vote_messages.ResponseTopicData(
                topic_name=TOPIC,
                partitions=[
                    vote_messages.ResponsePartitionData(
                        partition_index=PARTITION,
                        error_code=error,
                        leader_id=leader_id,
                        leader_epoch=epoch,
                        vote_granted=granted,
                    )
                ],
            )
        ],
        node_endpoints=_nodes(vote_messages, "vote", version, leader_id, leader),
    )


# BeginQuorumEpoch


def begin_request(cluster_id: str, leader_id: int, epoch: int, voter: ReplicaKey, endpoints: Endpoints) -> Any:
    return begin_messages.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.id,
        topics=[
            begin_messages.RequestTopicData(
                topic_name=TOPIC,
                partitions=[
                    begin_messages.RequestPartitionData(
                        partition_index=PARTITION,
                        voter_directory_id=voter.directory_id,
                        leader_id=leader_id,
                        leader_epoch=epoch,
                    )
                ],
            )
        ],
        leader_endpoints=[
            begin_messages.LeaderEndpoint(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
            for endpoint in endpoints
        ],
    )


def begin_error(error: ErrorCode) -> Any:
    return begin_messages.BeginQuorumEpochResponse(error_code=error)


def begin_response(version: int, error: ErrorCode, leader_id: int, epoch: int, leader: Endpoint | None) -> Any:
    return begin_messages.BeginQuorumEpochResponse(
        topics=[
            begin_messages.ResponseTopicData(
                topic_name=TOPIC,
                partitions=[
                    begin_messages.ResponsePartitionData(
                        partition_index=PARTITION, error_code=error, leader_id=leader_id, leader_epoch=epoch
                    )
                ],
            )
        ],
        node_endpoints=_nodes(begin_messages, "begin", version, leader_id, leader),
    )


# EndQuorumEpoch


def end_request(cluster_id: str, leader_id: int, epoch: int, successors: list[ReplicaKey], endpoints: Endpoints) -> Any:
    return end_messages.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[
            end_messages.RequestTopicData(
                topic_name=TOPIC,
                partitions=[
                    end_messages.RequestPartitionData(
                        partition_index=PARTITION,
                        leader_id=leader_id,
                        leader_epoch=epoch,
                        preferred_successors=[key.id for key in successors],
                        preferred_candidates=[
                            end_messages.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
                            for key in successors
                        ],
                    )
                ],
            )
        ],
        leader_endpoints=[
            end_messages.LeaderEndpoint(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
            for endpoint in endpoints
        ],
    )


def end_error(error: ErrorCode) -> Any:
    return end_messages.EndQuorumEpochResponse(error_code=error)


def end_response(version: int, error: ErrorCode, leader_id: int, epoch: int, leader: Endpoint | None) -> Any:
    return end_messages.EndQuorumEpochResponse(
        topics=[
            end_messages.ResponseTopicData(
                topic_name=TOPIC,
                partitions=[
                    end_messages.ResponsePartitionData(
                        partition_index=PARTITION, error_code=error, leader_id=leader_id, leader_epoch=epoch
                    )
                ],
            )
        ],
        node_endpoints=_nodes(end_messages, "end", version, leader_id, leader),
    )


# Fetch


def fetch_request(
    cluster_id: str,
    replica: ReplicaKey,
    epoch: int,
    end: OffsetAndEpoch,
    high_watermark: int,
    max_wait_ms: int,
    max_bytes: int,
) -> Any:
    return fetch_messages.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch_messages.ReplicaState(replica_id=replica.id),
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        topics=[
            fetch_messages.FetchTopic(
                topic_id=TOPIC_ID,
                partitions=[
                    fetch_messages.FetchPartition(
                        partition=PARTITION,
                        current_leader_epoch=epoch,
                        last_fetched_epoch=end.epoch,
                        fetch_offset=end.offset,
                        replica_directory_id=replica.directory_id,
                        high_watermark=high_watermark,
                    )
                ],
            )
        ],
    )


def fetch_error(error: ErrorCode) -> Any:
    return fetch_messages.FetchResponse(error_code=error)


def fetch_response(
    version: int,
    error: ErrorCode,
    leader_id: int,
    epoch: int,
    leader: Endpoint | None,
    log_start_offset: int,
    high_watermark: int,
    diverging: OffsetAndEpoch | None = None,
    snapshot: OffsetAndEpoch | None = None,
) -> Any:
    partition = fetch_messages.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        current_leader=fetch_messages.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
        records=b"",
    )
    if diverging is not None:
        partition.diverging_epoch = fetch_messages.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
    if snapshot is not None:
        partition.snapshot_id = fetch_messages.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
    return fetch_messages.FetchResponse(
        responses=[fetch_messages.FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
        node_endpoints=_nodes(fetch_messages, "fetch", version, leader_id, leader),
    )


# FetchSnapshot


def fetch_snapshot_request(
    cluster_id: str, replica: ReplicaKey, epoch: int, snapshot: OffsetAndEpoch, position: int, max_bytes: int
) -> Any:
    return snapshot_messages.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=replica.id,
        max_bytes=max_bytes,
        topics=[
            snapshot_messages.RequestTopicSnapshot(
                name=TOPIC,
                partitions=[
                    snapshot_messages.RequestPartitionSnapshot(
                        partition=PARTITION,
                        current_leader_epoch=epoch,
                        snapshot_id=snapshot_messages.RequestSnapshotId(
                            end_offset=snapshot.offset, epoch=snapshot.epoch
                        ),
                        position=position,
                        replica_directory_id=replica.directory_id,
                    )
                ],
            )
        ],
    )


def fetch_snapshot_error(error: ErrorCode) -> Any:
    return snapshot_messages.FetchSnapshotResponse(error_code=error)


def fetch_snapshot_response(
    version: int,
    error: ErrorCode,
    leader_id: int,
    epoch: int | None,
    leader: Endpoint | None,
    snapshot: OffsetAndEpoch | None = None,
    size: int = 0,
    position: int = 0,
    topic: str = TOPIC,
    index: int = PARTITION,
) -> Any:
    partition = snapshot_messages.ResponsePartitionSnapshot(
        index=index, error_code=error, size=size, position=position, unaligned_records=b""
    )
    if epoch is not None:
        partition.current_leader = snapshot_messages.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
    if snapshot is not None:
        partition.snapshot_id = snapshot_messages.ResponseSnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
    return snapshot_messages.FetchSnapshotResponse(
        topics=[snapshot_messages.ResponseTopicSnapshot(name=topic, partitions=[partition])],
        node_endpoints=_nodes(snapshot_messages, "snapshot", version, leader_id, leader),
    )


# AddRaftVoter, RemoveRaftVoter


def api_versions_request() -> Any:
    """Build the ApiVersions request that asks a new voter for its range of kraft.version."""
    return ApiVersionsRequest(client_software_name="pykbroker", client_software_version="raft")


def add_voter_request(cluster_id: str, voter: VoterNode, timeout_ms: int, *, ack_when_committed: bool) -> Any:
    return add_messages.AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        listeners=[add_messages.Listener(name=e.listener, host=e.host, port=e.port) for e in voter.endpoints],
        ack_when_committed=ack_when_committed,
    )


def add_voter_response(error: ErrorCode, message: str | None = None) -> Any:
    return add_messages.AddRaftVoterResponse(error_code=error, error_message=_text(error, message))


def remove_voter_request(cluster_id: str, voter: ReplicaKey) -> Any:
    return remove_messages.RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=voter.id, voter_directory_id=voter.directory_id
    )


def remove_voter_response(error: ErrorCode, message: str | None = None) -> Any:
    return remove_messages.RemoveRaftVoterResponse(error_code=error, error_message=_text(error, message))


def _text(error: ErrorCode, message: str | None) -> str | None:
    return error.message if message is None and error is not ErrorCode.NONE else message


# UpdateRaftVoter


def update_voter_request(cluster_id: str, epoch: int, voter: VoterNode) -> Any:
    return update_messages.UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=epoch,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        listeners=[update_messages.Listener(name=e.listener, host=e.host, port=e.port) for e in voter.endpoints],
        kraft_version_feature=update_messages.KRaftVersionFeature(
            min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
        ),
    )


def update_voter_response(error: ErrorCode, leader_id: int, epoch: int, leader: Endpoint | None) -> Any:
    current = update_messages.CurrentLeader(leader_id=leader_id, leader_epoch=epoch)
    if leader is not None and leader_id >= 0:
        current.host, current.port = leader.host, leader.port
    return update_messages.UpdateRaftVoterResponse(error_code=error, current_leader=current)
