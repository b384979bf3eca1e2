"""Changes to the voter set (KIP-853). Today: a voter may renew its own entry (UpdateRaftVoter), which needs no quorum
arithmetic.

Adding and removing voters is a later issue; the driver answers those requests with UNSUPPORTED_VERSION. One change at
a time: a second one is refused while a voter set is not committed (R13).
"""

from __future__ import annotations

from typing import Any

from pykbroker_raft import batches, rpc
from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.leader_news import LeaderNews
from pykbroker_raft.outbox import Outbox
from pykbroker_raft.ready import Destination, Inbound, Now
from pykbroker_raft.replica_log import ReplicaLog
from pykbroker_raft.roles import Roles
from pykbroker_raft.states import Follower, Leader
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, address
from pykbroker_wire.errors import ErrorCode


class VoterChanges:
    """Of one replica; has no state of its own."""

    def __init__(self, config: RaftConfig, roles: Roles, log: ReplicaLog, outbox: Outbox, news: LeaderNews) -> None:
        self._config = config
        self._roles = roles
        self._log = log
        self._outbox = outbox
        self._news = news

    def handle_update_request(self, inbound: Inbound, now: Now) -> None:
        error = self._update(inbound.request, now)
        endpoint = self._roles.leader_endpoint_for(inbound.listener)
        self._outbox.reply(
            inbound.token,
            rpc.update_voter_response(error, self._roles.leader_id_or_none_known, self._roles.epoch, endpoint),
        )

    def _update(self, request: Any, now: Now) -> ErrorCode:
        if not self._news.is_our_cluster(request.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        error = self._news.check_leader_request(request.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return error
        leader = self._roles.state
        assert isinstance(leader, Leader)
        key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
        endpoints = tuple(Endpoint(item.name, item.host, item.port) for item in request.listeners)
        feature = request.kraft_version_feature
        low, high = feature.min_supported_version, feature.max_supported_version
        if (
            key.id < 0
            or not key.has_directory
            or address(endpoints, self._config.listener) is None
            or not 0 <= low <= high
        ):
            return ErrorCode.INVALID_REQUEST
        if self._log.history.kraft_version < 1:
            # Configured voters have no record to change. Kafka's leader remembers what the voter says, for the day
            # on which kraft.version is raised; as long as ours cannot raise it there is nothing to do, and nothing
            # wrong.
            return ErrorCode.NONE if self._log.voters.is_voter(key) else ErrorCode.VOTER_NOT_FOUND
        offset = self._log.history.voters_offset
        if leader.high_watermark is None or offset is None or offset >= leader.high_watermark:
            return ErrorCode.REQUEST_TIMED_OUT
        if not low <= self._log.history.kraft_version <= high:
            return ErrorCode.INVALID_REQUEST
        updated = self._log.voters.updated(VoterNode(key, endpoints, low, high))
        if updated is None:
            return ErrorCode.VOTER_NOT_FOUND
        self._roles.append_control(leader, [batches.voters(updated)], now)
        return ErrorCode.NONE

    def maybe_send_update(self, state: Follower, now: Now) -> None:
        """A voter whose entry is out of date tells the leader."""
        endpoint = address(state.leader_endpoints, self._config.listener)
        if (
            self._log.history.kraft_version < 1
            or endpoint is None
            or not self._log.voters.needs_update(self._config.as_voter)
        ):
            return
        request = rpc.update_voter_request(self._config.cluster_id, self._roles.epoch, self._config.as_voter)
        self._outbox.send_to(Destination(state.leader_id, endpoint.host, endpoint.port), request, now)

    def handle_update_response(self, source: Destination, response: Any, now: Now) -> bool:
        current = response.current_leader
        endpoints = (
            (Endpoint(self._config.listener, current.host, current.port),)
            if current.leader_id >= 0 and current.host
            else ()
        )
        error = ErrorCode(response.error_code)
        handled = self._news.take(error, current.leader_id, current.leader_epoch, endpoints, now)
        return True if handled is None else handled
