"""A fork of a log directory: a second directory with the same logs, which shares closed files with the first.

Responsible for the plan (which files of a directory are linked, copied or left out; pure) and for carrying it out in an
empty directory. Not responsible for whose directory it is: meta.properties, the lock of the source, durability and the
name of the fork are the caller's (pykbroker/storage/forks.py).

Invariants:
* A file is linked only if nothing changes it in the ordinary life of a log. These are the records, the aborted
  transactions and the producer snapshots of closed segments. All records of such a segment are below the recovery
  point, so no start checks them again. They are below the high watermark too, so no new leader has them cut off.
* Indexes are copied, because a broker of Apache Kafka maps them and changes their size in place.
* The source is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pykbroker_log import names
from pykbroker_log.checkpoints import MalformedFile, TopicPartition, decode_offsets
from pykbroker_log.disk import Disk, read_file

#: Files of the directory itself that a fork has too. It gets a meta.properties of its own.
OF_DIRECTORY = (
    names.RECOVERY_POINTS,
    names.HIGH_WATERMARKS,
    names.LOG_START_OFFSETS,
    names.CLEANER_OFFSETS,
    names.BOOTSTRAP_CHECKPOINT,
    names.CLEAN_SHUTDOWN,
)
_LINKABLE = (names.LOG, names.TXN_INDEX, names.SNAPSHOT)
_KEPT = (names.LEADER_EPOCHS, names.PARTITION_METADATA)


class PlannedFile(NamedTuple):
    name: str
    size: int
    #: its bytes never change, so that it may be linked
    is_closed: bool


@dataclass(slots=True, frozen=True)
class PlannedFolder:
    """A folder of the fork; the name "" stands for the directory itself."""

    name: str
    files: Sequence[PlannedFile]


@dataclass(slots=True)
class Forked:
    """The counts of files and bytes of a fork."""

    linked_files: int = 0
    linked_bytes: int = 0
    copied_files: int = 0
    #: the bytes of the copies that were written; a clone writes none
    written_bytes: int = 0


# -- the plan (pure) --------------------------------------------------------------------------------------------------


def partition_files(entries: Sequence[tuple[str, int]], below: int) -> Iterator[PlannedFile]:
    """Yield the files of a partition's folder, by their names and sizes. Everything before the offset `below` is
    durable and replicated. Unfinished and deleted files are left out."""
    parsed = [(name, size, names.parse_segment_file(name)) for name, size in entries]
    bases = sorted(found.base_offset for _, _, found in parsed if found and found.kind == names.LOG and not found.state)
    # The last segment is the active one, and has no end.
    closed = {base for base, end in pairwise(bases) if end <= below}
    for name, size, found in parsed:
        if found is None:
            if name in _KEPT:
                yield PlannedFile(name, size, is_closed=False)
        elif found.state != names.DELETED:
            is_closed = not found.state and found.kind in _LINKABLE
            if found.kind == names.SNAPSHOT:
                # A clean stop may write the snapshot at the end of the log again.
                is_closed = is_closed and bool(bases) and found.base_offset <= min(below, bases[-1])
            else:
                is_closed = is_closed and found.base_offset in closed
            yield PlannedFile(name, size, is_closed)


def metadata_files(entries: Sequence[tuple[str, int]], is_left_out: Callable[[str], bool]) -> Iterator[PlannedFile]:
    """Yield the files of the metadata log's folder. All are copied, because they are few, and its snapshots and its
    votes have rules of their own."""
    for name, size in entries:
        if not name.endswith((names.UNFINISHED, names.DELETED)) and not is_left_out(name):
            yield PlannedFile(name, size, is_closed=False)


def below_both(key: TopicPartition, *checkpoints: dict[TopicPartition, int]) -> int:
    """Return the offset up to which a partition has passed all these checkpoints."""
    return min(checkpoint.get(key, 0) for checkpoint in checkpoints)


# -- on a disk --------------------------------------------------------------------------------------------------------


def plan(disk: Disk, path: str, is_left_out: Callable[[str], bool] = lambda name: False) -> list[PlannedFolder]:
    """Plan the fork of a log directory that no broker uses. `is_left_out` returns True for files of the metadata log
    that a fork does without. Raises MalformedFile, which names the file, and OSError."""
    recovery_points = _offsets(disk, f"{path}/{names.RECOVERY_POINTS}")
    high_watermarks = _offsets(disk, f"{path}/{names.HIGH_WATERMARKS}")
    planned = []
    own = []
    for name, size in disk.scan(path):
        if name in OF_DIRECTORY:
            own.append(PlannedFile(name, size, is_closed=False))
            continue
        parsed = names.parse_partition_dir(name)
        if parsed is None or parsed.mark in (names.DELETE_DIR, names.STRAY_DIR) or not disk.is_dir(f"{path}/{name}"):
            # Folders that were deleted or set aside, and what is no file of a broker.
            continue
        entries = disk.scan(f"{path}/{name}")
        if parsed.topic == names.METADATA_TOPIC:
            files = metadata_files(entries, is_left_out)
        else:
            # A copy that is to become a log has no offsets of its own in the checkpoints.
            below = 0 if parsed.mark else below_both((parsed.topic, parsed.partition), recovery_points, high_watermarks)
            files = partition_files(entries, below)
        planned.append(PlannedFolder(name, list(files)))
    return [*planned, PlannedFolder("", own)]


def _offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    if not disk.exists(path):
        return {}
    try:
        return decode_offsets(read_file(disk, path))
    except MalformedFile as error:
        raise MalformedFile(f"{path} is damaged: {error}") from None


def carry_out(
    disk: Disk, source: str, target: str, folders: Sequence[PlannedFolder], forked: Forked, *, may_link: bool
) -> None:
    """Make the planned files in `target`, an existing directory, and count them in `forked`. With `may_link` closed
    files get a second name there; otherwise they are copied. Nothing is durable yet. Raises OSError."""
    link, copy = disk.link, disk.copy
    for folder in folders:
        old, new = source, target
        if folder.name:
            old, new = f"{source}/{folder.name}", f"{target}/{folder.name}"
            disk.make_dirs(new)
        for name, size, is_closed in folder.files:
            if is_closed and may_link:
                link(f"{old}/{name}", f"{new}/{name}")
                forked.linked_files += 1
                forked.linked_bytes += size
            else:
                forked.written_bytes += copy(
                    # The age of a segment without timestamps is that of its file.
                    f"{old}/{name}",
                    f"{new}/{name}",
                    keeps_time=name.endswith(names.LOG),
                )
                forked.copied_files += 1


def bytes_to_copy(folders: Sequence[PlannedFolder], *, may_link: bool) -> int:
    """Return the size of the files that are not linked."""
    return sum(file.size for folder in folders for file in folder.files if not (file.is_closed and may_link))
