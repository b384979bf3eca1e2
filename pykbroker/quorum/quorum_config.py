"""What one replica of the metadata quorum is given."""

from __future__ import annotations

from dataclasses import dataclass, field

from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.metadata_storage import StorageConfig


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """What a driver is given: who it is, where it stores, when it takes a snapshot (keys metadata.log.max.*)."""

    raft: RaftConfig
    #: metadata.log.dir, or the first of log.dirs.
    log_dir: str
    storage: StorageConfig = field(default_factory=StorageConfig)
    snapshot_bytes: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3_600_000
    #: how long a leader gathers what is appended during an fsync (metadata_flush.py)
    append_linger_ms: int = 25
