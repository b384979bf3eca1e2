"""Findings about the log directories of a node: whose they are, how the last run left them, and what is unfinished.

Responsible for running the start's own reading (storage/format.py, `LogDir`) on a copy in memory, and for facts that
the start accepts although an operator should know them. Not responsible for the metadata log (metadata_findings.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pykbroker.config.typed_config import Config
from pykbroker.storage.format import Formatted, StorageFormatError, directories_of, read_format
from pykbroker.tools.node_migration.findings import FindingLevel, NodeFinding, counted, ok, some, stop, warn
from pykbroker.tools.node_migration.node_files import FoundDirectory, NodeFiles
from pykbroker_log import names
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.partition_folders import Folder
from pykbroker_raft.reserve import MARGIN_BYTES

#: what to do about a directory that is not this node's
_RIGHT_ONE = "Name this node's own directories in log.dirs, or start on the machine that has them"


@dataclass(slots=True)
class OpenedDirectories:
    """The directories as the start opens them, from the copy."""

    formatted: Formatted
    log_dirs: list[LogDir] = field(default_factory=list)

    @property
    def folders(self) -> dict[tuple[str, int], list[str]]:
        """Return partition -> the directories that have a folder of its log."""
        found: dict[tuple[str, int], list[str]] = {}
        for log_dir in self.log_dirs:
            for key in log_dir.folders.partitions:
                found.setdefault(key, []).append(log_dir.path)
        return found


def directory_findings(
    config: Config, files: NodeFiles, *, runs_in_cluster: bool | None, now_ms: int, user: int
) -> tuple[OpenedDirectories | None, list[NodeFinding]]:
    """Return the directories, or None if the start refuses them, and the findings. `runs_in_cluster`: whether the
    cluster has this node, None if it was not asked. `user`: the number of the user who runs the check."""
    found = [
        stop(f"The directory cannot be used: {each.unreadable}", each.path, "Mount or repair it, or correct log.dirs")
        for each in files.directories
        if each.unreadable is not None
    ]
    found += _locks(files.directories, runs_in_cluster)
    found += _room(config, files)
    found += _owners(files.directories, user)
    found += _old_formats(files.directories)
    if any(each.unreadable is not None for each in files.directories):
        return None, found
    opened, refused = _opened(config, files, now_ms)
    found += refused
    if opened is not None:
        found += _left_behind(opened, files)
    if not any(finding.level is FindingLevel.STOP for finding in found):
        found.append(ok("The start accepts each directory", ", ".join(directories_of(config))))
    return opened, found


def _opened(config: Config, files: NodeFiles, now_ms: int) -> tuple[OpenedDirectories | None, list[NodeFinding]]:
    """Do what the start does with the directories, on the copy."""
    try:
        # A directory of an old release gets its id in the copy alone.
        formatted = read_format(files.copy, config, random.SystemRandom(), now_ms=now_ms)
        opened = OpenedDirectories(formatted)
        for path in directories_of(config):
            if path in formatted.broken:
                raise StorageFormatError(f"{path} would be offline: {formatted.broken[path]}")
            opened.log_dirs.append(LogDir.open(files.copy, path, formatted.directory_ids[path], now_ms))
    except (StorageFormatError, StorageError, OSError) as error:
        return None, [
            stop(f"The start refuses the directories: {error}", ", ".join(directories_of(config)), _RIGHT_ONE)
        ]
    return opened, []


def _locks(directories: Sequence[FoundDirectory], runs_in_cluster: bool | None) -> Iterator[NodeFinding]:
    locked = [each.path for each in directories if each.is_locked]
    if not locked:
        return
    where = ", ".join(locked)
    if runs_in_cluster:
        yield ok("The node runs on the directory, and the cluster has it", where, "Stop it before the other one starts")
        return
    yield stop(
        "A process runs on the directory" + ("" if runs_in_cluster is None else ", and the cluster has no such node"),
        where,
        "Stop it and wait for its end. With --bootstrap-server the check can tell whether it is the node that moves",
    )


def _room(config: Config, files: NodeFiles) -> Iterator[NodeFinding]:
    wanted = config.int("pykbroker.metadata.reserve.bytes")
    if not wanted or files.reserve_bytes == wanted:
        return
    for each in files.directories:
        if each.path == config.metadata_log_dir and 0 <= each.free_bytes < wanted + MARGIN_BYTES:
            yield stop(
                f"{each.free_bytes} bytes are free, fewer than the reserve of the metadata log ({wanted})",
                each.path,
                "Free room on the disk, or set pykbroker.metadata.reserve.bytes lower",
            )


def _owners(directories: Sequence[FoundDirectory], user: int) -> Iterator[NodeFinding]:
    for each in directories:
        if each.closed_to_us:
            yield warn(
                f"This user may not read and write {some(each.closed_to_us)}",
                each.path,
                f"Run the check and pykbroker as the owner of the directory (uid {each.owner})",
            )
        elif each.owner not in (-1, user):
            yield warn(
                f"The directory belongs to uid {each.owner}, and this user is uid {user}",
                each.path,
                f"Run pykbroker as uid {each.owner}, so that Apache Kafka can use its files again",
            )


def _old_formats(directories: Sequence[FoundDirectory]) -> Iterator[NodeFinding]:
    """The log loader refuses such a log, and its directory goes offline. Apache Kafka 4.x reads it."""
    for each in directories:
        if each.old_batches:
            shown = [f"{folder} (magic {magic})" for folder, magic in sorted(each.old_batches.items())]
            yield stop(
                f"{counted(len(shown), 'log')} with record batches of a format that is not served: {some(shown)}",
                each.path,
                "While Apache Kafka runs, copy the records to a new topic, which has magic 2, or delete them",
            )


def _left_behind(opened: OpenedDirectories, files: NodeFiles) -> Iterator[NodeFinding]:
    locked = {each.path for each in files.directories if each.is_locked}
    for log_dir in opened.log_dirs:
        if not log_dir.sign.was_clean and log_dir.path not in locked and log_dir.folders.partitions:
            yield warn(
                f"The last stop was not clean ({names.CLEAN_SHUTDOWN} is missing)",
                log_dir.path,
                "Start Apache Kafka and stop it with SIGTERM, or expect a longer start that checks each log",
            )
        folders = log_dir.folders.all()
        yield from _marked(log_dir.path, folders)
    twice = {key: paths for key, paths in opened.folders.items() if len(paths) > 1}
    if twice:
        shown = [names.partition_dir(*key) for key in sorted(twice)]
        yield stop(
            f"{counted(len(twice), 'partition')} in two directories: {some(shown)}",
            ", ".join(next(iter(twice.values()))),
            "Find out which folder is whole, and move the other one out of log.dirs",
        )


def _marked(path: str, folders: Sequence[Folder]) -> Iterator[NodeFinding]:
    to_do: Mapping[str, tuple[str, str]] = {
        names.FUTURE_DIR: ("is being moved to this directory", "Let the move end first, or cancel it"),
        names.STRAY_DIR: ("was set aside as a stray", "Look into it, and move it out of log.dirs"),
    }
    for mark, (why, what) in to_do.items():
        found = [folder.name for folder in folders if folder.mark == mark]
        if found:
            yield warn(f"{counted(len(found), 'folder')} {why}: {some(found)}", path, what)
