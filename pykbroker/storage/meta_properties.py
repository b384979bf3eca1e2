"""Reads a `meta.properties` by the rules of Apache Kafka's tools (MetaProperties).

Responsible for reading one file's text, and for the report of `kafka-storage info` about a node's directories. It
writes nothing. Formatting and the checks of a start are in format.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pykbroker_log import names
from pykbroker_log.checkpoints import MalformedFile, decode_properties, decode_uuid
from pykbroker_log.disk import Disk, read_file
from pykbroker_wire.primitives import uuid_to_str


class MetaPropertiesError(ValueError):
    """A file with missing or impossible content. The text is Apache Kafka's."""


@dataclass(slots=True, frozen=True)
class MetaProperties:
    """The content of a file. Version 1 is KRaft's. Version 0 is older, and its other fields may be missing."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: bytes | None

    def to_properties(self) -> dict[str, str]:
        """Return the fields that are set, by name, in order."""
        values = {
            "cluster.id": self.cluster_id,
            "directory.id": None if self.directory_id is None else uuid_to_str(self.directory_id),
            "broker.id" if self.version == 0 else "node.id": None if self.node_id is None else str(self.node_id),
            "version": str(self.version),
        }
        return {name: value for name, value in sorted(values.items()) if value is not None}


def meta_properties(properties: Mapping[str, str]) -> MetaProperties:
    """Read the fields. Raises MetaPropertiesError."""
    text = properties.get("version", "0")
    version = _integer(text)
    if version is None:
        raise MetaPropertiesError(f"Invalid meta.properties version string '{text}'")
    if version not in (0, 1):
        raise MetaPropertiesError(f"Unknown meta.properties version number {version}")
    node_id = None
    if version or "broker.id" in properties:
        name = "node.id" if version else "broker.id"
        if name not in properties:
            raise MetaPropertiesError(f"Failed to find {name}")
        node_id = _integer(properties[name])
        if node_id is None:
            raise MetaPropertiesError(f"Unable to read {name} as a base-10 number.")
    directory_id = None
    if "directory.id" in properties:
        try:
            directory_id = decode_uuid(properties["directory.id"])
        except ValueError as error:
            raise MetaPropertiesError(f"Unable to read directory.id as a Uuid: {error}") from error
    if version and "cluster.id" not in properties:
        raise MetaPropertiesError("cluster.id was not found.")
    return MetaProperties(version, properties.get("cluster.id"), node_id, directory_id)


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Return None if the directory is not formatted. Raises MetaPropertiesError, OSError."""
    if disk.exists(directory) and not disk.is_dir(directory):
        raise NotADirectoryError(f"{directory} is not a directory")
    path = f"{directory}/{names.META_PROPERTIES}"
    if not disk.exists(path):
        return None
    try:
        return meta_properties(decode_properties(read_file(disk, path)))
    except MalformedFile as error:
        raise MetaPropertiesError(str(error)) from error


@dataclass(slots=True)
class DirectoriesFound:
    """The report of `kafka-storage info` about directories, in the order of their names."""

    directories: list[str] = field(default_factory=list)
    #: the content of the first file that could be read
    metadata: MetaProperties | None = None
    problems: list[str] = field(default_factory=list)


def look_into(disk: Disk, directories: Iterable[str]) -> DirectoriesFound:
    """Look into directories. Raises OSError for an existing file that cannot be read."""
    found = DirectoriesFound()
    for directory in sorted(set(directories)):
        if not disk.exists(directory):
            found.problems.append(f"{directory} does not exist")
        elif not disk.is_dir(directory):
            found.problems.append(f"{directory} is not a directory")
        else:
            found.directories.append(directory)
            _look_into(disk, directory, found)
    if found.metadata is not None and found.metadata.version == 0:
        found.problems.append(
            "The kafka configuration file appears to be for a cluster in KRaft mode, but the directories are formatted "
            "for legacy mode."
        )
    return found


def _look_into(disk: Disk, directory: str, found: DirectoriesFound) -> None:
    try:
        read = read_meta_properties(disk, directory)
    except MetaPropertiesError as error:
        found.problems.append(f"Error loading {directory}/{names.META_PROPERTIES}: {error}")
        return
    first = found.metadata
    if read is None:
        found.problems.append(f"{directory} is not formatted.")
    elif first is None:
        found.metadata = read
    elif read.cluster_id != first.cluster_id:
        found.problems.append("Mismatched cluster IDs between storage directories.")
    elif read.node_id != first.node_id:
        found.problems.append("Mismatched node IDs between storage directories.")


def _integer(text: str) -> int | None:
    """Parse like Java's Integer.parseInt. Return None if it would fail."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    value = int(text)
    return value if -(1 << 31) <= value < 1 << 31 else None
