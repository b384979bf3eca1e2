"""The log lines of a node about its replica of the quorum: its role, the voters, and problems of other nodes.

Responsible for the words, and for logging each fact once: a peer that refuses each request gets one line, not one a
second. Decides nothing.
"""

from __future__ import annotations

import logging
from typing import Any

from pykbroker_log.log_config import StorageError
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.ready import LeaderChange, Outgoing
from pykbroker_raft.replica_log import LeaderLostCommitted
from pykbroker_raft.states import Role
from pykbroker_raft.voters import VoterSet
from pykbroker_wire.apis import APIS
from pykbroker_wire.errors import ErrorCode, error_name

logger = logging.getLogger(__name__)

#: usual answers of a node of the quorum while it stops or is not ready, while the leader changes, or in an older
#: release
_USUAL = (
    ErrorCode.NONE,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNSUPPORTED_VERSION,
)


class RaftLines:
    """Logs the lines of one replica, and remembers what it has logged."""

    def __init__(self, node_id: int, cluster_id: str) -> None:
        self._name = f"[RaftManager id={node_id}]"
        self._cluster_id = cluster_id
        self._told_voters: VoterSet | None = None
        self._told_electors: tuple[int, ...] | None = None
        #: host and port -> the error that this peer answers
        self._refusals: dict[tuple[str, int], int] = {}
        self._damaged: OffsetAndEpoch | None = None
        #: the snapshot that waits for room, if any
        self._waits: OffsetAndEpoch | None = None

    def leader(self, role: Role, change: LeaderChange) -> None:
        logger.info("%s %s in epoch %d, leader is %s", self._name, role.value, change.epoch, change.leader_id)

    def voters(self, voters: VoterSet, kraft_version: int, electors: tuple[int, ...] | None) -> None:
        """Log the voters in use, also if their set is not committed. `electors` are the voters of the newest leader in
        the log, as that leader knew them."""
        if voters is not self._told_voters and voters:
            self._told_voters = voters
            logger.info("%s The voters are %s.", self._name, voters)
        if kraft_version > 0 or electors is None or electors == self._told_electors or not voters:
            return
        self._told_electors = electors
        if electors != voters.ids():
            logger.warning(
                "%s controller.quorum.voters of this node names %s, but the newest leader in the metadata log was "
                "elected by the voters %s: all nodes of a cluster must name the same",
                self._name,
                ", ".join(map(str, voters.ids())),
                ", ".join(map(str, electors)),
            )

    def answered(self, outgoing: Outgoing, response: Any | None) -> None:
        """Log the error of a peer that has answered. Without an answer `response` is None."""
        if response is None:
            return
        place = (outgoing.destination.host, outgoing.destination.port)
        code = response.error_code
        if code in _USUAL:
            self._refusals.pop(place, None)
            return
        if self._refusals.get(place) == code:
            return
        self._refusals[place] = code
        meaning = ""
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            meaning = f": it belongs to another cluster than this node, which was formatted for {self._cluster_id}"
        api = APIS[outgoing.request.API_KEY].name
        logger.warning("%s %s:%d refuses %s with %s%s", self._name, *place, api, error_name(code), meaning)

    def damaged_snapshot(self, snapshot: OffsetAndEpoch, leader_id: int | None, error: Exception) -> None:
        if snapshot != self._damaged:
            self._damaged = snapshot
            logger.warning(
                "%s The snapshot %s of leader %s arrived damaged (%s): it is discarded and fetched again",
                self._name,
                snapshot,
                leader_id,
                error,
            )

    def no_room_for_snapshot(self, snapshot: OffsetAndEpoch, size_bytes: int, log_dir: str) -> None:
        """Log that a snapshot of the leader waits for room. Repeated calls log one line."""
        if snapshot != self._waits:
            self._waits = snapshot
            logger.error(
                "%s The disk of %s has no room for the snapshot %s of the leader (%d bytes): the metadata of this node "
                "stands still until there is room",
                self._name,
                log_dir,
                snapshot,
                size_bytes,
            )

    def snapshot_installed(self, snapshot: OffsetAndEpoch) -> None:
        """Log that a snapshot of the leader is in place."""
        if self._waits is not None:
            self._waits = None
            logger.warning(
                "%s The disk has room for the snapshot %s now: the metadata of this node goes on", self._name, snapshot
            )

    def stopped(self, log_dir: str, error: BaseException) -> None:
        """Log that the replica has failed."""
        logger.error(
            "%s The replica in %s has stopped: %s",
            self._name,
            log_dir,
            error,
            # The message names the disk that failed, or what a leader lost. Any other error is a bug.
            exc_info=None if isinstance(error, (StorageError, OSError, LeaderLostCommitted)) else error,
        )
