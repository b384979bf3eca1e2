"""KRaft without I/O: inputs change the node, and `ready()` returns what the driver must do.

Responsible for passing each input to the part that handles it, and for the timers. The state of a replica is in
`current_role` (role, epoch, vote, leadership), `replica_log` (log, voters, high watermark) and `outbox` (the Ready
under construction). Its actions are in `election`, `quorum_epoch`, `fetch_server`, `fetch_client`, `snapshot_transfer`,
`own_membership` and `voter_changes`. This code uses no disk, clock or sockets, and only the `Random` of its caller.

The invariants R1 to R6 and R10 stand in the heads of `current_role` and `replica_log`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from pykbroker_raft import batches
from pykbroker_raft.current_role import CurrentRole
from pykbroker_raft.election import Elections
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.fetch_client import FetchClient
from pykbroker_raft.fetch_server import FetchServer
from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.leader_news import LeaderNews
from pykbroker_raft.leader_refusal import LeaderRefusal
from pykbroker_raft.log_view import LogView, OffsetAndEpoch
from pykbroker_raft.outbox import Outbox
from pykbroker_raft.own_membership import OwnMembership
from pykbroker_raft.peer_requests import PeerRequests
from pykbroker_raft.quorum_epoch import QuorumEpochs
from pykbroker_raft.ready import NEVER, Destination, Inbound, Now, Ready
from pykbroker_raft.replica_log import ReplicaLog
from pykbroker_raft.snapshot_transfer import SnapshotTransfer
from pykbroker_raft.states import Candidate, Follower, Leader, Prospective, Resigned, State, Unattached
from pykbroker_raft.voter_changes import VoterChanges
from pykbroker_raft.voters import Endpoints, VoterHistory, VoterSet
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from pykbroker_wire.messages.api_versions import ApiVersionsResponse
from pykbroker_wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from pykbroker_wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from pykbroker_wire.messages.fetch import FetchRequest, FetchResponse
from pykbroker_wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from pykbroker_wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from pykbroker_wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from pykbroker_wire.messages.vote import VoteRequest, VoteResponse

__all__ = ["Inbound", "NotLeader", "RaftConfig", "RaftNode"]

# Followers, pykbroker's and Kafka's, could not take a larger batch.
MAX_BATCH_BYTES = 8 * 1024 * 1024


class NotLeader(KafkaError):
    """This replica is not the leader, and only the leader appends."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, message)


