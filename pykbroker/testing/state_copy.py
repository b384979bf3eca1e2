"""Copies of log directories: made of a node that stands still, and put in the place of the files of one that has ended.

Responsible for which files are copied. Not responsible for the node (embedded.py, cluster.py), nor for what may not be
handed out again after that (handed_out.py).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from enum import Enum

from pykbroker_log import names
from pykbroker_log.clean_shutdown import CleanShutdown
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.os_disk import links
from pykbroker_log.os_disk.volatile import VolatileDisk
from pykbroker_raft.reserve import FILE as RESERVE

#: Files that belong to a running node alone. The reserve is made again.
_LEFT_OUT = frozenset({names.LOCK, RESERVE})


@contextmanager
def new_folder(parent: str, prefix: str) -> Iterator[str]:
    """Make a folder for the block, and remove it with its contents if the block fails. Raises OSError."""
    path = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        yield path
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


class MayLink(Enum):
    """The files that get a second name instead of a copy, if only pykbroker opens both directories. `Disk` copies such
    a file before it changes (os_disk/links.py)."""

    NONE = "none"
    #: closed segments, also those of a node that runs
    CLOSED = "closed segments"
    #: all files, of a directory that no node uses
    ALL = "all"


def copy_tree(source: str, target: str, left_out: Set[str] = _LEFT_OUT, *, may_link: MayLink = MayLink.NONE) -> None:
    """Copy a directory and everything in it to `target`, which is made unless it is there. The names `left_out`, and
    folders that wait for their deletion, are not copied. Raises OSError."""
    with suppress(FileExistsError):
        os.mkdir(target, 0o700)
    with os.scandir(source) as found:
        entries = [entry for entry in found if entry.name not in left_out]
    active = max((entry.name for entry in entries if entry.name.endswith(names.LOG)), default="")
    for entry in entries:
        path = f"{target}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.endswith(names.DELETE_DIR):
                copy_tree(entry.path, path, left_out, may_link=may_link)
        elif entry.is_file(follow_symlinks=False):
            is_closed = entry.name.endswith(names.LOG) and entry.name != active
            is_linked = may_link is MayLink.ALL or (is_closed and may_link is MayLink.CLOSED)
            # A thread of the node may delete files that are no longer used.
            with suppress(FileNotFoundError):
                _copy_file(entry.path, path, may_link=is_linked)


def _copy_file(source: str, target: str, *, may_link: bool) -> None:
    if may_link:
        # A target on another file system is copied.
        with suppress(OSError):
            links.link(source, target)
            return
    links.copy(source, target, keeps_time=True)


def copy_settled(log_dirs: Sequence[LogDir], target: str, broker_epoch: int) -> None:
    """Copy the directories of a node whose loops stand still to folders of `target`, as after a clean stop.
    `broker_epoch`: the epoch of the node's registration, or -1. Raises StorageError or OSError."""
    for number, log_dir in enumerate(log_dirs):
        is_settled = log_dir.settle()
        copy = f"{target}/{number}"
        # A log that never had a record is made again when it is opened. Most of the coordinators' logs are such logs.
        blank = {os.path.basename(log.path) for log in log_dir.logs.values() if not log.log_end_offset}
        copy_tree(log_dir.path, copy, _LEFT_OUT | blank, may_link=MayLink.CLOSED)
        if is_settled:
            CleanShutdown(VolatileDisk(), copy).write(broker_epoch)


def remove_contents(path: str) -> None:
    """Remove everything in a directory."""
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
