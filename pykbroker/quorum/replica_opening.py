"""Opens a replica of the quorum from its disk. It blocks, so it is called on a thread."""

from __future__ import annotations

from pykbroker.quorum.quorum_config import QuorumConfig
from pykbroker.runtime import Runtime
from pykbroker_raft.intact import check_vote, check_voters
from pykbroker_raft.metadata_storage import MetadataStorage
from pykbroker_raft.raft_node import RaftNode


def open_replica(runtime: Runtime, config: QuorumConfig) -> tuple[MetadataStorage, RaftNode]:
    """Return the storage and the node of a replica. Raises the errors in `UNUSABLE` of the metadata storage, also if
    quorum-state is missing or the configured voters do not fit the log."""
    raft = config.raft
    storage = MetadataStorage.open(
        runtime.disk, config.log_dir, config.storage, runtime.now_ms(), is_observer=not raft.is_controller
    )
    view, history = storage.log_view(), storage.voter_history(raft.static_voters)
    stored = storage.read_election_state()
    others = raft.is_controller and not history.voters.is_only_voter(raft.key)
    check_vote(stored, view.end_offset, has_other_voters=others)
    if raft.is_controller:
        check_voters(history, stored)
    return storage, RaftNode(raft, runtime.random, view, history, stored)
