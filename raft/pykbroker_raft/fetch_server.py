"""Fetch, the leader's side: it serves its log and counts which offsets replicas have.

Responsible for validating a fetch position (KIP-595: the response has the diverging epoch) and for the fetches that
wait. A fetch is an acknowledgement: a replica fetches from `offset` only if everything below it is fsynced, unless the
replica can never be a voter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pykbroker_raft import rpc
from pykbroker_raft.current_role import CurrentRole
from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.leader_news import LeaderNews
from pykbroker_raft.log_view import BOOTSTRAP_SNAPSHOT, FetchVerdict
from pykbroker_raft.outbox import Outbox
from pykbroker_raft.ready import NEVER, Inbound, Now, ReadLog
from pykbroker_raft.replica_log import ReplicaLog
from pykbroker_raft.states import Leader
from pykbroker_raft.voters import ReplicaKey
from pykbroker_wire.errors import ErrorCode


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


class FetchServer:
    """Owns the fetches that wait."""

    def __init__(
        self, config: RaftConfig, roles: CurrentRole, log: ReplicaLog, outbox: Outbox, news: LeaderNews
    ) -> None:
        self._config = config
        self._roles = roles
        self._log = log
        self._outbox = outbox
        self._news = news
        self._parked: list[Parked] = []

    @property
    def parked(self) -> Sequence[Parked]:
        return self._parked

    def handle_request(self, inbound: Inbound, now: Now) -> None:
        request = inbound.request
        partition = rpc.one_fetch_partition(request.topics)
        error = self._news.check_request(request.cluster_id, partition)
        if error is not ErrorCode.NONE or partition is None:
            return self._outbox.reply(inbound.token, rpc.fetch_error(error))
        replica_id = request.replica_state.replica_id if inbound.version >= 15 else request.replica_id
        replica = ReplicaKey(replica_id, bytes(partition.replica_directory_id))
        parked = Parked(
            inbound.token,
            inbound.version,
            inbound.listener,
            replica,
            partition,
            min(request.max_bytes, self._config.fetch_max_bytes),
            now.steady_ms + request.max_wait_ms,
        )
        if (
            request.max_wait_ms < 0
            or partition.fetch_offset < 0
            or partition.last_fetched_epoch < 0
            or partition.last_fetched_epoch > partition.current_leader_epoch
            or replica_id == self._config.node_id
        ):
            return self._outbox.reply(inbound.token, self._empty(parked, ErrorCode.INVALID_REQUEST))
        if not self._try_answer(parked, now, must=request.max_wait_ms == 0):
            self._parked.append(parked)

    def _empty(self, parked: Parked, error: ErrorCode, high_watermark: int = -1) -> Any:
        return rpc.fetch_response(
            parked.version,
            error,
            self._roles.leader_id_or_none_known,
            self._roles.epoch,
            self._roles.leader_endpoint_for(parked.listener),
            self._log.view.start_offset,
            high_watermark,
        )

    def _try_answer(self, parked: Parked, now: Now, must: bool) -> bool:
        """Reply if there is something new or `must` is set. Return True if a reply was sent."""
        partition = parked.partition
        error = self._news.check_leader_request(partition.current_leader_epoch)
        if error is not ErrorCode.NONE:
            self._outbox.reply(parked.token, self._empty(parked, error))
            return True
        leader = self._roles.state
        assert isinstance(leader, Leader)
        offset = partition.fetch_offset
        latest = self._log.view.latest_snapshot
        if offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
            # An empty replica should always take the snapshot instead of the log.
            verdict, where = FetchVerdict.SNAPSHOT, latest
        else:
            verdict, where = self._log.view.validate(offset, partition.last_fetched_epoch)
        if verdict is FetchVerdict.VALID:
            self._count(leader, parked.replica, offset, now)
        high_watermark = -1 if leader.high_watermark is None else leader.high_watermark
        has_records = verdict is FetchVerdict.VALID and offset < self._log.view.end_offset
        news = has_records or verdict is not FetchVerdict.VALID or partition.high_watermark < high_watermark
        if not news and not must:
            return False
        response = rpc.fetch_response(
            parked.version,
            ErrorCode.NONE,
            self._roles.leader_id_or_none_known,
            self._roles.epoch,
            self._roles.leader_endpoint_for(parked.listener),
            self._log.view.start_offset,
            high_watermark,
            where if verdict is FetchVerdict.DIVERGING else None,
            where if verdict is FetchVerdict.SNAPSHOT else None,
        )
        self._outbox.reply(parked.token, response, ReadLog(offset, parked.max_bytes) if has_records else None)
        return True

    def _count(self, leader: Leader, replica: ReplicaKey, offset: int, now: Now) -> None:
        if replica.id < 0:
            # The sender is a reader, not a replica.
            return
        progress = leader.replicas.find_or_add(replica)
        progress.fetched(offset, self._log.view.end_offset, now.steady_ms, now.wall_ms)
        self.heard_from_voter(leader, replica, now)
        if leader.replicas.is_voter(progress):
            self._roles.advance_high_watermark(leader)

    def heard_from_voter(self, leader: Leader, replica: ReplicaKey, now: Now) -> None:
        """Record a fetch of a voter. A leader steps down if a majority no longer fetches from it."""
        progress = leader.replicas.find(replica)
        if progress is not None and leader.replicas.is_voter(progress):
            leader.voter_fetched(replica.id, self._roles.timeouts.check_quorum_deadline_ms(now))

    def forget(self, token: int) -> None:
        """Drop the fetch with this token; its reply is no longer needed."""
        self._parked = [parked for parked in self._parked if parked.token != token]

    def poll(self, now: Now) -> int:
        """Reply to the fetches for which there is something new or whose wait is over. Return when to call again."""
        while self._parked:
            before = self._log.high_watermark
            waiting, self._parked = self._parked, []
            for parked in waiting:
                if not self._try_answer(parked, now, must=now.steady_ms >= parked.deadline_ms):
                    self._parked.append(parked)
            if self._log.high_watermark == before:
                break
        return min((parked.deadline_ms for parked in self._parked), default=NEVER)

    def fail_all(self) -> None:
        """Reply to all waiting fetches because the leadership has ended, so that the replicas look for another
        leader."""
        waiting, self._parked = self._parked, []
        for parked in waiting:
            self._outbox.reply(parked.token, self._empty(parked, ErrorCode.NOT_LEADER_OR_FOLLOWER))
