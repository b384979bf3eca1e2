"""Forks of the directories of stopped nodes: copies that another cluster starts on, made in little time and room.

Responsible for finding the directories, for what must hold of them before anything is written, for their new cluster
id, and for making all of them or none. Not responsible for which files are shared (pykbroker_log/forking.py), nor for
asking the network (the caller passes `answering`).

Invariants:
* The source has the locks of its directories while it is read, so no node runs on it. It is only read.
* A fork is made under another name and renamed when it is whole and durable. Until then its name stays free, and a
  fork that fails, or whose process dies, leaves nothing under that name.
* The ids of the nodes and of their directories stay, because the metadata log names them. The votes stay too.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from pykbroker.storage.meta_properties import MetaProperties, MetaPropertiesError, read_meta_properties
from pykbroker.storage.stored_cluster import NewerRecords, StoredAddress, StoredCluster, stored_cluster
from pykbroker_log import names
from pykbroker_log.checkpoints import MalformedFile, decode_properties, encode_properties
from pykbroker_log.disk import Disk, parent_of, read_file, remove_tree, write_new
from pykbroker_log.forking import Forked, PlannedFolder, bytes_to_copy, carry_out, plan
from pykbroker_log.log_config import is_full
from pykbroker_raft import checkpoint
from pykbroker_raft.metadata_storage import DIRECTORY
from pykbroker_raft.reserve import FILE as RESERVE
from pykbroker_raft.stored_records import UnreadableRecords, read_records
from pykbroker_wire.primitives import DecodeError, uuid_to_str

#: A directory of a node is at most this far below the folder that is named: TREE/node-1/data.
_MOST_DEPTH = 3
#: Room that a fork leaves on the disk.
_MARGIN_BYTES = 16 * 1024 * 1024

#: Takes a file's content and the new cluster id, and returns the content for the fork.
Rewrite = Callable[[bytes, str], bytes]


class ForkError(Exception):
    """The fork cannot be made. The text is for the user."""


@dataclass(slots=True, frozen=True)
class Pair:
    """A folder with directories of nodes, or one such directory, and the name of its fork."""

    source: str
    target: str

    @property
    def unfinished(self) -> str:
        head, slash, name = self.target.rpartition("/")
        return f"{head}{slash}.{name}.unfinished"


@dataclass(slots=True, frozen=True)
class Wanted:
    pairs: Sequence[Pair]
    #: None keeps the cluster id of the source
    cluster_id: str | None
    may_link: bool
    now_ms: int
    #: files beside the directories that have the cluster id, by their path in the folder that is named
    rewritten: Mapping[str, Rewrite] = field(default_factory=dict)


@dataclass(slots=True)
class ForkReport:
    cluster_id: str
    directories: int = 0
    #: the last stop of each node was clean
    is_clean: bool = True
    #: voters whose directories are not in the fork
    missing_voters: list[int] = field(default_factory=list)
    forked: Forked = field(default_factory=Forked)


@dataclass(slots=True)
class _Directory:
    pair: Pair
    #: its path below the source of the pair; "" if it is the source
    inside: str
    found: MetaProperties
    folders: list[PlannedFolder] = field(default_factory=list)

    @property
    def source(self) -> str:
        return f"{self.pair.source}/{self.inside}" if self.inside else self.pair.source

    @property
    def unfinished(self) -> str:
        return f"{self.pair.unfinished}/{self.inside}" if self.inside else self.pair.unfinished


def fork(
    disk: Disk, wanted: Wanted, answering: Callable[[Sequence[StoredAddress]], Sequence[StoredAddress]]
) -> ForkReport:
    """Fork directories. `answering` returns those of the addresses where a program listens. Raises ForkError, OSError;
    then nothing was made."""
    for pair in wanted.pairs:
        _check_target(disk, pair)
    directories = [found for pair in wanted.pairs for found in _directories(disk, pair)]
    with ExitStack() as held:
        for directory in directories:
            _lock(disk, directory.source, held)
        cluster_id = _common_cluster_id(directories)
        cluster = _stored_cluster(disk, directories)
        _check_directories(directories, cluster)
        answers = answering(cluster.addresses())
        if answers:
            raise ForkError(
                f"{answers[0]} answers, and the metadata names it: a fork would talk to it. Stop all nodes of the "
                "cluster first"
            )
        for directory in directories:
            try:
                directory.folders = plan(disk, directory.source, _is_left_out)
            except MalformedFile as error:
                raise ForkError(str(error)) from None
        report = ForkReport(wanted.cluster_id or cluster_id, len(directories))
        report.missing_voters = sorted(cluster.voters - {each.found.node_id for each in directories})
        _make(disk, wanted, directories, report)
    return report


# -- what must hold ---------------------------------------------------------------------------------------------------


def _check_target(disk: Disk, pair: Pair) -> None:
    if not disk.is_dir(pair.source):
        raise ForkError(f"{pair.source} is not a directory")
    if f"{pair.target}/".startswith(f"{pair.source}/") or f"{pair.source}/".startswith(f"{pair.target}/"):
        raise ForkError(f"{pair.target} and {pair.source}: neither may be inside the other")
    if disk.exists(pair.target) and not (disk.is_dir(pair.target) and not disk.list(pair.target)):
        raise ForkError(f"{pair.target} exists already")
    if not disk.is_dir(parent_of(pair.target)):
        raise ForkError(f"{parent_of(pair.target)} is not a directory")


def _directories(disk: Disk, pair: Pair) -> list[_Directory]:
    """Return the log directories in the source of a pair, at least one."""
    found = list(_walk(disk, pair, "", _MOST_DEPTH))
    if not found:
        raise ForkError(f"{pair.source} has no {names.META_PROPERTIES}, so it is no directory of a node")
    return found


def _walk(disk: Disk, pair: Pair, inside: str, depth: int) -> Iterator[_Directory]:
    path = f"{pair.source}/{inside}" if inside else pair.source
    try:
        properties = read_meta_properties(disk, path)
    except MetaPropertiesError as error:
        raise ForkError(f"{path}/{names.META_PROPERTIES} is damaged or of a newer release: {error}") from None
    if properties is not None:
        if properties.version != 1:
            raise ForkError(f"{path}/{names.META_PROPERTIES} has version {properties.version}, which is not KRaft's")
        yield _Directory(pair, inside, properties)
    elif depth:
        for name in disk.list(path):
            if disk.is_dir(f"{path}/{name}"):
                yield from _walk(disk, pair, f"{inside}/{name}" if inside else name, depth - 1)


def _lock(disk: Disk, path: str, held: ExitStack) -> None:
    try:
        held.callback(disk.lock(f"{path}/{names.LOCK}").release)
    except BlockingIOError:
        raise ForkError(f"{path} is in use: stop its node first") from None


def _common_cluster_id(directories: Sequence[_Directory]) -> str:
    first = directories[0]
    owners: dict[bytes, str] = {}
    for each in directories:
        if each.found.cluster_id != first.found.cluster_id:
            raise ForkError(
                f"{each.source} belongs to cluster {each.found.cluster_id}, and {first.source} to "
                f"{first.found.cluster_id}"
            )
        if each.found.directory_id is not None:
            other = owners.setdefault(each.found.directory_id, each.source)
            if other != each.source:
                raise ForkError(f"{each.source} and {other} have the same directory.id: one is a copy of the other")
    assert first.found.cluster_id is not None  # version 1 has one
    return first.found.cluster_id


def _stored_cluster(disk: Disk, directories: Sequence[_Directory]) -> StoredCluster:
    """Return the cluster by the newest of the metadata logs. Raises ForkError if a node has none."""
    newest, newest_end = StoredCluster(), -1
    nodes_with_log = set()
    for each in directories:
        folder = f"{each.source}/{DIRECTORY}"
        if not disk.exists(folder):
            continue
        nodes_with_log.add(each.found.node_id)
        try:
            records = read_records(disk, folder)
            cluster = stored_cluster(records.voters, records.values)
        except UnreadableRecords as error:
            raise ForkError(str(error)) from None
        except DecodeError as error:
            raise ForkError(f"{folder} is damaged: {error}") from None
        except NewerRecords as error:
            raise ForkError(f"{each.source} cannot be forked by this release: {error}") from None
        if records.end_offset > newest_end:
            newest, newest_end = cluster, records.end_offset
    for each in directories:
        if each.found.node_id not in nodes_with_log:
            raise ForkError(f"{each.source} has no {DIRECTORY}: name all directories of node {each.found.node_id}")
    return newest


def _check_directories(directories: Sequence[_Directory], cluster: StoredCluster) -> None:
    """Check that each node is there with all its directories."""
    for node_id in {each.found.node_id for each in directories}:
        here = {each.found.directory_id for each in directories if each.found.node_id == node_id}
        if missing := cluster.directories.get(-1 if node_id is None else node_id, set()) - here:
            raise ForkError(
                f"node {node_id} has a further directory, with directory.id {uuid_to_str(min(missing))}: name all "
                "directories of the node"
            )


def _is_left_out(name: str) -> bool:
    """Return True for a file of the metadata log that a node makes again, or that is unfinished."""
    snapshot = checkpoint.parse_name(name)
    return name == RESERVE or (snapshot is not None and bool(snapshot.suffix))


# -- making it --------------------------------------------------------------------------------------------------------


def _make(disk: Disk, wanted: Wanted, directories: Sequence[_Directory], report: ForkReport) -> None:
    with ExitStack() as unfinished:
        for pair in wanted.pairs:
            unfinished.enter_context(_unfinished(disk, pair))
        for directory in directories:
            try:
                _fill(disk, wanted, directory, report)
            except OSError as error:
                raise _explained(error, directory) from error
        for pair in wanted.pairs:
            _rewrite(disk, wanted, pair, report.cluster_id)
            disk.unlink(f"{pair.unfinished}/{names.LOCK}")
            disk.sync_all(pair.unfinished)
        _give_names(disk, wanted.pairs)


@contextmanager
def _unfinished(disk: Disk, pair: Pair) -> Iterator[None]:
    """Make an empty folder for the fork, and remove it at the end if it has not got its name. Raises ForkError if
    another process makes the same fork."""
    path = pair.unfinished
    disk.make_dirs(path)
    try:
        lock = disk.lock(f"{path}/{names.LOCK}")
    except BlockingIOError:
        raise ForkError(f"another fork to {pair.target} is under way") from None
    try:
        # A process that died in the middle of a fork leaves its files.
        for name in disk.list(path):
            if disk.is_dir(f"{path}/{name}"):
                remove_tree(disk, f"{path}/{name}")
            elif name != names.LOCK:
                disk.unlink(f"{path}/{name}")
        yield
    finally:
        lock.release()
        if disk.exists(path):
            remove_tree(disk, path)


def _fill(disk: Disk, wanted: Wanted, directory: _Directory, report: ForkReport) -> None:
    target = directory.unfinished
    disk.make_dirs(target)
    file = f"{target}/{names.META_PROPERTIES}"
    is_shared = not disk.copy(f"{directory.source}/{names.META_PROPERTIES}", file)
    needed = 0 if is_shared else bytes_to_copy(directory.folders, may_link=wanted.may_link)
    if disk.usage(target)[1] < needed + _MARGIN_BYTES:
        raise OSError(errno.ENOSPC, "no room for the copies", target)
    properties = decode_properties(read_file(disk, file))
    properties["cluster.id"] = report.cluster_id
    write_new(disk, file, encode_properties(properties, wanted.now_ms), sync=False)
    carry_out(disk, directory.source, target, directory.folders, report.forked, may_link=wanted.may_link)
    of_directory = {file.name for folder in directory.folders if not folder.name for file in folder.files}
    has_logs = any(folder.name not in ("", DIRECTORY) for folder in directory.folders)
    if has_logs and names.CLEAN_SHUTDOWN not in of_directory:
        report.is_clean = False


def _explained(error: OSError, directory: _Directory) -> Exception:
    if error.errno == errno.EXDEV:
        return ForkError(
            f"{directory.source} and {directory.pair.target} are on two file systems, where a file cannot have a name "
            "in both: copy instead of linking"
        )
    return ForkError(f"there is no room for {directory.pair.target}") if is_full(error) else error


def _rewrite(disk: Disk, wanted: Wanted, pair: Pair, cluster_id: str) -> None:
    for name, rewrite in wanted.rewritten.items():
        if disk.exists(f"{pair.source}/{name}"):
            data = rewrite(read_file(disk, f"{pair.source}/{name}"), cluster_id)
            write_new(disk, f"{pair.unfinished}/{name}", data, sync=False)


def _give_names(disk: Disk, pairs: Sequence[Pair]) -> None:
    """Give all forks their names, or none. Raises OSError."""
    done: list[Pair] = []
    try:
        for pair in pairs:
            if disk.exists(pair.target):
                # It is empty.
                disk.remove_dir(pair.target)
            disk.rename(pair.unfinished, pair.target)
            done.append(pair)
            disk.fsync_dir(parent_of(pair.target))
    except OSError:
        for pair in done:
            remove_tree(disk, pair.target)
        raise
