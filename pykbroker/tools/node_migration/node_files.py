"""Reads the log directories of a node into a disk in memory, on which the code of a start can run without any effect.

Responsible for what is copied: the small files of each directory, the names of the folders of partitions, and the whole
folder of the metadata log. Also for facts that a copy cannot have: locks, owners, free room, the names of the first
segments, and the formats of record batches. Not responsible for what the facts mean (directory_findings.py).

For the formats, a few bytes are read of each log: the front of the first batch in its oldest and in its active segment.
Formats rise in the life of a log, so records of an old format are its oldest. If log.message.format.version was lowered
once, they are its newest. Reading every segment would take minutes on a large disk, and would find no more.

Invariant: nothing is opened for writing, and no name is made. The lock of a directory is only looked at.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pykbroker.config.typed_config import Config
from pykbroker.storage.format import directories_of
from pykbroker_log import names
from pykbroker_log.disk import read_file
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.old_batches import FRONT_SIZE, old_magic_of
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.locks import readers_lock
from pykbroker_raft.metadata_storage import DIRECTORY
from pykbroker_raft.reserve import FILE as RESERVE

#: A node that runs may remove or replace a file of its metadata log while it is copied.
_ATTEMPTS: Final = 5
#: Files of a log directory that are larger than this are not its own.
_MOST_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class FoundDirectory:
    """Facts of one log directory that a copy in memory cannot have."""

    path: str
    #: why it cannot be read, or None
    unreadable: str | None = None
    #: a process holds its lock
    is_locked: bool = False
    #: files and folders that the user of the check may not read and write, and the owner of the directory
    closed_to_us: list[str] = field(default_factory=list)
    owner: int = -1
    free_bytes: int = -1
    #: folder of a partition -> magic of the old record batches in its log
    old_batches: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class NodeFiles:
    """`copy` has each readable directory under its own path."""

    copy: MemoryDisk
    directories: list[FoundDirectory]
    #: the size of pykbroker.reserve, 0 if there is none
    reserve_bytes: int = 0
    #: partition -> base offset of the first segment in its folder, for partitions with a checkpointed start
    first_segments: dict[tuple[str, int], int] = field(default_factory=dict)


def read_node_files(config: Config) -> NodeFiles:
    """Read the directories that the configuration names."""
    disk, files = OsDisk(), NodeFiles(MemoryDisk(record=False), [])
    for path in directories_of(config):
        found = FoundDirectory(path)
        files.directories.append(found)
        try:
            _read_directory(disk, files, found, with_metadata=path == config.metadata_log_dir)
        except OSError as error:
            found.unreadable = error.strerror or str(error)
    return files


def _read_directory(disk: OsDisk, files: NodeFiles, found: FoundDirectory, *, with_metadata: bool) -> None:
    path, copy = found.path, files.copy
    try:
        os.stat(path)
    except FileNotFoundError:
        return  # the start says that it is not formatted
    if not disk.is_dir(path):
        raise NotADirectoryError(errno.ENOTDIR, "it is not a directory", path)
    found.is_locked = _is_locked(f"{path}/{names.LOCK}")
    found.owner = os.stat(path).st_uid
    found.free_bytes = disk.usage(path)[1]
    copy.make_dirs(path)
    for name in disk.list(path):
        try:
            _read_entry(disk, files, found, name, with_metadata=with_metadata)
        except FileNotFoundError:
            # A node that runs replaces its checkpoints and removes folders at any time.
            if name in (names.META_PROPERTIES, DIRECTORY):
                raise


def _read_entry(disk: OsDisk, files: NodeFiles, found: FoundDirectory, name: str, *, with_metadata: bool) -> None:
    inside, copy = f"{found.path}/{name}", files.copy
    if disk.exists(inside) and not os.access(inside, os.R_OK | os.W_OK):
        found.closed_to_us.append(name)
    if not disk.is_dir(inside):
        if os.path.isfile(inside) and os.path.getsize(inside) <= _MOST_BYTES and name != names.LOCK:
            _copy_file(disk, copy, inside)
    elif name == DIRECTORY:
        if with_metadata:
            _copy_metadata_log(disk, files, inside)
    elif (parsed := names.parse_partition_dir(name)) is not None:
        listed = disk.list(inside)
        copy.make_dirs(inside)
        segments = names.log_segments(listed)
        if not parsed.mark and segments:
            files.first_segments[parsed.topic, parsed.partition] = segments[0]
            _look_for_old_batches(disk, found, name, segments)


def _is_locked(path: str) -> bool:
    try:
        with readers_lock(path):
            return False
    except BlockingIOError:
        return True


def _copy_file(disk: OsDisk, copy: MemoryDisk, path: str) -> None:
    data = read_file(disk, path)
    file = copy.open(path, create=True)
    file.pwritev([data], 0)
    file.close()


def _copy_metadata_log(disk: OsDisk, files: NodeFiles, folder: str) -> None:
    """Copy the folder. A node that runs may remove a segment at any time; then the copy is made again."""
    for attempt in range(_ATTEMPTS):
        files.copy.make_dirs(folder)
        try:
            for name in disk.list(folder):
                if name == RESERVE:
                    files.reserve_bytes = os.path.getsize(f"{folder}/{name}")
                elif os.path.isfile(f"{folder}/{name}"):
                    _copy_file(disk, files.copy, f"{folder}/{name}")
            return
        except FileNotFoundError:
            if attempt + 1 == _ATTEMPTS:
                raise
            for name in files.copy.list(folder):
                files.copy.unlink(f"{folder}/{name}")


def _look_for_old_batches(disk: OsDisk, found: FoundDirectory, folder: str, bases: Iterable[int]) -> None:
    """Look at the first batch of each segment: the format of a topic changes rarely, and a log can be long."""
    for base in bases:
        path = f"{found.path}/{folder}/{names.segment_file(base, names.LOG)}"
        file = disk.open(path)
        try:
            magic = old_magic_of(file.pread(FRONT_SIZE, 0), file.size())
        except PermissionError:
            found.closed_to_us.append(f"{folder}/{names.segment_file(base, names.LOG)}")
            return
        finally:
            file.close()
        if magic is not None:
            found.old_batches[folder] = magic
            return
