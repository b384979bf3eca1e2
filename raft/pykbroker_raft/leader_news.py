"""Checks and follows the fields that every message has: the cluster, the epoch, the leader.

Responsible for the errors that several requests have in common, and for what a replica learns about the leader from
any message. Asks `current_role` for the transition; uses no field that only one message has.
"""

from __future__ import annotations

from typing import Any

from pykbroker_raft import rpc
from pykbroker_raft.current_role import CurrentRole
from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.ready import Now
from pykbroker_raft.replica_log import ReplicaLog
from pykbroker_raft.states import Follower, Leader, Resigned
from pykbroker_raft.voters import Endpoints, ReplicaKey, address
from pykbroker_wire.errors import ErrorCode

# An election raises the epoch by one. A message that is this far ahead is damaged. If it were accepted, the epoch would
# soon have no successor, and no leader could be elected.
MAX_EPOCH_STEP = 1 << 30


class LeaderNews:
    """Acts for one replica; without state of its own."""

    def __init__(self, config: RaftConfig, roles: CurrentRole, log: ReplicaLog) -> None:
        self._config = config
        self._roles = roles
        self._log = log

    def is_our_cluster(self, cluster_id: str | None) -> bool:
        """Return False if the cluster id is wrong; a request may omit it."""
        return cluster_id is None or cluster_id == self._config.cluster_id

    def check_request(self, cluster_id: str | None, partition: Any | None) -> ErrorCode:
        """Return NONE if the request is for this cluster and only for the metadata partition."""
        if not self.is_our_cluster(cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        return ErrorCode.INVALID_REQUEST if partition is None else ErrorCode.NONE

    def check_leader_request(self, epoch: int) -> ErrorCode:
        """Return NONE if this replica may answer a request that was sent in `epoch` and that only a leader answers."""
        if epoch < self._roles.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self._roles.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not self._roles.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._roles.shutting_down:
            return ErrorCode.BROKER_NOT_AVAILABLE
        return ErrorCode.NONE

    def check_voter_request(self, remote_id: int, epoch: int) -> ErrorCode:
        if epoch < self._roles.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if remote_id < 0 or not self._may_be_true(epoch) else ErrorCode.NONE

    def _may_be_true(self, epoch: int) -> bool:
        return epoch - self._roles.epoch < MAX_EPOCH_STEP

    def is_for_this_replica(self, voter_id: int, directory_id: bytes) -> bool:
        if voter_id < 0:
            return True
        if voter_id != self._config.node_id:
            return False
        key = ReplicaKey(voter_id, bytes(directory_id))
        return not key.has_directory or key.directory_id == self._config.directory_id

    # The leader in any message

    def _is_consistent(self, epoch: int, leader_id: int) -> bool:
        """Return False if the message contradicts what is known here about the one leader of an epoch (R1)."""
        if leader_id >= 0 and leader_id == self._config.node_id:
            return self._roles.is_leader and epoch == self._roles.epoch
        return (
            epoch != self._roles.epoch
            or leader_id < 0
            or self._roles.state.leader_id is None
            or self._roles.state.leader_id == leader_id
        )

    def _tells_more(self, leader_id: int, endpoints: Endpoints) -> bool:
        """Return True if a message of this epoch names a leader that was not known, or more of its endpoints.

        A pre-candidate that knows its leader ignores the same leader in responses of replicas that still follow it;
        otherwise it would never start an election.
        """
        if leader_id < 0 or isinstance(self._roles.state, (Leader, Resigned)):
            return False
        return self._roles.state.leader_id is None or len(endpoints) > len(self._roles.leader_endpoints)

    def follow(self, leader_id: int, epoch: int, endpoints: Endpoints, now: Now) -> bool:
        """Follow the epoch and leader of a message. Return False if they cannot be true."""
        if not self._may_be_true(epoch) or not self._is_consistent(epoch, leader_id):
            return False
        reachable = address(endpoints, self._config.listener) is not None
        if epoch > self._roles.epoch:
            if leader_id >= 0 and reachable:
                self._roles.become_follower(epoch, leader_id, endpoints, now)
            else:
                self._roles.become_unattached(epoch, now, leader_id if leader_id >= 0 else None)
        elif epoch == self._roles.epoch and reachable and self._tells_more(leader_id, endpoints):
            self._roles.become_follower(epoch, leader_id, endpoints, now)
        return True

    def take_response(self, response: Any, partition: Any | None, now: Now) -> bool | None:
        """Call `take` for a response about the metadata partition; return False for any other response, which is a
        failure."""
        if response.error_code != ErrorCode.NONE or partition is None:
            return False
        leader_id, epoch = rpc.leader_of(partition)
        endpoints = rpc.endpoints_from(response.node_endpoints, leader_id, self._config.listener)
        return self.take(ErrorCode.received(partition.error_code), leader_id, epoch, endpoints, now)

    def take_voter_response(self, response: Any, now: Now) -> bool | None:
        """Call `take_response` for a voter's response to Vote, BeginQuorumEpoch or EndQuorumEpoch. An error means that
        the request has failed."""
        partition = rpc.one_partition(response.topics)
        handled = self.take_response(response, partition, now)
        if handled is None and partition is not None and partition.error_code != ErrorCode.NONE:
            return False
        return handled

    def take(self, error: ErrorCode, leader_id: int, epoch: int, endpoints: Endpoints, now: Now) -> bool | None:
        """Handle the common fields of a response. Return None if the caller must handle the rest. Otherwise return True
        if the request succeeded, False if it failed."""
        if leader_id >= 0 and not endpoints:
            endpoints = self._log.voters.endpoints(leader_id)
        if epoch < self._roles.epoch or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            return True
        if epoch > self._roles.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            return self.follow(leader_id, epoch, endpoints, now)
        if leader_id != self._config.node_id and self._tells_more(leader_id, endpoints):
            # One Fetch response gives an observer both the leader and its records.
            if not self.follow(leader_id, epoch, endpoints, now):
                return False
            if error is not ErrorCode.NONE or not isinstance(self._roles.state, Follower):
                return True
            return None
        if error is ErrorCode.BROKER_NOT_AVAILABLE:
            return False
        if error is ErrorCode.INVALID_VOTER_KEY:
            return True
        if error is not ErrorCode.NONE:
            return None
        return None if self._is_consistent(epoch, leader_id) or leader_id == self._config.node_id else False
