"""FetchSnapshot, both sides: a leader serves parts of a snapshot, a follower collects them and starts its log after it.

Responsible for positions and ids; the bytes go through `SnapshotChunk` and `ReadSnapshot`. A leader never takes a
snapshot from another (R11); a follower's log is emptied only once the whole snapshot is in place.
"""

from __future__ import annotations

from typing import Any

from pykbroker_raft import rpc
from pykbroker_raft.current_role import CurrentRole
from pykbroker_raft.fetch_server import FetchServer
from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.leader_news import LeaderNews
from pykbroker_raft.log_view import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from pykbroker_raft.outbox import Outbox
from pykbroker_raft.ready import Destination, Inbound, Now, ReadSnapshot, SnapshotChunk
from pykbroker_raft.replica_log import ReplicaLog
from pykbroker_raft.states import Follower, Leader, SnapshotDownload
from pykbroker_raft.voters import ReplicaKey, VoterSet
from pykbroker_wire.errors import ErrorCode


class SnapshotTransfer:
    """The transfer of snapshots to and from one replica. Nothing is fetched while a snapshot is put in place, or during
    the wait after a damaged one."""

    def __init__(
        self,
        config: RaftConfig,
        roles: CurrentRole,
        log: ReplicaLog,
        outbox: Outbox,
        news: LeaderNews,
        fetches: FetchServer,
    ) -> None:
        self._config = config
        self._roles = roles
        self._log = log
        self._outbox = outbox
        self._news = news
        self._fetches = fetches
        self._is_installing = False
        self._pause_until_ms = 0

    @property
    def is_installing(self) -> bool:
        return self._is_installing

    @property
    def pause_until_ms(self) -> int:
        """The time on the steady clock before which nothing is fetched, because the last snapshot was damaged."""
        return self._pause_until_ms

    def handle_request(self, inbound: Inbound, now: Now) -> None:
        request = inbound.request
        if not self._news.is_our_cluster(request.cluster_id):
            return self._outbox.reply(inbound.token, rpc.fetch_snapshot_error(ErrorCode.INCONSISTENT_CLUSTER_ID))
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return self._outbox.reply(inbound.token, rpc.fetch_snapshot_error(ErrorCode.INVALID_REQUEST))
        endpoint = self._roles.leader_endpoint_for(inbound.listener)
        leader_id = self._roles.leader_id_or_none_known
        partition = rpc.one_snapshot_partition(request.topics)
        if partition is None:
            topic = request.topics[0]
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            index = topic.partitions[0].partition
            response = rpc.fetch_snapshot_response(
                inbound.version, error, leader_id, None, endpoint, topic=topic.name, index=index
            )
            return self._outbox.reply(inbound.token, response)
        error = self._news.check_leader_request(partition.current_leader_epoch)
        snapshot = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        size = self._log.view.snapshots.get(snapshot)
        if error is ErrorCode.NONE:
            if size is None or snapshot == BOOTSTRAP_SNAPSHOT:
                # A bootstrap checkpoint is never sent: each node has its own file, and its voters are in the log too.
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= partition.position < size:
                error = ErrorCode.POSITION_OUT_OF_RANGE
        if error is not ErrorCode.NONE:
            response = rpc.fetch_snapshot_response(inbound.version, error, leader_id, self._roles.epoch, endpoint)
            return self._outbox.reply(inbound.token, response)
        assert size is not None
        assert isinstance(self._roles.state, Leader)
        replica = ReplicaKey(request.replica_id, bytes(partition.replica_directory_id))
        self._fetches.heard_from_voter(self._roles.state, replica, now)
        response = rpc.fetch_snapshot_response(
            inbound.version, ErrorCode.NONE, leader_id, self._roles.epoch, endpoint, snapshot, size, partition.position
        )
        limit = max(1, min(request.max_bytes, self._config.snapshot_max_bytes, size - partition.position))
        self._outbox.reply(inbound.token, response, ReadSnapshot(snapshot, partition.position, limit))

    def build_request(self, download: SnapshotDownload) -> Any:
        return rpc.fetch_snapshot_request(
            self._config.cluster_id,
            self._config.key,
            self._roles.epoch,
            download.id,
            download.position,
            self._config.snapshot_max_bytes,
        )

    def handle_response(self, source: Destination, response: Any, now: Now) -> bool:
        partition = rpc.one_snapshot_partition(response.topics)
        handled = self._news.take_response(response, partition, now)
        if handled is not None or partition is None:
            return bool(handled)
        error = ErrorCode.received(partition.error_code)
        follower = self._roles.state
        if not isinstance(follower, Follower) or follower.download is None:
            return False
        follower.wait_for_leader_until(now.steady_ms + self._config.fetch_timeout_ms)
        snapshot = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        download = follower.download
        data = bytes(partition.unaligned_records or b"")
        if (
            error is not ErrorCode.NONE
            or snapshot != download.id
            or partition.position != download.position
            or not data
            or download.position + len(data) > partition.size
        ):
            # The snapshot is gone from the leader, or the response is for another request: start again with a Fetch.
            follower.end_download()
            return error is ErrorCode.SNAPSHOT_NOT_FOUND
        chunk = SnapshotChunk(download.id, download.position, data, partition.size)
        self._log.write_chunk(chunk)
        download.arrived(len(data))
        follower.fetched()
        if chunk.last:
            follower.end_download()
            self._is_installing = True
        return True

    def installed(
        self, snapshot: OffsetAndEpoch, size: int, voters: VoterSet | None, kraft_version: int, now: Now
    ) -> None:
        """Record that the fetched snapshot is in place."""
        self._is_installing = False
        self._log.restart_after(snapshot, size, voters, kraft_version)
        if isinstance(self._roles.state, Follower):
            self._roles.state.wait_for_leader_until(now.steady_ms + self._config.fetch_timeout_ms)

    def refused(self, now: Now) -> None:
        """Ask again, but not at once: the fetched snapshot is damaged and was dropped."""
        self._pause_until_ms = now.steady_ms + self._config.fetch_timeout_ms // 2
        self.dropped(now)

    def dropped(self, now: Now) -> None:
        """Start again with a Fetch, because the fetched part of the snapshot was dropped."""
        self._is_installing = False
        if isinstance(self._roles.state, Follower):
            self._roles.state.end_download()
            self._roles.state.wait_for_leader_until(now.steady_ms + self._config.fetch_timeout_ms)
