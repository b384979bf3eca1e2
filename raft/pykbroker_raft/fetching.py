"""Fetch, both sides: a leader serves its log and counts what replicas have; a follower appends, cuts, learns the high
watermark.

Responsible for the verdict on a fetch position (KIP-595: the divergence by epoch comes in the answer), for parked
fetches, and for when a follower or an observer asks whom. A fetch is an acknowledgement: a replica asks from `offset`
only when everything below it is fsynced, unless it can never be a voter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pykbroker_raft import batches, rpc, snapshotting, voter_changes
from pykbroker_raft.election import NEVER, check_cluster, check_leader_request, handle_common
from pykbroker_raft.log_view import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch, Verdict
from pykbroker_raft.ready import Append, Destination, Now, ReadLog, Truncate
from pykbroker_raft.states import Follower, Leader, SnapshotDownload, Unattached
from pykbroker_raft.voters import ReplicaKey, address
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker_raft.node import Inbound, RaftNode


@dataclass(slots=True)
class Parked:
    """A fetch that waits for records or a newer high watermark."""

    token: int
    version: int
    listener: str
    replica: ReplicaKey
    partition: Any
    max_bytes: int
    deadline_ms: int


# The leader's side


def handle_request(node: RaftNode, inbound: Inbound, now: Now) -> None:
    request = inbound.request
    if not check_cluster(node, request.cluster_id):
        return node.reply(inbound, rpc.fetch_error(ErrorCode.INCONSISTENT_CLUSTER_ID))
    partition = rpc.one_fetch_partition(request.topics)
    if partition is None:
        return node.reply(inbound, rpc.fetch_error(ErrorCode.INVALID_REQUEST))
    replica_id = request.replica_state.replica_id if inbound.version >= 15 else request.replica_id
    replica = ReplicaKey(replica_id, bytes(partition.replica_directory_id))
    parked = Parked(
        inbound.token,
        inbound.version,
        inbound.listener,
        replica,
        partition,
        min(request.max_bytes, node.config.fetch_max_bytes),
        now.steady_ms + request.max_wait_ms,
    )
    if (
        request.max_wait_ms < 0
        or partition.fetch_offset < 0
        or partition.last_fetched_epoch < 0
        or partition.last_fetched_epoch > partition.current_leader_epoch
        or replica_id == node.config.node_id
    ):
        return node.reply(inbound, _empty(node, parked, ErrorCode.INVALID_REQUEST))
    if not _try_answer(node, parked, now, must=request.max_wait_ms == 0):
        node.parked.append(parked)


def _empty(node: RaftNode, parked: Parked, error: ErrorCode, high_watermark: int = -1) -> Any:
    return rpc.fetch_response(
        parked.version,
        error,
        node.leader_id_or_none_known,
        node.epoch,
        node.leader_endpoint_for(parked.listener),
        node.log.start_offset,
        high_watermark,
    )


def _try_answer(node: RaftNode, parked: Parked, now: Now, must: bool) -> bool:
    """Answer if there is something to say, or if it must be now."""
    partition = parked.partition
    error = check_leader_request(node, partition.current_leader_epoch)
    if error is not ErrorCode.NONE:
        node.reply(parked, _empty(node, parked, error))
        return True
    leader = node.state
    assert isinstance(leader, Leader)
    offset = partition.fetch_offset
    latest = node.log.latest_snapshot
    if offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
        # An empty replica is always better off with the snapshot than with the log.
        verdict, where = Verdict.SNAPSHOT, latest
    else:
        verdict, where = node.log.validate(offset, partition.last_fetched_epoch)
    if verdict is Verdict.VALID:
        _count(node, leader, parked.replica, offset, now)
    high_watermark = -1 if leader.high_watermark is None else leader.high_watermark
    has_records = verdict is Verdict.VALID and offset < node.log.end_offset
    news = has_records or verdict is not Verdict.VALID or partition.high_watermark < high_watermark
    if not news and not must:
        return False
    response = rpc.fetch_response(
        parked.version,
        ErrorCode.NONE,
        node.leader_id_or_none_known,
        node.epoch,
        node.leader_endpoint_for(parked.listener),
        node.log.start_offset,
        high_watermark,
        where if verdict is Verdict.DIVERGING else None,
        where if verdict is Verdict.SNAPSHOT else None,
    )
    node.reply(parked, response, ReadLog(offset, parked.max_bytes) if has_records else None)
    return True


def _count(node: RaftNode, leader: Leader, replica: ReplicaKey, offset: int, now: Now) -> None:
    if replica.id < 0:
        # Not a replica: somebody reads.
        return
    progress = leader.replicas.find_or_add(replica)
    progress.fetched(offset, node.log.end_offset, now.steady_ms, now.wall_ms)
    heard_from_voter(node, leader, replica, now)
    if leader.replicas.is_voter(progress):
        node.advance_high_watermark(leader)


def heard_from_voter(node: RaftNode, leader: Leader, replica: ReplicaKey, now: Now) -> None:
    """A leader that a majority no longer fetches from steps down; this is where it hears from them."""
    progress = leader.replicas.find(replica)
    if progress is None or not leader.replicas.is_voter(progress):
        return
    leader.fetched_voters.add(replica.id)
    needed = len(leader.replicas.voters) // 2 + 1
    if node.config.node_id in leader.replicas.voters:
        needed -= 1
    if len(leader.fetched_voters) >= needed:
        leader.fetched_voters.clear()
        leader.check_quorum_deadline_ms = now.steady_ms + node.config.fetch_timeout_ms * 3 // 2


def poll_parked(node: RaftNode, now: Now) -> int:
    """Answer whoever has something to learn or has waited long enough; when to look again."""
    while node.parked:
        before = node.high_watermark
        waiting, node.parked = node.parked, []
        for parked in waiting:
            if not _try_answer(node, parked, now, must=now.steady_ms >= parked.deadline_ms):
                node.parked.append(parked)
        if node.high_watermark == before:
            break
    return min((parked.deadline_ms for parked in node.parked), default=NEVER)


def fail_parked(node: RaftNode) -> None:
    """No leader any more: let them look for another one."""
    waiting, node.parked = node.parked, []
    for parked in waiting:
        node.reply(parked, _empty(node, parked, ErrorCode.NOT_LEADER_OR_FOLLOWER))


# The follower's side


def handle_response(node: RaftNode, source: Destination, response: Any, now: Now) -> bool:
    partition = rpc.one_fetch_partition(response.responses) if response.error_code == ErrorCode.NONE else None
    if partition is None:
        return False
    leader_id, epoch = partition.current_leader.leader_id, partition.current_leader.leader_epoch
    endpoints = rpc.endpoints_from(response.node_endpoints, leader_id, node.config.listener)
    error = ErrorCode(partition.error_code)
    handled = handle_common(node, error, leader_id, epoch, endpoints, now)
    if handled is not None:
        return handled
    follower = node.state
    if error is not ErrorCode.NONE or not isinstance(follower, Follower):
        return False
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    if diverging.epoch >= 0:
        if not _truncate(node, OffsetAndEpoch(diverging.end_offset, diverging.epoch)):
            return False
    elif snapshot.epoch >= 0 or snapshot.end_offset >= 0:
        if snapshot.epoch < 0 or snapshot.end_offset < 0:
            return False
        wanted = OffsetAndEpoch(snapshot.end_offset, snapshot.epoch)
        if wanted not in node.log.snapshots:
            follower.download = SnapshotDownload(wanted)
    else:
        if partition.records:
            _append(node, partition.records)
        if partition.high_watermark >= 0:
            node.set_high_watermark(min(partition.high_watermark, node.log.end_offset))
    follower.has_fetched = True
    follower.fetch_deadline_ms = now.steady_ms + node.config.fetch_timeout_ms
    return True


def _truncate(node: RaftNode, leader_end: OffsetAndEpoch) -> bool:
    if node.high_watermark is not None and leader_end.offset < node.high_watermark:
        raise AssertionError(
            f"the leader's log ends its epoch {leader_end.epoch} at {leader_end.offset}, below what is committed: "
            f"{node.high_watermark}"
        )
    offset = node.log.truncation_point(leader_end)
    if node.high_watermark is not None and offset < node.high_watermark:
        raise AssertionError(f"truncation to {offset} would cut below the high watermark {node.high_watermark}")
    node.log.truncated(offset)
    node.history.truncate(offset)
    node.pending.log.append(Truncate(offset))
    return True


def _append(node: RaftNode, records: Any) -> None:
    """Take what is whole, intact and not from the future; the rest comes again."""
    data = bytes(records)
    end = 0
    base = node.log.end_offset
    for batch in batches.intact(data):
        if batch.base_offset != node.log.end_offset or not node.log.last_epoch <= batch.epoch <= node.epoch:
            break
        node.log.appended(batch.base_offset, batch.next_offset, batch.epoch)
        end = batch.position + batch.size
    if end == 0:
        return
    data = data[:end]
    node.pending.log.append(Append(base, node.log.end_offset, data))
    if node.must_flush:
        node.pending.flush = True
    else:
        # Nobody counts an observer that stays one: it need not wait for the disk.
        node.log.durable_offset = node.log.end_offset
    node.note_control(data)


def _fetch_request(node: RaftNode) -> Any:
    return rpc.fetch_request(
        node.config.cluster_id,
        node.config.key,
        node.epoch,
        node.log.end,
        -1 if node.high_watermark is None else node.high_watermark,
        node.config.fetch_max_wait_ms,
        node.config.fetch_max_bytes,
    )


def _may_fetch(node: RaftNode) -> bool:
    return not node.installing and node.log.durable_offset == node.log.end_offset


def _ask_leader(node: RaftNode, state: Follower, now: Now) -> int:
    """Fetch, or fetch a piece of the snapshot."""
    if not _may_fetch(node):
        # `flushed` or `snapshot_installed` comes and polls.
        return NEVER
    endpoint = address(state.leader_endpoints, node.config.listener)
    assert endpoint is not None
    leader = Destination(state.leader_id, endpoint.host, endpoint.port)
    if not node.connections.is_ready(leader.id, now.steady_ms):
        return node.connections.ready_at(leader.id)
    request = _fetch_request(node) if state.download is None else snapshotting.build_request(node, state.download)
    return node.send_to(leader, request, now)


def _ask_anybody(node: RaftNode, now: Now) -> int:
    """Fetch from some known server: its answer names the leader."""
    if not _may_fetch(node):
        return NEVER
    destination = node.connections.find_ready_bootstrap(now.steady_ms, node.chance)
    if destination is None:
        if not node.connections.bootstrap:
            return NEVER
        return node.connections.any_ready_at(now.steady_ms)
    return node.send_to(destination, _fetch_request(node), now)


def poll_follower(node: RaftNode, state: Follower, now: Now) -> int:
    if node.shutting_down:
        return NEVER
    expired = now.steady_ms >= state.fetch_deadline_ms
    if node.is_voter:
        if expired:
            node.become_prospective(now)
            return now.steady_ms
        if now.steady_ms >= state.update_voter_deadline_ms:
            state.update_voter_deadline_ms = now.steady_ms + 3 * node.config.fetch_timeout_ms
            voter_changes.maybe_send_update(node, state, now)
        deadline = _ask_leader(node, state, now)
        return min(deadline, state.fetch_deadline_ms, state.update_voter_deadline_ms)
    if expired:
        return _ask_anybody(node, now)
    if node.connections.has_timed_out(state.leader_id, now.steady_ms):
        node.connections.reset(state.leader_id)
        deadline = _ask_anybody(node, now)
    elif node.connections.is_backing_off(state.leader_id, now.steady_ms):
        deadline = _ask_anybody(node, now)
    elif not node.connections.any_in_flight(now.steady_ms):
        deadline = _ask_leader(node, state, now)
    else:
        deadline = node.connections.any_ready_at(now.steady_ms)
    return min(deadline, state.fetch_deadline_ms)


def poll_unattached(node: RaftNode, state: Unattached, now: Now) -> int:
    if node.shutting_down:
        return NEVER
    if not node.is_voter:
        return _ask_anybody(node, now)
    if state.election_deadline_ms is None:
        state.election_deadline_ms = now.steady_ms + node.random_election_timeout_ms()
    if now.steady_ms >= state.election_deadline_ms:
        node.become_prospective(now)
        return now.steady_ms
    # A voter that lost sight of the leader asks around meanwhile, as an observer does.
    return min(_ask_anybody(node, now), state.election_deadline_ms)
