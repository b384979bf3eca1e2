"""A replica's requests about itself to its leader: UpdateRaftVoter, and AddRaftVoter of a controller that joins.

Responsible for when a follower sends them, and for handling the response. The leader's side is `voter_changes`. With
kraft.version 1 a voter sends UpdateRaftVoter if its entry in the voter set is out of date. With kraft.version 0 each
voter sends it once to each new leader, which must know all directories before kraft.version can be raised.

With `controller.quorum.auto.join.enable` (KIP-1186) a controller that is no voter of a dynamic quorum adds itself. The
leader accepts the controller once it is caught up. If a voter has the id of this controller but another directory, the
disk was replaced, and the controller removes that voter first.
"""

from __future__ import annotations

from typing import Any

from pykbroker_raft import rpc
from pykbroker_raft.current_role import CurrentRole
from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.leader_news import LeaderNews
from pykbroker_raft.outbox import Outbox
from pykbroker_raft.ready import Destination, Now
from pykbroker_raft.replica_log import ReplicaLog
from pykbroker_raft.states import Follower
from pykbroker_raft.voters import Endpoint
from pykbroker_wire.errors import ErrorCode


class OwnMembership:
    """Acts for one replica, and has no state of its own."""

    def __init__(
        self, config: RaftConfig, roles: CurrentRole, log: ReplicaLog, outbox: Outbox, news: LeaderNews
    ) -> None:
        self._config = config
        self._roles = roles
        self._log = log
        self._outbox = outbox
        self._news = news

    def request_due(self, state: Follower, now: Now) -> Any | None:
        """Return the request that is sent to the leader instead of a Fetch. Return None if none is due, and check again
        later."""
        if now.steady_ms < state.update_voter_deadline_ms:
            return None
        request = self._request(state)
        if request is None:
            self.sent(state, now)
        return request

    def sent(self, state: Follower, now: Now) -> None:
        """Record that the request was sent."""
        state.update_voter_again_at(now.steady_ms + self._config.fetch_timeout_ms)

    def _request(self, state: Follower) -> Any | None:
        config = self._config
        if not self._roles.is_voter:
            return self._request_to_join()
        if self._log.history.kraft_version >= 1:
            is_due = self._log.voters.needs_update(config.as_voter)
        else:
            is_due = not state.has_updated_leader
        return rpc.update_voter_request(config.cluster_id, self._roles.epoch, config.as_voter) if is_due else None

    def _request_to_join(self) -> Any | None:
        config = self._config
        if not config.is_controller or not config.auto_join or self._log.history.kraft_version < 1:
            return None
        stale = self._log.voters.get(config.node_id)
        if stale is not None:
            return rpc.remove_voter_request(config.cluster_id, stale.key)
        # This replica is a voter as soon as the record is appended. It must not wait for a commit that may need its own
        # fetch.
        return rpc.add_voter_request(
            config.cluster_id, config.as_voter, config.request_timeout_ms, ack_when_committed=False
        )

    def handle_join_response(self, source: Destination, response: Any, now: Now) -> bool:
        """Handle the response to AddRaftVoter and RemoveRaftVoter. The log shows if the request was successful. If not,
        the replica sends it again."""
        return ErrorCode.received(response.error_code) in (
            ErrorCode.NONE,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.DUPLICATE_VOTER,
            ErrorCode.VOTER_NOT_FOUND,
        )

    def handle_update_response(self, source: Destination, response: Any, now: Now) -> bool:
        error = ErrorCode.received(response.error_code)
        follower = self._roles.state
        if error is ErrorCode.UNSUPPORTED_VERSION and isinstance(follower, Follower):
            # The leader is older than KIP-853, or does not yet accept the request at kraft.version 0.
            follower.leader_updated()
            return True
        current = response.current_leader
        endpoints = (
            (Endpoint(self._config.listener, current.host, current.port),)
            if current.leader_id >= 0 and current.host
            else ()
        )
        handled = self._news.take(error, current.leader_id, current.leader_epoch, endpoints, now)
        follower = self._roles.state
        if handled is not None or error is not ErrorCode.NONE or not isinstance(follower, Follower):
            return bool(handled)
        follower.leader_updated()
        # The leader counts the request as a fetch of this voter, so its response counts as a fetch response of the
        # leader.
        follower.fetched()
        follower.wait_for_leader_until(now.steady_ms + self._config.fetch_timeout_ms)
        return True
