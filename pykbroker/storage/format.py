"""Formats log directories, and reads how they were formatted: meta.properties, bootstrap.checkpoint, the first voters.

It writes the same bytes as `kafka-storage format`. Not responsible for the content of a formatted directory (log/,
raft/), nor for the first voters (initial_voters.py).

Exactly one file makes a directory formatted: meta.properties, which is written last. So a crash while formatting leaves
an unformatted directory. A node never formats a directory that holds anything else, because an unmounted disk must not
become a new cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pykbroker.config.typed_config import Config
from pykbroker.metadata.features import BOOTSTRAP_LEVELS, METADATA_VERSION, REGISTERED
from pykbroker.metadata.image import VersionRange
from pykbroker.metadata.records import decode_record, encode_record
from pykbroker.storage.initial_voters import standalone_voter
from pykbroker.storage.meta_properties import MetaProperties, MetaPropertiesError, read_meta_properties
from pykbroker_log import names
from pykbroker_log.checkpoints import MalformedFile, decode_properties, decode_uuid, encode_properties
from pykbroker_log.disk import Disk, parent_of, read_file, write_atomic
from pykbroker_raft.metadata_storage import format_voters, read_bootstrap, write_bootstrap
from pykbroker_raft.voters import VoterSet
from pykbroker_wire.errors import DecodeError, KafkaError
from pykbroker_wire.primitives import TopLevel, random_uuid, uuid_to_str
from pykbroker_wire.stored.metadata import FeatureLevelRecord, UserScramCredentialRecord


class StorageFormatError(Exception):
    """This node cannot start on the directories. The text is for its operator."""


@dataclass(slots=True, frozen=True)
class Formatted:
    """The format of the directories, by path and in the order of the configuration. `broken` has the directories that
    the node cannot use, with the reason."""

    cluster_id: str
    directory_ids: dict[str, bytes]
    broken: dict[str, str] = field(default_factory=dict)


def directories_of(config: Config) -> list[str]:
    """Return all directories of the node, that of the metadata log included, each once."""
    return list(dict.fromkeys([*config.log_dirs, config.metadata_log_dir]))


def is_unused(disk: Disk, path: str) -> bool:
    """Return True if the directory is absent or empty."""
    return not disk.exists(path) or (disk.is_dir(path) and not disk.list(path))


def format_directories(
    disk: Disk,
    config: Config,
    cluster_id: str,
    rng: random.Random,
    *,
    now_ms: int,
    ignore_formatted: bool = False,
    levels: Mapping[str, int] = BOOTSTRAP_LEVELS,
    credentials: Sequence[UserScramCredentialRecord] = (),
    standalone: bool = True,
    initial_voters: VoterSet | None = None,
    unreadable: Callable[[str], object] | None = None,
) -> list[str]:
    """Format the directories that are not formatted yet. Returns their paths in the order of names. Raises
    StorageFormatError or OSError.

    A directory that cannot be read is left out, and `unreadable` is called with it; without `unreadable` it is an
    error. `levels` are the features that the cluster begins with, `credentials` its users. The first voters of a new
    quorum are `initial_voters`. Without them, and with `standalone`, this node is the first voter if it is a controller
    and its configuration names no voters. Otherwise the node knows no voter until it finds a quorum.
    """
    formatted: dict[str, MetaProperties] = {}
    broken: list[str] = []
    paths = sorted(directories_of(config))
    for path in paths:
        try:
            found = read_meta_properties(disk, path)
        except (MetaPropertiesError, OSError) as error:
            if unreadable is None:
                raise StorageFormatError(f"{path}/{names.META_PROPERTIES} cannot be read: {error}") from error
            broken.append(path)
        else:
            if found is not None:
                formatted[path] = found
    _verify(formatted, cluster_id, config.node_id)
    if formatted and not ignore_formatted:
        raise StorageFormatError(
            f"Log directory {next(iter(formatted))} is already formatted. Use --ignore-formatted to ignore this "
            "directory and format the others."
        )
    if unreadable is not None:
        for path in broken:
            unreadable(path)
    if broken and len(broken) == len(paths):
        raise StorageFormatError("No available log directories to format.")
    done = [path for path in paths if path not in formatted and path not in broken]
    for path in done:
        _make_durable(disk, path)
        directory_id = random_uuid(rng)
        write_bootstrap(disk, path, _bootstrap(levels, credentials), now_ms)
        if path == config.metadata_log_dir:
            voters = initial_voters
            own = None if voters is None else voters.get(config.node_id)
            if own is not None:
                directory_id = own.key.directory_id
            elif voters is None and standalone and config.is_controller and not config.voters:
                voters = standalone_voter(config, directory_id)
            if voters is not None:
                format_voters(disk, path, voters, now_ms)
        properties = {
            "cluster.id": cluster_id,
            "directory.id": uuid_to_str(directory_id),
            "node.id": str(config.node_id),
            "version": "1",
        }
        write_atomic(disk, f"{path}/{names.META_PROPERTIES}", encode_properties(properties, now_ms))
    return done


def _verify(formatted: Mapping[str, MetaProperties], cluster_id: str, node_id: int) -> None:
    """Raise StorageFormatError if a directory is another node's, or a copy of another."""
    owners: dict[bytes, str] = {}
    for path, found in formatted.items():
        file = f"{path}/{names.META_PROPERTIES}"
        if found.cluster_id is not None and found.cluster_id != cluster_id:
            raise StorageFormatError(
                f"Invalid cluster.id in: {file}. Expected {cluster_id}, but read {found.cluster_id}"
            )
        if found.node_id is not None and found.node_id != node_id:
            raise StorageFormatError(
                f"Stored node id {found.node_id} doesn't match previous node id {node_id} in {file}. If you moved your "
                "data, make sure your configured node id matches. If you intend to create a new node, you should "
                "remove all data in your data directories."
            )
        if found.directory_id is not None:
            other = owners.setdefault(found.directory_id, path)
            if other != path:
                raise StorageFormatError(
                    f"Duplicate directory ID Optional[{uuid_to_str(found.directory_id)}] found. It was the ID of "
                    f"{other}, but also of {path}"
                )


