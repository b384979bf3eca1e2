"""Mounts of a container: the directory for data, which a volume should keep, and the line about data that no volume
keeps.

Responsible for reading /proc/self/mountinfo (proc(5)) and for the decisions; tools/commands/in_container.py reads the
file. A plain directory is not a volume: an image may have any directory, and its contents end with the container.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

#: Directories for data if no property names one, each with the mounts that choose it, in this order. Apache Kafka's
#: image and Bitnami's have these defaults. Bitnami documents a volume at /bitnami/kafka, and earlier a volume at
#: /bitnami. Debezium's image has a volume at /kafka/data.
_PLACES: Final = (
    ("/tmp/kraft-combined-logs", ("/tmp/kraft-combined-logs",)),  # noqa: S108  # Apache Kafka's directory in images
    ("/tmp/kafka-logs", ("/tmp/kafka-logs",)),  # noqa: S108  # Apache Kafka's directory in images
    ("/bitnami/kafka/data", ("/bitnami/kafka/data", "/bitnami/kafka", "/bitnami")),
    ("/kafka/data", ("/kafka/data", "/kafka")),
)
#: The directory of Confluent's image, where our image has a volume of its own too.
DEFAULT_PLACE: Final = "/var/lib/kafka/data"
#: The engine gives a volume without a name 64 hexadecimal digits, and removes it with its container.
_ANONYMOUS: Final = re.compile(r"/volumes/[0-9a-f]{64}/_data$")
#: File systems of a container's own layer.
_LAYERS: Final = frozenset({"aufs", "fuse-overlayfs", "fuse.fuse-overlayfs", "overlay"})
_IN_MEMORY: Final = frozenset({"ramfs", "tmpfs"})
#: Mounts under these belong to the engine, or hold configuration and scripts.
_NOT_FOR_DATA: Final = (
    "/bitnami/kafka/config",
    "/dev",
    "/docker-entrypoint-initdb.d",
    "/docker-entrypoint-preinitdb.d",
    "/etc",
    "/mnt/shared/config",
    "/proc",
    "/run",
    "/sys",
    "/usr",
    "/var/run",
)
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


@dataclass(slots=True, frozen=True)
class Mount:
    """One line of mountinfo."""

    point: str
    #: the part of the file system that is mounted; for a volume of the engine, the volume's directory
    root: str
    file_system: str
    read_only: bool

    @property
    def is_anonymous(self) -> bool:
        return _ANONYMOUS.search(self.root) is not None


def read_mounts(mountinfo: str) -> tuple[Mount, ...]:
    """Return the mounts of /proc/self/mountinfo, in order: a later mount covers an earlier mount at the same place."""
    mounts = []
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if separator and len(fields) >= 6:
            root, point, options = (_unescaped(text) for text in fields[3:6])
            mounts.append(Mount(point, root, after.split(" ")[0], "ro" in options.split(",")))
    return tuple(mounts)


def place_for_data(mounts: Iterable[Mount]) -> str:
    """Return the directory for data if no property names one."""
    points = {mount.point for mount in mounts}
    return next((place for place, choosers in _PLACES if points.intersection(choosers)), DEFAULT_PLACE)


def data_directories(properties: Mapping[str, str]) -> list[str]:
    """Return the places for data that the properties name. Nothing is checked."""
    named = properties.get("log.dirs", "").strip() or properties.get("log.dir", "")
    entries = [*named.split(","), properties.get("metadata.log.dir", "")]
    return list(dict.fromkeys(filter(None, map(str.strip, entries))))


def lost_data_line(
    directories: Sequence[str], mounts: Sequence[Mount], mounted_directories: Collection[str]
) -> str | None:
    """Return the warning about `directories` whose data end with the container, if a mounted volume has none of the
    directories. None if there is no such directory, or no such volume. `mounted_directories`: the mount points that are
    directories, because a mounted file keeps no data."""
    fates = {path: fate for path in directories if (fate := _fate(path, mounts)) is not None}
    used = {mount.point for path in directories if (mount := _mount_of(path, mounts)) is not None}
    unused = [
        mount.point
        for mount in mounts
        if mount.point in mounted_directories and mount.point not in used and _keeps_data(mount)
    ]
    if not fates or not unused:
        return None
    lost = "; ".join(f"{path} is {fate}" for path, fate in fates.items())
    return (
        f"Data of this node end with the container: {lost}. None of them are in {', '.join(unused)}, which is mounted: "
        f"mount the volume at {next(iter(fates))}, or set KAFKA_LOG_DIRS to a directory in {unused[0]}"
    )


def _fate(path: str, mounts: Sequence[Mount]) -> str | None:
    """Return a text about the place of `path` if its data end with the container, or None."""
    mount = _mount_of(path, mounts)
    if mount is None:
        return None
    if mount.is_anonymous:
        return "on an anonymous volume"
    if mount.file_system in _IN_MEMORY:
        return "in memory"
    return "in the container's own layer" if mount.point == "/" and mount.file_system in _LAYERS else None


def _mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    holding = [mount for mount in mounts if _is_in(path, mount.point)]
    # The later of two mounts at the same place counts.
    return max(reversed(holding), key=lambda mount: len(mount.point), default=None)


def _keeps_data(mount: Mount) -> bool:
    return not (
        mount.read_only
        or mount.is_anonymous
        or mount.point == "/"
        or mount.file_system in _IN_MEMORY
        or any(_is_in(mount.point, folder) for folder in _NOT_FOR_DATA)
    )


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _unescaped(text: str) -> str:
    """Decode the octal numbers that mountinfo writes for spaces, tabs, line ends and backslashes."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