class RaftNode:
    """One replica of the metadata partition."""

    def __init__(
        self,
        config: RaftConfig,
        chance: random.Random,
        log: LogView,
        history: VoterHistory,
        stored: ElectionState | None,
    ) -> None:
        self.config = config
        connections = self._connections = PeerRequests(
            config.retry_backoff_ms,
            config.request_timeout_ms,
            tuple(Destination(-2 - index, host, port) for index, (host, port) in enumerate(config.bootstrap_addresses)),
        )
        outbox = self._outbox = Outbox(connections, config.request_timeout_ms)
        own_log = self._log = ReplicaLog(log, history, outbox)
        roles = self._roles = CurrentRole(config, chance, own_log, outbox, connections, stored, self._lead_no_longer)
        news = LeaderNews(config, roles, own_log)
        fetches = self._fetches = FetchServer(config, roles, own_log, outbox, news)
        refusal = self._refusal = LeaderRefusal(chance, roles)
        elections = self._elections = Elections(config, roles, own_log, outbox, news, refusal)
        epochs = QuorumEpochs(config, roles, own_log, outbox, news)
        snapshots = self._snapshotting = SnapshotTransfer(config, roles, own_log, outbox, news, fetches)
        changes = self._changes = VoterChanges(config, roles, own_log, outbox, connections, news, fetches)
        membership = OwnMembership(config, roles, own_log, outbox, news)
        fetching = FetchClient(config, chance, roles, own_log, outbox, connections, news, snapshots, membership)
        self._deadline_ms = 0
        self._requests: dict[type, Callable[[Inbound, Now], None]] = {
            AddRaftVoterRequest: changes.handle_add_request,
            BeginQuorumEpochRequest: epochs.handle_begin_request,
            EndQuorumEpochRequest: epochs.handle_end_request,
            FetchRequest: fetches.handle_request,
            FetchSnapshotRequest: snapshots.handle_request,
            RemoveRaftVoterRequest: changes.handle_remove_request,
            UpdateRaftVoterRequest: changes.handle_update_request,
            VoteRequest: elections.handle_vote_request,
        }
        # Each returns True if the request has succeeded; then the next request to the peer may be sent at once.
        self._responses: dict[type, Callable[[Destination, Any, Now], bool]] = {
            AddRaftVoterResponse: membership.handle_join_response,
            ApiVersionsResponse: changes.handle_api_versions_response,
            BeginQuorumEpochResponse: epochs.handle_begin_response,
            EndQuorumEpochResponse: epochs.handle_end_response,
            FetchResponse: fetching.handle_response,
            FetchSnapshotResponse: snapshots.handle_response,
            RemoveRaftVoterResponse: membership.handle_join_response,
            UpdateRaftVoterResponse: membership.handle_update_response,
            VoteResponse: elections.handle_vote_response,
        }
        # Each does what the time has made due in this state, and returns the time at which it is to be called again.
        self._polls: dict[type, Callable[[Any, Now], int]] = {
            Leader: epochs.poll_leader,
            Resigned: epochs.poll_resigned,
            Candidate: elections.poll_candidate,
            Prospective: elections.poll_prospective,
            Follower: fetching.poll_follower,
            Unattached: fetching.poll_unattached,
        }

    # The state of the node

    @property
    def state(self) -> State:
        return self._roles.state

    @property
    def epoch(self) -> int:
        return self._roles.epoch

    @property
    def is_leader(self) -> bool:
        return self._roles.is_leader

    @property
    def is_voter(self) -> bool:
        return self._roles.is_voter

    @property
    def leader_endpoints(self) -> Endpoints:
        return self._roles.leader_endpoints

    @property
    def log(self) -> LogView:
        return self._log.view

    @property
    def history(self) -> VoterHistory:
        return self._log.history

    @property
    def voters(self) -> VoterSet:
        return self._log.voters

    @property
    def high_watermark(self) -> int | None:
        return self._log.high_watermark

    @property
    def promised(self) -> int | None:
        """The leader's high watermark; `high_watermark` is how much of it this replica has."""
        return self._log.promised

    @property
    def deadline_ms(self) -> int | None:
        """The time on the steady clock at which `tick` has something to do, or None if only a message can change
        anything."""
        return self._deadline_ms if self._deadline_ms < NEVER else None

    def ready(self) -> Ready:
        """Return the work that has come up for the driver since the last call."""
        return self._outbox.take()

    # Inputs

    def start(self, now: Now, *, stands: bool = False) -> None:
        """Take the role that is in quorum-state. The only voter elects itself at once. `stands`: all voters start
        together, and this one begins their election at once, so that they need not wait for their timeouts."""
        self._roles.start(now)
        if stands:
            self._elections.stand(now)
        self.tick(now)

    def receive(self, inbound: Inbound, now: Now) -> None:
        """Handle a request of another replica. The reply comes in some later Ready."""
        handle = self._requests.get(type(inbound.request))
        if handle is None:
            raise TypeError(f"{type(inbound.request).__name__} is no request of the quorum")
        handle(inbound, now)
        self.tick(now)

    def response(self, correlation_id: int, source: Destination, response: Any | None, now: Now) -> None:
        """Handle the response to an `Outgoing`; `response` is None if there was none. A response that is not expected
        is dropped."""
        if not self._connections.is_expected(source.id, correlation_id):
            return
        success = False
        if response is not None:
            handle = self._responses.get(type(response))
            if handle is None:
                raise TypeError(f"{type(response).__name__} is no response of the quorum")
            success = handle(source, response, now)
        else:
            self._changes.not_answered(source, now)
        self._connections.answered(source.id, correlation_id, success, now.steady_ms)
        self.tick(now)

    def propose(self, values: Sequence[bytes], now: Now) -> int:
        """Append values as one batch, and return the offset of the last value. It is committed once the high watermark
        passes it. Raises NotLeader, RECORD_LIST_TOO_LARGE."""
        if not self.is_leader:
            raise NotLeader(f"node {self.config.node_id} is {self.state.role.value} in epoch {self.epoch}")
        records = batches.data_batch(values, self.log.end_offset, self.epoch, now.wall_ms)
        if len(records) > MAX_BATCH_BYTES:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch has {len(records)} bytes, and the limit is {MAX_BATCH_BYTES}"
            )
        self._log.append_own(records, len(values), self.epoch)
        self.tick(now)
        return self.log.end_offset - 1

    def raise_kraft_version(self, version: int, now: Now, *, validate_only: bool) -> None:
        """Move from configured voters to voters in the log, in force at once. Raises NotLeader,
        INVALID_UPDATE_VERSION."""
        if not self.is_leader:
            raise NotLeader(f"node {self.config.node_id} is {self.state.role.value} in epoch {self.epoch}")
        self._changes.raise_kraft_version(version, now, validate_only=validate_only)
        self.tick(now)

    def flushed(self, offset: int, now: Now) -> None:
        """Record that everything below `offset` is durable."""
        if self._log.flushed(offset):
            self._roles.count_self()
            self.tick(now)

    def snapshot_created(self, snapshot: OffsetAndEpoch, size: int) -> None:
        """Record that the local state machine has written a snapshot of its committed state."""
        self._log.snapshot_created(snapshot, size)

    def log_start_moved(self, offset: int) -> None:
        """Record that records below a snapshot, and the snapshots before it, were deleted."""
        self._log.start_moved(offset)

    def snapshot_installed(
        self, snapshot: OffsetAndEpoch, size: int, voters: VoterSet | None, kraft_version: int, now: Now
    ) -> None:
        """Record that a fetched snapshot is in place and the log starts after it."""
        self._snapshotting.installed(snapshot, size, voters, kraft_version, now)
        self.tick(now)

    def snapshot_refused(self, now: Now) -> None:
        """Record that a fetched snapshot is damaged; the log is as it was."""
        self._snapshotting.refused(now)
        self.tick(now)

    def snapshot_dropped(self, now: Now) -> None:
        """Record that the disk had no room for a snapshot and has room now: fetch it again from its beginning."""
        self._snapshotting.dropped(now)
        self.tick(now)

    def forget(self, token: int) -> None:
        """Drop the request with this token; its reply is no longer needed."""
        self._fetches.forget(token)

    def leader_refused(self, leader_id: int, epoch: int, now: Now) -> None:
        """Record that the connection to the leader of this epoch ended, and the leader refuses a new one."""
        self._refusal.refused(leader_id, epoch, now)
        self.tick(now)

    def resign(self, now: Now) -> None:
        """Give up the leadership because the disk failed or the controller asked for it."""
        self._roles.ask_to_resign()
        self.tick(now)

    def shut_down(self, now: Now) -> None:
        """Give up the leadership and take part in no election."""
        self._roles.shut_down()
        self.tick(now)

    def _lead_no_longer(self) -> None:
        self._fetches.fail_all()
        self._changes.fail_pending()

    # Timers

    def tick(self, now: Now) -> None:
        """Do what the time or the last input made due, and compute when the next tick is due. Every input ends with
        it."""
        for _ in range(16):
            state = self.state
            deadline = self._polls[type(state)](state, now)
            if deadline > now.steady_ms:
                break
        deadline = min(deadline, self._fetches.poll(now), self._changes.poll(now))
        # A due timer that changes nothing must not cause a busy loop.
        self._deadline_ms = max(deadline, now.steady_ms + 1)
