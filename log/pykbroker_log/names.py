"""Every file and folder name of a log directory, in one place.

Invariant: `parse_*` accepts only names that these functions (or Apache Kafka) have written; all others are foreign.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
INDEXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
UNFINISHED = ".tmp"

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

LOCK = ".lock"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

METADATA_TOPIC = "__cluster_metadata"

DELETE_DIR = "-delete"
FUTURE_DIR = "-future"
STRAY_DIR = "-stray"

# Most file systems limit a name to 255 bytes.
MAX_NAME = 255

_SEGMENT = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?")
_PARTITION = re.compile(r"(.+)-(\d+)")
_MARKED = re.compile(r"(.+)\.([0-9a-f]{32})(-delete|-future|-stray)")


def segment_file(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


@dataclass(slots=True, frozen=True)
class SegmentName:
    base_offset: int
    kind: str  # ".log", ".index", ...
    state: str  # "", ".deleted", ".cleaned", ".swap"


def parse_segment_file(name: str) -> SegmentName | None:
    match = _SEGMENT.fullmatch(name)
    return SegmentName(int(match[1]), match[2], match[3] or "") if match else None


def log_segments(listed: Iterable[str]) -> list[int]:
    """Return the base offsets of the segments among the file names of a folder, in order. Segments that are being
    deleted or swapped are left out."""
    return sorted(
        found.base_offset
        for found in map(parse_segment_file, listed)
        if found and found.kind == LOG and not found.state
    )


def partition_dir(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_dir(topic: str, partition: int, unique: str, mark: str) -> str:
    """Return `<topic>-<partition>.<32 hex digits>-delete` or the like. A long topic name is cut; the rest stays
    whole."""
    tail = f"-{partition}.{unique}{mark}"
    return topic[: MAX_NAME - len(tail)] + tail


@dataclass(slots=True, frozen=True)
class PartitionDirName:
    topic: str
    partition: int
    mark: str  # "", "-delete", "-future", "-stray"


def parse_partition_dir(name: str) -> PartitionDirName | None:
    mark = ""
    marked = _MARKED.fullmatch(name)
    if marked:
        name, mark = marked[1], marked[3]
    match = _PARTITION.fullmatch(name)
    return PartitionDirName(match[1], int(match[2]), mark) if match else None
