"""Elections: who gets a vote, what an answer means, how a leader announces itself and leaves.

Responsible for Vote (with KIP-996 pre-votes), BeginQuorumEpoch and EndQuorumEpoch, both sides, and for the timers of
the roles that take part. Functions over a `RaftNode`; a vote is in its Ready before the reply that grants it (R3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykbroker_raft import rpc
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.ready import Destination, Now
from pykbroker_raft.states import Candidate, Follower, Leader, Prospective, Resigned, State, Unattached
from pykbroker_raft.voters import Endpoints, ReplicaKey, address
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker_raft.node import Inbound, RaftNode

NEVER = 1 << 62


def may_grant(state: State, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool) -> bool:
    """Whether a replica in this state, in the candidate's epoch, gives its vote; a pre-vote binds to nothing."""
    match state:
        case Leader() | Resigned():
            return False
        case Candidate():
            return pre_vote and log_is_up_to_date
        case Follower():
            # A follower that hears its leader says no: that is what keeps a returning replica from disturbing the
            # quorum.
            return pre_vote and log_is_up_to_date and not state.has_fetched
        case Unattached() | Prospective():
            if pre_vote:
                return log_is_up_to_date
            if state.voted is not None:
                same_directory = not state.voted.has_directory or state.voted.directory_id == candidate.directory_id
                return state.voted.id == candidate.id and same_directory
            return state.leader_id is None and log_is_up_to_date


def check_cluster(node: RaftNode, cluster_id: str | None) -> bool:
    """A request may leave the cluster id out; a wrong one is refused."""
    return cluster_id is None or cluster_id == node.config.cluster_id


def check_leader_request(node: RaftNode, epoch: int) -> ErrorCode:
    """Whether a request that only a leader answers, sent in `epoch`, may be answered here."""
    if epoch < node.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > node.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not node.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if node.shutting_down:
        return ErrorCode.BROKER_NOT_AVAILABLE
    return ErrorCode.NONE


def _check_voter_request(node: RaftNode, remote_id: int, epoch: int) -> ErrorCode:
    if epoch < node.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if remote_id < 0 else ErrorCode.NONE


def _is_for_this_replica(node: RaftNode, voter_id: int, directory_id: bytes) -> bool:
    if voter_id < 0:
        return True
    if voter_id != node.config.node_id:
        return False
    key = ReplicaKey(voter_id, bytes(directory_id))
    return not key.has_directory or key.directory_id == node.config.directory_id


# What any message tells about the leader


def is_consistent(node: RaftNode, epoch: int, leader_id: int) -> bool:
    """One leader per epoch (R1): whoever says otherwise is wrong."""
    if leader_id >= 0 and leader_id == node.config.node_id:
        return node.is_leader and epoch == node.epoch
    return epoch != node.epoch or leader_id < 0 or node.leader_id is None or node.leader_id == leader_id


def tells_more(node: RaftNode, leader_id: int, endpoints: Endpoints) -> bool:
    """Whether a message of this epoch names a leader that was not known, or more of its endpoints. A pre-candidate that
    knows its leader is told nothing new by those who still follow it; it would never come to an election otherwise."""
    if leader_id < 0 or isinstance(node.state, (Leader, Resigned)):
        return False
    return node.leader_id is None or len(endpoints) > len(node.leader_endpoints)


def maybe_transition(node: RaftNode, leader_id: int, epoch: int, endpoints: Endpoints, now: Now) -> bool:
    """Follow what a message says about epoch and leader; False when that cannot be true."""
    if not is_consistent(node, epoch, leader_id):
        return False
    reachable = address(endpoints, node.config.listener) is not None
    if epoch > node.epoch:
        if leader_id >= 0 and reachable:
            node.become_follower(epoch, leader_id, endpoints, now)
        else:
            node.become_unattached(epoch, now, leader_id if leader_id >= 0 else None)
    elif epoch == node.epoch and reachable and tells_more(node, leader_id, endpoints):
        node.become_follower(epoch, leader_id, endpoints, now)
    return True


