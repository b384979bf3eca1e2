"""The announcement and the end of a leadership: BeginQuorumEpoch and EndQuorumEpoch, both sides.

Responsible for the timers of a leader and of a resigned leader. Not responsible for how a leader is elected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykbroker_raft import rpc
from pykbroker_raft.current_role import CurrentRole
from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.leader_news import LeaderNews
from pykbroker_raft.outbox import Outbox
from pykbroker_raft.ready import NEVER, Destination, Inbound, Now
from pykbroker_raft.replica_log import ReplicaLog
from pykbroker_raft.states import Follower, Leader, Resigned
from pykbroker_raft.voters import ReplicaKey, with_hosts
from pykbroker_wire.errors import ErrorCode


class QuorumEpochs:
    """Acts for one replica; without state of its own."""

    def __init__(
        self, config: RaftConfig, roles: CurrentRole, log: ReplicaLog, outbox: Outbox, news: LeaderNews
    ) -> None:
        self._config = config
        self._roles = roles
        self._log = log
        self._outbox = outbox
        self._news = news

    def _follow_sender(self, request: Any, partition: Any, now: Now) -> ErrorCode:
        """Follow the leader that sent the request: both requests come from a leader."""
        leader_id, epoch = rpc.leader_of(partition)
        error = self._news.check_voter_request(leader_id, epoch)
        if error is not ErrorCode.NONE:
            return error
        named = with_hosts(rpc.endpoints_from_request(request.leader_endpoints))
        endpoints = named or self._log.voters.endpoints(leader_id)
        is_followed = self._news.follow(leader_id, epoch, endpoints, now)
        return ErrorCode.NONE if is_followed else ErrorCode.INVALID_REQUEST

    def _reply(self, inbound: Inbound, build: Callable[..., Any], error: ErrorCode) -> None:
        roles = self._roles
        endpoint = roles.leader_endpoint_for(inbound.listener)
        response = build(inbound.version, error, roles.leader_id_or_none_known, roles.epoch, endpoint)
        self._outbox.reply(inbound.token, response)

    # BeginQuorumEpoch

    def handle_begin_request(self, inbound: Inbound, now: Now) -> None:
        request = inbound.request
        partition = rpc.one_partition(request.topics)
        error = self._news.check_request(request.cluster_id, partition)
        if error is not ErrorCode.NONE or partition is None:
            return self._outbox.reply(inbound.token, rpc.begin_error(error))
        error = self._follow_sender(request, partition, now)
        is_ours = self._news.is_for_this_replica(request.voter_id, partition.voter_directory_id)
        if error is ErrorCode.NONE and not is_ours:
            error = ErrorCode.INVALID_VOTER_KEY
        self._reply(inbound, rpc.begin_response, error)

    def handle_begin_response(self, source: Destination, response: Any, now: Now) -> bool:
        handled = self._news.take_voter_response(response, now)
        if handled is not None:
            return handled
        if isinstance(self._roles.state, Leader):
            self._roles.state.voter_acknowledged(source.id)
        return True

    def poll_leader(self, state: Leader, now: Now) -> int:
        others = [progress for progress in state.replicas.voters.values() if progress.key.id != self._config.node_id]
        # A leader that is the only voter has no deadline for fetches of others. A leader outside the voter set has one,
        # and leads until that set is committed.
        is_alone = len(state.replicas.voters) == 1 and not others
        check_quorum = NEVER if is_alone else state.check_quorum_deadline_ms
        if state.resign_requested or now.steady_ms >= check_quorum:
            self._roles.become_resigned(state, now)
            return now.steady_ms
        if not others:
            return NEVER
        if now.steady_ms >= state.begin_epoch_deadline_ms:
            interval = self._config.fetch_timeout_ms // 2
            state.tell_voters_again_at(now.steady_ms + interval)
            for progress in others:
                destination = self._roles.voter_destination(progress.key.id)
                quiet = not progress.acknowledged or now.steady_ms - progress.last_fetch_ms >= interval
                if destination is not None and quiet:
                    request = rpc.begin_request(
                        self._config.cluster_id, self._config.node_id, state.epoch, progress.key, self._config.endpoints
                    )
                    self._outbox.send_to(destination, request, now)
        return min(check_quorum, state.begin_epoch_deadline_ms)

    # EndQuorumEpoch

    def poll_resigned(self, state: Resigned, now: Now) -> int:
        deadline = NEVER if self._roles.shutting_down else state.election_deadline_ms
        if now.steady_ms >= deadline:
            # Take a higher epoch, so that responses no longer name this replica as the leader.
            self._roles.become_unattached(self._roles.epoch + 1, now)
            return now.steady_ms
        for voter_id in sorted(state.unacknowledged):
            destination = self._roles.voter_destination(voter_id)
            if destination is not None:
                request = rpc.end_request(
                    self._config.cluster_id,
                    self._config.node_id,
                    state.epoch,
                    state.preferred_successors,
                    self._config.endpoints,
                )
                deadline = min(deadline, self._outbox.send_to(destination, request, now))
        return deadline

    def handle_end_request(self, inbound: Inbound, now: Now) -> None:
        request = inbound.request
        partition = rpc.one_partition(request.topics)
        error = self._news.check_request(request.cluster_id, partition)
        if error is not ErrorCode.NONE or partition is None:
            return self._outbox.reply(inbound.token, rpc.end_error(error))
        error = self._follow_sender(request, partition, now)
        state = self._roles.state
        if error is ErrorCode.NONE and isinstance(state, Follower) and state.leader_id == partition.leader_id:
            successors = [
                ReplicaKey(candidate.candidate_id, bytes(candidate.candidate_directory_id))
                for candidate in partition.preferred_candidates
            ] or [ReplicaKey(successor) for successor in partition.preferred_successors]
            state.leader_left(now.steady_ms + self._succession_delay_ms(successors))
        self._reply(inbound, rpc.end_response, error)

    def _succession_delay_ms(self, successors: list[ReplicaKey]) -> int:
        """Return the delay before this voter stands for election: none for the first successor, longer for each later
        one."""
        own = self._config.key
        position = next(
            (index for index, key in enumerate(successors) if key in (own, ReplicaKey(own.id))), len(successors)
        )
        longest = self._config.election_backoff_max_ms
        if position == 0:
            return 0
        if position >= len(successors):
            return longest
        return min(longest, (longest >> (len(successors) - 1)) << (position - 1))

    def handle_end_response(self, source: Destination, response: Any, now: Now) -> bool:
        handled = self._news.take_voter_response(response, now)
        if handled is not None:
            return handled
        if isinstance(self._roles.state, Resigned):
            self._roles.state.voter_acknowledged(source.id)
        return True