def _make_durable(disk: Disk, path: str) -> None:
    """Make a directory. Its name, and those of new directories above it, survive a power loss."""
    made = []
    while not disk.exists(path):
        made.append(path)
        path = parent_of(path)
    for directory in reversed(made):
        disk.make_dirs(directory)
        disk.fsync_dir(parent_of(directory))


def _bootstrap(levels: Mapping[str, int], credentials: Iterable[UserScramCredentialRecord]) -> Iterable[bytes]:
    """Return the first records that the first controller of the new cluster will write."""
    for name, level in levels.items():
        yield encode_record(FeatureLevelRecord(name=name, feature_level=level), levels[METADATA_VERSION])
    for credential in credentials:
        yield encode_record(credential, levels[METADATA_VERSION])


def read_format(disk: Disk, config: Config, rng: random.Random, *, now_ms: int) -> Formatted:
    """Read how the directories are formatted. An unreadable directory is `broken`, unless it is the metadata log's.
    Raises StorageFormatError if Apache Kafka would refuse to start. A directory of an old release gets a directory
    id."""
    found: dict[str, dict[str, str]] = {}
    broken: dict[str, str] = {}
    for path in directories_of(config):
        file = f"{path}/{names.META_PROPERTIES}"
        try:
            found[path] = decode_properties(read_file(disk, file))
        except (FileNotFoundError, NotADirectoryError):
            if disk.exists(path) and not disk.is_dir(path):
                broken[path] = "it is not a directory"
                continue
            raise StorageFormatError(
                f"No `{names.META_PROPERTIES}` found in {path} "
                "(have you run `pykbroker format` to format the directory?)"
            ) from None
        except (MalformedFile, OSError) as error:
            broken[path] = f"its {names.META_PROPERTIES} cannot be read: {error}"
    if config.metadata_log_dir in broken:
        raise StorageFormatError(
            f"The metadata log directory {config.metadata_log_dir} cannot be used: {broken[config.metadata_log_dir]}"
        )
    directory_ids: dict[str, bytes] = {}
    unnamed: list[str] = []
    cluster_id = found[config.metadata_log_dir].get("cluster.id", "")
    for path, properties in found.items():
        directory_id = _checked(f"{path}/{names.META_PROPERTIES}", properties, cluster_id, config.node_id)
        if directory_id is None:
            unnamed.append(path)
            continue
        same = next((other for other, taken in directory_ids.items() if taken == directory_id), None)
        if same is not None:
            raise StorageFormatError(
                f"{path} and {same} have the same directory.id: one is a copy of the other. Take the copy out of "
                "log.dirs"
            )
        directory_ids[path] = directory_id
    # All directories are this node's, so the first byte may be written.
    for path in unnamed:
        directory_id = random_uuid(rng)
        properties = {**found[path], "directory.id": uuid_to_str(directory_id)}
        try:
            write_atomic(disk, f"{path}/{names.META_PROPERTIES}", encode_properties(properties, now_ms))
        except OSError as error:
            broken[path] = f"its directory.id cannot be written: {error}"
            continue
        directory_ids[path] = directory_id
    return Formatted(cluster_id, directory_ids, broken)


def _checked(file: str, properties: Mapping[str, str], cluster_id: str, node_id: int) -> bytes | None:
    """Return the directory id, None if there is none yet. Raises StorageFormatError if the directory belongs to another
    node."""
    for key in ("cluster.id", "node.id"):
        if key not in properties:
            raise StorageFormatError(f"{file} has no {key}")
    if properties["node.id"] != str(node_id):
        raise StorageFormatError(
            f"Stored node id {properties['node.id']} in {file} doesn't match the configured node.id {node_id}. "
            "Correct node.id, or name this node's own directories in log.dirs"
        )
    if properties["cluster.id"] != cluster_id:
        raise StorageFormatError(
            f"Invalid cluster.id in {file}: expected {cluster_id}, but read {properties['cluster.id']}. "
            "Name only directories of one cluster in log.dirs"
        )
    directory_id = properties.get("directory.id")
    try:
        return None if directory_id is None else decode_uuid(directory_id)
    except ValueError as error:
        raise StorageFormatError(f"{file}: directory.id {directory_id} is no id") from error


def bootstrap_records(disk: Disk, config: Config) -> list[TopLevel] | None:
    """Return the records that the directories were formatted with, None if there are none. Raises
    StorageFormatError."""
    try:
        values = read_bootstrap(disk, config.metadata_log_dir)
        records = None if values is None else [decode_record(value) for value in values]
    except (KafkaError, DecodeError, ValueError) as error:
        where = f"{config.metadata_log_dir}/bootstrap.checkpoint"
        raise StorageFormatError(f"{where} cannot be read: {error}") from error
    if records is None:
        return None
    for record in records:
        if isinstance(record, FeatureLevelRecord):
            supported = REGISTERED.get(record.name, VersionRange(0, 0))
            if not supported.min <= record.feature_level <= supported.max:
                raise StorageFormatError(
                    f"bootstrap.checkpoint sets {record.name} to {record.feature_level}, and this release supports "
                    f"{supported.min} to {supported.max}"
                )
    return records
