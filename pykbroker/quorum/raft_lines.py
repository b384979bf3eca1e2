"""What the log of a node says about its replica of the quorum: its role, the voters, and what is wrong with others.

Responsible for the words, and for saying each thing once: a peer that refuses every request is one line, not one a
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

#: what a node of the quorum says while it stops or is not ready, while the leader changes, or in an older release
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
    """Says what one replica has to tell, and remembers what it has said."""

    def __init__(self, node_id: int, cluster_id: str) -> None:
        self._name = f"[RaftManager id={node_id}]"
        self._cluster_id = cluster_id
        self._told_voters: VoterSet | None = None
        self._told_electors: tuple[int, ...] | None = None
        #: host and port -> the error that this peer answers with
        self._refusals: dict[tuple[str, int], int] = {}
        self._damaged: OffsetAndEpoch | None = None
        #: a snapshot that waits for room
        self._waits: OffsetAndEpoch | None = None

    def leader(self, role: Role, change: LeaderChange) -> None:
        logger.info("%s %s in epoch %d, leader is %s", self._name, role.value, change.epoch, change.leader_id)

    def voters(self, voters: VoterSet, kraft_version: int, electors: tuple[int, ...] | None) -> None:
        """Tell the voters from now on: also a set that is not committed counts. `electors`: the voters of the newest
        leader in the log, as it knew them."""
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
        """A peer has answered, or has not (None)."""
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
                "%s The snapshot %s of leader %s came damaged (%s): nothing of it is used, and it is asked for again",
                self._name,
                snapshot,
                leader_id,
                error,
            )

    def no_room_for_snapshot(self, snapshot: OffsetAndEpoch, size_bytes: int, log_dir: str) -> None:
        """A snapshot of the leader waits for room. Asked again and again, this is one line."""
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
        """A snapshot of the leader is in place."""
        if self._waits is not None:
            self._waits = None
            logger.warning("%s The snapshot %s found room: the metadata of this node goes on", self._name, snapshot)

    def stopped(self, log_dir: str, error: BaseException) -> None:
        """The replica has failed."""
        logger.error(
            "%s The replica in %s has stopped: %s",
            self._name,
            log_dir,
            error,
            # Where a disk failed, and what a leader lost, is in the message; anything else is a bug.
            exc_info=None if isinstance(error, (StorageError, OSError, LeaderLostCommitted)) else error,
        )
