"""The configuration of one replica of the metadata quorum, and how the replica is opened from its disk."""

from __future__ import annotations

from dataclasses import dataclass, field

from pykbroker.runtime import Runtime
from pykbroker_log.disk import Disk
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.intact import check_vote, check_voters
from pykbroker_raft.log_view import LogView
from pykbroker_raft.metadata_storage import MetadataStorage, StorageConfig
from pykbroker_raft.raft_node import RaftNode
from pykbroker_raft.voters import VoterHistory


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """The configuration of a driver: its identity, its directory, and the keys metadata.log.max.* for snapshots."""

    raft: RaftConfig
    #: metadata.log.dir, or the first of log.dirs.
    log_dir: str
    storage: StorageConfig = field(default_factory=StorageConfig)
    snapshot_bytes: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3_600_000
    #: for this long a leader gathers the records that are appended during an fsync (metadata_flush.py)
    append_linger_ms: int = 25


@dataclass(frozen=True, slots=True)
class OpenedStorage:
    """The state from which a replica starts."""

    storage: MetadataStorage
    view: LogView
    history: VoterHistory
    #: the content of quorum-state, if the file is there
    stored: ElectionState | None


def open_storage(disk: Disk, config: QuorumConfig, now_ms: int) -> OpenedStorage:
    """Open the metadata log and check all that a start needs of it. It blocks. Raises the errors in `UNUSABLE` of the
    metadata storage, also if quorum-state is missing or the configured voters do not fit the log."""
    raft = config.raft
    storage = MetadataStorage.open(disk, config.log_dir, config.storage, now_ms, is_observer=not raft.is_controller)
    view, history = storage.log_view(), storage.voter_history(raft.static_voters)
    stored = storage.read_election_state()
    others = raft.is_controller and not history.voters.is_only_voter(raft.key)
    check_vote(stored, view.end_offset, has_other_voters=others)
    if raft.is_controller:
        check_voters(history, stored)
    return OpenedStorage(storage, view, history, stored)


def open_replica(runtime: Runtime, config: QuorumConfig) -> tuple[MetadataStorage, RaftNode]:
    """Return the storage and the node of a replica. It is called on a thread. Raises as `open_storage` does."""
    opened = open_storage(runtime.disk, config, runtime.now_ms())
    node = RaftNode(config.raft, runtime.random, opened.view, opened.history, opened.stored)
    return opened.storage, node
