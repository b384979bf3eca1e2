"""FetchSnapshot, both sides: a leader serves pieces of a snapshot, a follower collects them and starts its log after
it.

Responsible for positions and identities; the bytes go through `SnapshotChunk` and `ReadSnapshot`. A leader never
takes a snapshot from another (R11); a follower's log is emptied only once the whole snapshot is in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykbroker_raft import fetching, rpc
from pykbroker_raft.election import check_cluster, check_leader_request, handle_common
from pykbroker_raft.log_view import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from pykbroker_raft.ready import Destination, Now, ReadSnapshot, SnapshotChunk
from pykbroker_raft.states import Follower, Leader, SnapshotDownload
from pykbroker_raft.voters import ReplicaKey, VoterSet
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker_raft.node import Inbound, RaftNode


def handle_request(node: RaftNode, inbound: Inbound, now: Now) -> None:
    request = inbound.request
    if not check_cluster(node, request.cluster_id):
        return node.reply(inbound, rpc.fetch_snapshot_error(ErrorCode.INCONSISTENT_CLUSTER_ID))
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return node.reply(inbound, rpc.fetch_snapshot_error(ErrorCode.INVALID_REQUEST))
    endpoint = node.leader_endpoint_for(inbound.listener)
    leader_id = node.leader_id_or_none_known
    partition = rpc.one_snapshot_partition(request.topics)
    if partition is None:
        topic = request.topics[0]
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        index = topic.partitions[0].partition
        response = rpc.fetch_snapshot_response(
            inbound.version, error, leader_id, None, endpoint, topic=topic.name, index=index
        )
        return node.reply(inbound, response)
    error = check_leader_request(node, partition.current_leader_epoch)
    snapshot = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    size = node.log.snapshots.get(snapshot)
    if error is ErrorCode.NONE:
        if size is None or snapshot == BOOTSTRAP_SNAPSHOT:
            # The voters of the bootstrap checkpoint are in the log; the file itself is each node's own.
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= partition.position < size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
    if error is not ErrorCode.NONE:
        response = rpc.fetch_snapshot_response(inbound.version, error, leader_id, node.epoch, endpoint)
        return node.reply(inbound, response)
    assert size is not None
    assert isinstance(node.state, Leader)
    replica = ReplicaKey(request.replica_id, bytes(partition.replica_directory_id))
    fetching.heard_from_voter(node, node.state, replica, now)
    response = rpc.fetch_snapshot_response(
        inbound.version, ErrorCode.NONE, leader_id, node.epoch, endpoint, snapshot, size, partition.position
    )
    limit = max(1, min(request.max_bytes, node.config.snapshot_max_bytes, size - partition.position))
    node.reply(inbound, response, ReadSnapshot(snapshot, partition.position, limit))


def build_request(node: RaftNode, download: SnapshotDownload) -> Any:
    return rpc.fetch_snapshot_request(
        node.config.cluster_id,
        node.config.key,
        node.epoch,
        download.id,
        download.position,
        node.config.snapshot_max_bytes,
    )


def handle_response(node: RaftNode, source: Destination, response: Any, now: Now) -> bool:
    partition = rpc.one_snapshot_partition(response.topics) if response.error_code == ErrorCode.NONE else None
    if partition is None:
        return False
    leader_id, epoch = partition.current_leader.leader_id, partition.current_leader.leader_epoch
    endpoints = rpc.endpoints_from(response.node_endpoints, leader_id, node.config.listener)
    error = ErrorCode(partition.error_code)
    handled = handle_common(node, error, leader_id, epoch, endpoints, now)
    if handled is not None:
        return handled
    follower = node.state
    if not isinstance(follower, Follower) or follower.download is None:
        return False
    follower.fetch_deadline_ms = now.steady_ms + node.config.fetch_timeout_ms
    snapshot = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    download = follower.download
    data = bytes(partition.unaligned_records or b"")
    if (
        error is not ErrorCode.NONE
        or snapshot != download.id
        or partition.position != download.position
        or not data
        or download.position + len(data) > partition.size
    ):
        # Gone from the leader, or an answer to something else: start over with a Fetch.
        follower.download = None
        return error is ErrorCode.SNAPSHOT_NOT_FOUND
    last = download.position + len(data) == partition.size
    node.pending.log.append(SnapshotChunk(download.id, download.position, data, last))
    download.position += len(data)
    follower.has_fetched = True
    if last:
        follower.download = None
        node.installing = True
    return True


def installed(
    node: RaftNode, snapshot: OffsetAndEpoch, size: int, voters: VoterSet | None, kraft_version: int, now: Now
) -> None:
    node.installing = False
    node.log.restarted(snapshot, size)
    node.history.reset(snapshot.offset - 1, voters, kraft_version)
    node.set_high_watermark(snapshot.offset)
    if isinstance(node.state, Follower):
        node.state.fetch_deadline_ms = now.steady_ms + node.config.fetch_timeout_ms
