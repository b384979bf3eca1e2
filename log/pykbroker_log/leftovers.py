"""Finishes or undoes the deletions and compactions that a crash has interrupted in a partition's folder.

Responsible for files in the state `.deleted`, `.cleaned` or `.swap`, and for unfinished writes; and for unlinking a
segment with its indexes. Not responsible for what is in the segments (log_loading.py), nor for how a compaction puts
its output in place while the log is open (replacement.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pykbroker_log import names
from pykbroker_log.disk import Disk
from pykbroker_wire.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch

#: A file of the folder, and its parsed name if it belongs to a segment.
ParsedName = tuple[str, names.SegmentName | None]


def parse_names(files: Iterable[str]) -> list[ParsedName]:
    return [(name, names.parse_segment_file(name)) for name in files]


def is_leftover(name: str, parsed: names.SegmentName | None) -> bool:
    return bool(parsed.state) if parsed else name.endswith((names.DELETED, names.UNFINISHED))


def finish_leftovers(disk: Disk, path: str, found: Sequence[ParsedName]) -> list[str]:
    """Finish every deletion, and every compaction that had reached its swap. Return notes for the operator."""
    _finish_deletions(disk, path, found)
    return _finish_swaps(disk, path)


def _finish_deletions(disk: Disk, path: str, parsed: Sequence[ParsedName]) -> None:
    """Delete `.deleted` files, and all files of a compaction that had not reached its swap."""
    cleaned = [found.base_offset for _, found in parsed if found and found.state == names.CLEANED]
    for name, found in parsed:
        if found is None:
            if is_leftover(name, None):
                disk.unlink(f"{path}/{name}")
        elif found.state in (names.DELETED, names.CLEANED) or (
            # A split writes several outputs. If one is unfinished, those after it do not count either.
            found.state == names.SWAP and cleaned and found.base_offset >= min(cleaned)
        ):
            disk.unlink(f"{path}/{name}")


def _finish_swaps(disk: Disk, path: str) -> list[str]:
    """Let each complete `.swap` replace the segments whose offsets it covers."""
    parsed = parse_names(name for name, _ in disk.scan(path))
    swaps = [(name, found) for name, found in parsed if found and found.state == names.SWAP]
    if not swaps:
        return []
    ends = {
        found.base_offset: _end_of_swap(disk, path, name, found.base_offset)
        for name, found in swaps
        if found.kind == names.LOG
    }
    for base in sorted({found.base_offset for _, found in parsed if found and found.state != names.SWAP}):
        # The swap was made from whole segments: a segment that begins inside its range is one of them.
        if any(first <= base < end or base == first for first, end in ends.items()):
            unlink_segment(disk, path, base)
    for name, found in swaps:
        if found.base_offset not in ends:
            # This is an index that an earlier start left, or part of a compaction that was cancelled: the segment with
            # that name may have other batches.
            disk.unlink(f"{path}/{name}")
            _unlink_indexes(disk, path, found.base_offset)
    # Otherwise a power loss could undo the unlink of the old segments, although the segment that replaces them has its
    # final name.
    disk.fsync_dir(path)
    for name, found in swaps:
        if found.base_offset in ends:
            disk.rename(f"{path}/{name}", f"{path}/{name.removesuffix(names.SWAP)}")
    disk.fsync_dir(path)
    return [f"finished the replacement of segments {base} to {end}" for base, end in ends.items()]


def _end_of_swap(disk: Disk, path: str, name: str, base: int) -> int:
    file = disk.open(f"{path}/{name}")
    try:
        position, end, next_offset = 0, file.size(), base
        while position < end:
            header = BatchHeader.parse(file.pread(HEADER_SIZE, position))
            next_offset = header.next_offset
            position += header.size_in_bytes
        return next_offset
    except CorruptBatch:
        return next_offset
    finally:
        file.close()


def unlink_segment(disk: Disk, folder: str, base: int) -> None:
    _unlink_indexes(disk, folder, base)
    path = f"{folder}/{names.segment_file(base, names.LOG)}"
    if disk.exists(path):
        disk.unlink(path)


def _unlink_indexes(disk: Disk, folder: str, base: int) -> None:
    for suffix in names.INDEXES:
        path = f"{folder}/{names.segment_file(base, suffix)}"
        if disk.exists(path):
            disk.unlink(path)
