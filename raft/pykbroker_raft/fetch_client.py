"""Fetch, the follower's side: it appends, truncates, and takes over the high watermark.

Responsible for when and where a follower or observer fetches, and for handling the response. It fetches only when its
whole log is fsynced, because a fetch is an acknowledgement.
"""

from __future__ import annotations

import random
from typing import Any

from pykbroker_raft import rpc
from pykbroker_raft.current_role import CurrentRole
from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.leader_news import LeaderNews
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.outbox import Outbox
from pykbroker_raft.own_membership import OwnMembership
from pykbroker_raft.peer_requests import PeerRequests
from pykbroker_raft.ready import NEVER, Destination, Now
from pykbroker_raft.replica_log import ReplicaLog
from pykbroker_raft.snapshot_transfer import SnapshotTransfer
from pykbroker_raft.states import Follower, Unattached
from pykbroker_raft.voters import address
from pykbroker_wire.errors import ErrorCode


class FetchClient:
    """The fetch client of one replica. It has no state of its own."""

    def __init__(
        self,
        config: RaftConfig,
        chance: random.Random,
        roles: CurrentRole,
        log: ReplicaLog,
        outbox: Outbox,
        connections: PeerRequests,
        news: LeaderNews,
        snapshotting: SnapshotTransfer,
        membership: OwnMembership,
    ) -> None:
        self._config = config
        self._chance = chance
        self._roles = roles
        self._log = log
        self._outbox = outbox
        self._connections = connections
        self._news = news
        self._snapshotting = snapshotting
        self._membership = membership

    def handle_response(self, source: Destination, response: Any, now: Now) -> bool:
        partition = rpc.one_fetch_partition(response.responses)
        before = self._roles.state
        handled = self._news.take_response(response, partition, now)
        if handled is not None or partition is None:
            # A server that was asked for the leader, and whose response changed nothing, is not asked again at once.
            has_news = source.id >= 0 or self._roles.state is not before
            return bool(handled) and has_news
        follower = self._roles.state
        if partition.error_code != ErrorCode.NONE or not isinstance(follower, Follower):
            return False
        diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
        if partition.high_watermark >= 0:
            self._log.promise(partition.high_watermark)
        if diverging.epoch >= 0:
            if diverging.end_offset < 0:
                return False
            self._log.truncate(OffsetAndEpoch(diverging.end_offset, diverging.epoch))
        elif snapshot.epoch >= 0 or snapshot.end_offset >= 0:
            if snapshot.epoch < 0 or snapshot.end_offset < 0:
                return False
            wanted = OffsetAndEpoch(snapshot.end_offset, snapshot.epoch)
            if wanted not in self._log.view.snapshots:
                follower.begin_download(wanted)
        else:
            if partition.records:
                self._log.append_fetched(
                    bytes(partition.records), self._roles.epoch, must_flush=self._config.is_controller
                )
            if partition.high_watermark >= 0:
                self._log.commit(min(partition.high_watermark, self._log.view.end_offset))
        follower.fetched()
        follower.wait_for_leader_until(now.steady_ms + self._config.fetch_timeout_ms)
        return True

    def _fetch_request(self) -> Any:
        return rpc.fetch_request(
            self._config.cluster_id,
            self._config.key,
            self._roles.epoch,
            self._log.view.end,
            -1 if self._log.high_watermark is None else self._log.high_watermark,
            self._config.fetch_max_wait_ms,
            self._config.fetch_max_bytes,
        )

    def _may_fetch(self) -> bool:
        return not self._snapshotting.is_installing and self._log.is_flushed

    def _ask_leader(self, state: Follower, now: Now) -> int:
        """Send the leader this replica's voter data if that is due; else fetch, or fetch the next part of the
        snapshot."""
        endpoint = address(state.leader_endpoints, self._config.listener)
        assert endpoint is not None
        leader = Destination(state.leader_id, endpoint.host, endpoint.port)
        if not self._connections.is_ready(leader.id, now.steady_ms):
            return self._connections.ready_at(leader.id)
        request = self._membership.request_due(state, now)
        if request is not None:
            self._membership.sent(state, now)
            return self._outbox.send_to(leader, request, now)
        if not self._may_fetch():
            # `flushed`, `snapshot_installed` or `snapshot_refused` polls again.
            return NEVER
        if now.steady_ms < self._snapshotting.pause_until_ms:
            return self._snapshotting.pause_until_ms
        request = self._fetch_request() if state.download is None else self._snapshotting.build_request(state.download)
        return self._outbox.send_to(leader, request, now)

    def _ask_best_server(self, state: Follower, now: Now) -> int:
        """Ask the leader. While it does not answer, ask any known server, because another one may be the leader by
        now."""
        if self._connections.has_timed_out(state.leader_id, now.steady_ms):
            self._connections.reset(state.leader_id)
            return self._ask_any_server(now)
        if self._connections.is_backing_off(state.leader_id, now.steady_ms):
            return self._ask_any_server(now)
        if not self._connections.any_in_flight(now.steady_ms):
            return self._ask_leader(state, now)
        return self._connections.first_timeout()

    def _servers(self) -> tuple[Destination, ...]:
        """Return whom to ask for the leader: the bootstrap servers, then the voters of the log that have other
        addresses, because all bootstrap servers may have been replaced since this node has read its properties."""
        bootstrap = self._connections.bootstrap
        known = {(server.host, server.port) for server in bootstrap}
        # A voter that does not answer this question may still be asked for its vote, so it has a further id here.
        first_id = -2 - len(bootstrap)
        voters = []
        for voter in self._log.voters:
            place = address(voter.endpoints, self._config.listener)
            if place is not None and voter.key.id != self._config.node_id and (place.host, place.port) not in known:
                voters.append(Destination(first_id - voter.key.id, place.host, place.port))
        return (*bootstrap, *voters)

    def _ask_any_server(self, now: Now) -> int:
        """Fetch from any known server: its response names the leader."""
        if not self._may_fetch():
            return NEVER
        servers = self._servers()
        if not servers:
            return NEVER
        destination = self._connections.find_ready(servers, now.steady_ms, self._chance)
        if destination is None:
            return self._connections.first_ready_at(servers, now.steady_ms)
        return self._outbox.send_to(destination, self._fetch_request(), now)

    def poll_follower(self, state: Follower, now: Now) -> int:
        if self._roles.shutting_down:
            return NEVER
        if now.steady_ms >= state.fetch_deadline_ms:
            if not self._roles.may_stand:
                return self._ask_any_server(now)
            self._roles.become_prospective(now)
            return now.steady_ms
        return min(self._ask_best_server(state, now), state.fetch_deadline_ms)

    def poll_unattached(self, state: Unattached, now: Now) -> int:
        if self._roles.shutting_down:
            return NEVER
        if not self._roles.may_stand:
            return self._ask_any_server(now)
        deadline = state.election_deadline_ms
        if deadline is None:
            deadline = self._roles.timeouts.election_deadline_ms(now)
            state.call_election_at(deadline)
        if now.steady_ms >= deadline:
            self._roles.become_prospective(now)
            return now.steady_ms
        # Until the deadline, a voter without a leader asks other servers, as an observer does.
        return min(self._ask_any_server(now), deadline)