def handle_common(
    node: RaftNode, error: ErrorCode, leader_id: int, epoch: int, endpoints: Endpoints, now: Now
) -> bool | None:
    """What every response has to say besides its matter. None: go on with the matter; else whether the request
    succeeded."""
    if leader_id >= 0 and not endpoints:
        endpoints = node.voters.endpoints(leader_id)
    if epoch < node.epoch or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
        return True
    if epoch > node.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return maybe_transition(node, leader_id, epoch, endpoints, now)
    if leader_id != node.config.node_id and tells_more(node, leader_id, endpoints):
        # An observer learns of the leader and takes its records in one and the same Fetch.
        if not maybe_transition(node, leader_id, epoch, endpoints, now):
            return False
        if error is not ErrorCode.NONE or not isinstance(node.state, Follower):
            return True
        return None
    if error is ErrorCode.BROKER_NOT_AVAILABLE:
        return False
    if error is ErrorCode.INVALID_VOTER_KEY:
        return True
    if error is not ErrorCode.NONE:
        return None
    return None if is_consistent(node, epoch, leader_id) or leader_id == node.config.node_id else False


# Vote


def handle_vote_request(node: RaftNode, inbound: Inbound, now: Now) -> None:
    request = inbound.request
    partition = rpc.one_partition(request.topics)
    if not check_cluster(node, request.cluster_id):
        return node.reply(inbound, rpc.vote_error(ErrorCode.INCONSISTENT_CLUSTER_ID))
    if partition is None:
        return node.reply(inbound, rpc.vote_error(ErrorCode.INVALID_REQUEST))
    candidate = ReplicaKey(partition.replica_id, bytes(partition.replica_directory_id))
    epoch, pre_vote = partition.replica_epoch, partition.pre_vote
    end = OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch)
    # A candidate has raised its epoch above that of its log, a pre-candidate has not.
    illegal = end.epoch > epoch if pre_vote else end.epoch >= epoch
    error = ErrorCode.NONE
    granted = False
    if end.offset < 0 or end.epoch < 0 or illegal or candidate.id == node.config.node_id:
        error = ErrorCode.INVALID_REQUEST
    else:
        error = _check_voter_request(node, candidate.id, epoch)
    if error is ErrorCode.NONE:
        if epoch > node.epoch:
            node.become_unattached(epoch, now)
        if not _is_for_this_replica(node, request.voter_id, partition.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        else:
            granted = may_grant(node.state, candidate, end >= node.log.end, pre_vote)
            if granted and not pre_vote and node.state.voted is None:
                node.give_vote(candidate, epoch, now)
    endpoint = node.leader_endpoint_for(inbound.listener)
    node.reply(
        inbound,
        rpc.vote_response(inbound.version, error, node.leader_id_or_none_known, node.epoch, endpoint, granted),
    )


def handle_vote_response(node: RaftNode, source: Destination, response: Any, now: Now) -> bool:
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(node.state, Prospective):
        # A voter that knows no pre-vote: elect as before KIP-996.
        node.become_candidate(now)
        return True
    partition = rpc.one_partition(response.topics)
    if response.error_code != ErrorCode.NONE or partition is None:
        return False
    endpoints = rpc.endpoints_from(response.node_endpoints, partition.leader_id, node.config.listener)
    error = ErrorCode(partition.error_code)
    state = node.state
    handled = handle_common(node, error, partition.leader_id, partition.leader_epoch, endpoints, now)
    if handled is not None:
        return handled
    if error is not ErrorCode.NONE:
        return False
    if node.state is state and isinstance(state, (Candidate, Prospective)):
        state.votes.record(source.id, partition.vote_granted)
        node.advance_election(now)
    return True


def _send_votes(node: RaftNode, state: Candidate | Prospective, now: Now) -> int:
    deadline = NEVER
    pre_vote = isinstance(state, Prospective)
    for voter in state.votes.unheard():
        destination = node.voter_destination(voter.id)
        if destination is None:
            continue
        request = rpc.vote_request(node.config.cluster_id, node.config.key, state.epoch, voter, node.log.end, pre_vote)
        deadline = min(deadline, node.send_to(destination, request, now))
    return deadline


def poll_candidate(node: RaftNode, state: Candidate, now: Now) -> int:
    if node.shutting_down:
        return _send_votes(node, state, now)
    if now.steady_ms >= state.election_deadline_ms or not node.is_voter:
        if node.is_voter:
            node.become_prospective(now)
        else:
            node.become_unattached(node.epoch + 1, now)
        return now.steady_ms
    return min(_send_votes(node, state, now), state.election_deadline_ms)


def poll_prospective(node: RaftNode, state: Prospective, now: Now) -> int:
    if node.shutting_down:
        return _send_votes(node, state, now)
    if now.steady_ms >= state.election_deadline_ms or not node.is_voter:
        node.lose_prospective(now)
        return now.steady_ms
    return min(_send_votes(node, state, now), state.election_deadline_ms)


# BeginQuorumEpoch


def handle_begin_request(node: RaftNode, inbound: Inbound, now: Now) -> None:
    request = inbound.request
    partition = rpc.one_partition(request.topics)
    if not check_cluster(node, request.cluster_id):
        return node.reply(inbound, rpc.begin_error(ErrorCode.INCONSISTENT_CLUSTER_ID))
    if partition is None:
        return node.reply(inbound, rpc.begin_error(ErrorCode.INVALID_REQUEST))
    error = _check_voter_request(node, partition.leader_id, partition.leader_epoch)
    if error is ErrorCode.NONE:
        endpoints = rpc.endpoints_from_request(request.leader_endpoints) or node.voters.endpoints(partition.leader_id)
        if not maybe_transition(node, partition.leader_id, partition.leader_epoch, endpoints, now):
            error = ErrorCode.INVALID_REQUEST
        elif not _is_for_this_replica(node, request.voter_id, partition.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
    endpoint = node.leader_endpoint_for(inbound.listener)
    node.reply(inbound, rpc.begin_response(inbound.version, error, node.leader_id_or_none_known, node.epoch, endpoint))


def handle_begin_response(node: RaftNode, source: Destination, response: Any, now: Now) -> bool:
    partition = rpc.one_partition(response.topics)
    if response.error_code != ErrorCode.NONE or partition is None:
        return False
    endpoints = rpc.endpoints_from(response.node_endpoints, partition.leader_id, node.config.listener)
    error = ErrorCode(partition.error_code)
    handled = handle_common(node, error, partition.leader_id, partition.leader_epoch, endpoints, now)
    if handled is not None:
        return handled
    if error is not ErrorCode.NONE:
        return False
    if isinstance(node.state, Leader) and source.id in node.state.replicas.voters:
        node.state.replicas.voters[source.id].acknowledged = True
    return True


def poll_leader(node: RaftNode, state: Leader, now: Now) -> int:
    others = [progress for progress in state.replicas.voters.values() if progress.key.id != node.config.node_id]
    # A leader outside the voter set leads until somebody else does; the only voter needs nobody's fetches.
    check_quorum = NEVER if len(state.replicas.voters) == 1 else state.check_quorum_deadline_ms
    if state.resign_requested or now.steady_ms >= check_quorum:
        resign(node, state, now)
        return now.steady_ms
    if not others:
        return NEVER
    if now.steady_ms >= state.begin_epoch_deadline_ms:
        interval = node.config.fetch_timeout_ms // 2
        state.begin_epoch_deadline_ms = now.steady_ms + interval
        for progress in others:
            destination = node.voter_destination(progress.key.id)
            quiet = not progress.acknowledged or now.steady_ms - progress.last_fetch_ms >= interval
            if destination is not None and quiet:
                request = rpc.begin_request(
                    node.config.cluster_id, node.config.node_id, state.epoch, progress.key, node.config.endpoints
                )
                node.send_to(destination, request, now)
    return min(check_quorum, state.begin_epoch_deadline_ms)


# EndQuorumEpoch


def resign(node: RaftNode, state: Leader, now: Now) -> None:
    """Step down and tell the others, the most advanced first in line."""
    others = state.replicas.others_by_offset()
    node.become(
        Resigned(
            state.epoch,
            node.config.node_id,
            [progress.key for progress in others],
            {progress.key.id for progress in others},
            now.steady_ms + node.random_election_timeout_ms(),
        ),
        now,
    )
    node.connections.reset_all()


def poll_resigned(node: RaftNode, state: Resigned, now: Now) -> int:
    deadline = NEVER if node.shutting_down else state.election_deadline_ms
    if now.steady_ms >= deadline:
        # A higher epoch, so that answers no longer name this replica as the leader.
        node.become_unattached(node.epoch + 1, now)
        return now.steady_ms
    for voter_id in sorted(state.unacknowledged):
        destination = node.voter_destination(voter_id)
        if destination is not None:
            request = rpc.end_request(
                node.config.cluster_id,
                node.config.node_id,
                state.epoch,
                state.preferred_successors,
                node.config.endpoints,
            )
            deadline = min(deadline, node.send_to(destination, request, now))
    return deadline


def handle_end_request(node: RaftNode, inbound: Inbound, now: Now) -> None:
    request = inbound.request
    partition = rpc.one_partition(request.topics)
    if not check_cluster(node, request.cluster_id):
        return node.reply(inbound, rpc.end_error(ErrorCode.INCONSISTENT_CLUSTER_ID))
    if partition is None:
        return node.reply(inbound, rpc.end_error(ErrorCode.INVALID_REQUEST))
    error = _check_voter_request(node, partition.leader_id, partition.leader_epoch)
    if error is ErrorCode.NONE:
        endpoints = rpc.endpoints_from_request(request.leader_endpoints) or node.voters.endpoints(partition.leader_id)
        if not maybe_transition(node, partition.leader_id, partition.leader_epoch, endpoints, now):
            error = ErrorCode.INVALID_REQUEST
        elif isinstance(node.state, Follower) and node.state.leader_id == partition.leader_id:
            successors = [
                ReplicaKey(candidate.candidate_id, bytes(candidate.candidate_directory_id))
                for candidate in partition.preferred_candidates
            ] or [ReplicaKey(successor) for successor in partition.preferred_successors]
            node.state.fetch_deadline_ms = now.steady_ms + _succession_delay_ms(node, successors)
            # The leader is gone for certain: others may pre-vote with this replica's blessing.
            node.state.has_fetched = False
    endpoint = node.leader_endpoint_for(inbound.listener)
    node.reply(inbound, rpc.end_response(inbound.version, error, node.leader_id_or_none_known, node.epoch, endpoint))


def _succession_delay_ms(node: RaftNode, successors: list[ReplicaKey]) -> int:
    """The first in line stands at once, the others the later the farther back they are."""
    own = node.config.key
    position = next(
        (index for index, key in enumerate(successors) if key in (own, ReplicaKey(own.id))), len(successors)
    )
    longest = node.config.election_backoff_max_ms
    if position == 0:
        return 0
    if position >= len(successors):
        return longest
    return min(longest, (longest >> (len(successors) - 1)) << (position - 1))


def handle_end_response(node: RaftNode, source: Destination, response: Any, now: Now) -> bool:
    partition = rpc.one_partition(response.topics)
    if response.error_code != ErrorCode.NONE or partition is None:
        return False
    endpoints = rpc.endpoints_from(response.node_endpoints, partition.leader_id, node.config.listener)
    error = ErrorCode(partition.error_code)
    handled = handle_common(node, error, partition.leader_id, partition.leader_epoch, endpoints, now)
    if handled is not None:
        return handled
    if error is not ErrorCode.NONE:
        return False
    if isinstance(node.state, Resigned):
        node.state.unacknowledged.discard(source.id)
    return True
