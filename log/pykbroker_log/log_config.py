"""The configuration that a log takes from its topic, the kinds of appenders, and the error for a failed disk.

Invariants: a `LogConfig` is immutable; a dynamic change replaces the whole value (`PartitionLog.config = ...`).
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Mapping
from dataclasses import dataclass

from pykbroker_wire.records.compression import Codec

MAX_INT64 = (1 << 63) - 1
#: the largest array that Java allocates
MAX_ARRAY_BYTES = (1 << 31) - 9


class AppendOrigin(enum.Enum):
    """The kind of appender; decides how much is checked."""

    CLIENT = "client"  # everything is checked
    COORDINATOR = "coordinator"  # control batches are allowed, without sequence numbers
    RAFT_LEADER = "raft leader"  # offsets and epochs are already in the batch
    REPLICATION = "replication"  # the leader has checked it


class StorageError(Exception):
    """The disk failed under a log. The caller returns KAFKA_STORAGE_ERROR and takes the directory offline.

    `is_final` is True if the log takes no more appends, even if the disk is only full. Earlier writes may be lost, and
    a second try cannot show it (a failed fsync), or the bytes after the log's end cannot be cut off.
    """

    def __init__(self, log_dir: str, cause: OSError, *, is_final: bool = False) -> None:
        super().__init__(f"{log_dir}: {cause}")
        self.log_dir = log_dir
        self.cause = cause
        self.is_final = is_final

    def __reduce__(self) -> tuple[type[StorageError], tuple[str, OSError]]:
        # The error is passed on by worker processes; by default an exception is pickled with its message only.
        return StorageError, (self.log_dir, self.cause)

    @property
    def is_full(self) -> bool:
        """True if the disk has no space, and the log can go on: records can still be read, and space may become
        free."""
        return not self.is_final and is_full(self.cause)


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _policies(value: object) -> frozenset[str]:
    parts = value.split(",") if isinstance(value, str) else value
    assert isinstance(parts, (list, tuple, set, frozenset))
    return frozenset(str(part).strip() for part in parts)


@dataclass(slots=True, frozen=True)
class LogConfig:
    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    max_message_bytes: int = 1_048_588
    max_decompressed_message_bytes: int = MAX_ARRAY_BYTES
    cleanup_policy: frozenset[str] = frozenset(("delete",))
    message_timestamp_type: str = "CreateTime"
    timestamp_before_max_ms: int = MAX_INT64
    timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    min_cleanable_dirty_ratio: float = 0.5
    remote_storage_enable: bool = False

    @property
    def max_segment_ms(self) -> int:
        """The time after which a new segment begins. `max.compaction.lag.ms` limits it, because records in the active
        segment are never compacted."""
        if self.compact and self.max_compaction_lag_ms > 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    def compression_level(self, codec: int) -> int | None:
        """Return the configured level, or None if the codec has no levels."""
        return {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }.get(Codec(codec))

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def is_tiered(self) -> bool:
        """True if the log may begin before its first local segment (KIP-405). No segment is copied to a remote tier or
        read from one: only the log start and the local log start may differ."""
        return self.remote_storage_enable and not self.compact

    @classmethod
    def from_topic(cls, values: Mapping[str, object]) -> LogConfig:
        """Build from Kafka's topic keys and typed values. Missing keys keep Kafka's default; unknown keys are
        ignored."""
        fields: dict[str, object] = {}
        for key, name in _TOPIC_KEYS.items():
            value = values.get(key)
            if value is not None:
                fields[name] = _policies(value) if name == "cleanup_policy" else value
        if (small := values.get("internal.segment.bytes")) is not None:
            # Kafka's internal key allows less than the smallest `segment.bytes` of 1 MB.
            fields["segment_bytes"] = small
        return cls(**fields)  # type: ignore[arg-type]  # the typed table of configuration keys has checked the values


_TOPIC_KEYS = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    "segment.jitter.ms": "segment_jitter_ms",
    "segment.index.bytes": "segment_index_bytes",
    "index.interval.bytes": "index_interval_bytes",
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "max.message.bytes": "max_message_bytes",
    "max.decompressed.message.bytes": "max_decompressed_message_bytes",
    "cleanup.policy": "cleanup_policy",
    "message.timestamp.type": "message_timestamp_type",
    "message.timestamp.before.max.ms": "timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
    "compression.type": "compression_type",
    "compression.gzip.level": "compression_gzip_level",
    "compression.lz4.level": "compression_lz4_level",
    "compression.zstd.level": "compression_zstd_level",
    "flush.messages": "flush_messages",
    "flush.ms": "flush_ms",
    "file.delete.delay.ms": "file_delete_delay_ms",
    "preallocate": "preallocate",
    "min.insync.replicas": "min_insync_replicas",
    "unclean.leader.election.enable": "unclean_leader_election_enable",
    "delete.retention.ms": "delete_retention_ms",
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "max.compaction.lag.ms": "max_compaction_lag_ms",
    "min.cleanable.dirty.ratio": "min_cleanable_dirty_ratio",
    "remote.storage.enable": "remote_storage_enable",
}
