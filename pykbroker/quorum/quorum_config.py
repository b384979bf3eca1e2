"""The configuration of one replica of the metadata quorum."""

from __future__ import annotations

from dataclasses import dataclass, field

from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.metadata_storage import StorageConfig


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
