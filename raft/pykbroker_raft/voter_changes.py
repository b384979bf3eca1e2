"""Changes to the voter set (KIP-853). Today: a voter may renew its own entry (UpdateRaftVoter), which needs no quorum
arithmetic.

Adding and removing voters is a later issue; the driver answers those requests with UNSUPPORTED_VERSION. One change at
a time: a second one is refused while a voter set is not committed (R13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykbroker_raft import batches, rpc
from pykbroker_raft.election import check_cluster, check_leader_request, handle_common
from pykbroker_raft.ready import Destination, Now
from pykbroker_raft.states import Follower, Leader
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, address
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker_raft.node import Inbound, RaftNode


def handle_update_request(node: RaftNode, inbound: Inbound, now: Now) -> None:
    error = _update(node, inbound.request, now)
    endpoint = node.leader_endpoint_for(inbound.listener)
    node.reply(inbound, rpc.update_voter_response(error, node.leader_id_or_none_known, node.epoch, endpoint))


def _update(node: RaftNode, request: Any, now: Now) -> ErrorCode:
    if not check_cluster(node, request.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    error = check_leader_request(node, request.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return error
    leader = node.state
    assert isinstance(leader, Leader)
    key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
    endpoints = tuple(Endpoint(item.name, item.host, item.port) for item in request.listeners)
    feature = request.kraft_version_feature
    low, high = feature.min_supported_version, feature.max_supported_version
    if key.id < 0 or not key.has_directory or address(endpoints, node.config.listener) is None or not 0 <= low <= high:
        return ErrorCode.INVALID_REQUEST
    if node.history.kraft_version < 1:
        # Configured voters have no record to change. Kafka's leader remembers what the voter says, for the day
        # on which kraft.version is raised; as long as ours cannot raise it there is nothing to do, and nothing wrong.
        return ErrorCode.NONE if node.voters.is_voter(key) else ErrorCode.VOTER_NOT_FOUND
    offset = node.history.voters_offset
    if leader.high_watermark is None or offset is None or offset >= leader.high_watermark:
        return ErrorCode.REQUEST_TIMED_OUT
    if not low <= node.history.kraft_version <= high:
        return ErrorCode.INVALID_REQUEST
    updated = node.voters.updated(VoterNode(key, endpoints, low, high))
    if updated is None:
        return ErrorCode.VOTER_NOT_FOUND
    node.append_control([batches.voters(updated)], now)
    return ErrorCode.NONE


def maybe_send_update(node: RaftNode, state: Follower, now: Now) -> None:
    """A voter whose entry is out of date tells the leader."""
    endpoint = address(state.leader_endpoints, node.config.listener)
    if node.history.kraft_version < 1 or endpoint is None or not node.voters.needs_update(node.config.as_voter):
        return
    request = rpc.update_voter_request(node.config.cluster_id, node.epoch, node.config.as_voter)
    node.send_to(Destination(state.leader_id, endpoint.host, endpoint.port), request, now)


def handle_update_response(node: RaftNode, source: Destination, response: Any, now: Now) -> bool:
    current = response.current_leader
    endpoints = (
        (Endpoint(node.config.listener, current.host, current.port),) if current.leader_id >= 0 and current.host else ()
    )
    error = ErrorCode(response.error_code)
    handled = handle_common(node, error, current.leader_id, current.leader_epoch, endpoints, now)
    return True if handled is None else handled
