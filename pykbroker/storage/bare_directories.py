"""Refuses to start a node that finds replicas in its directories but no metadata about them.

Responsible for refusing that start if no other controller can have the metadata. A new cluster would begin otherwise,
and set all replicas aside. Not responsible for metadata that exists and is damaged (raft/).
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.config.listeners import EndPoint, is_wildcard
from pykbroker.config.typed_config import Config
from pykbroker.storage.format import StorageFormatError
from pykbroker_log import names
from pykbroker_log.disk import Disk
from pykbroker_log.log_dirs import LogDir
from pykbroker_raft import checkpoint
from pykbroker_raft.metadata_storage import BOOTSTRAP_VOTERS, DIRECTORY

_MOST_NAMES = 10
#: Hosts at which a node finds its own listener, if that listens on all addresses.
_THIS_MACHINE = ("localhost", "127.0.0.1")


def check_metadata(disk: Disk, config: Config, log_dirs: Sequence[LogDir], controllers: Sequence[EndPoint]) -> None:
    """Raise StorageFormatError if there are replicas but no metadata, and OSError. `controllers` are the end points
    that this node's controller half advertises."""
    if not _is_alone(config, controllers) or _has_records(disk, f"{config.metadata_log_dir}/{DIRECTORY}"):
        return
    found = sorted(
        f"{log_dir.path}/{topic}-{index}" for log_dir in log_dirs for topic, index in log_dir.folders.partitions
    )
    if found:
        shown = ", ".join(found[:_MOST_NAMES]) + (", ..." if len(found) > _MOST_NAMES else "")
        raise StorageFormatError(
            f"The metadata log in {config.metadata_log_dir} has no records, but there are {len(found)} replicas: "
            f"{shown}. Without metadata they would be set aside. Bring {DIRECTORY} back from a backup, or move the "
            "replicas away to begin a new cluster"
        )


def _is_alone(config: Config, controllers: Sequence[EndPoint]) -> bool:
    """Return True if the quorum has no other controller that this node could fetch from."""
    if not config.is_controller:
        return False
    if config.voters:
        return set(config.voters) == {config.node_id}
    own = {f"{point.host}:{point.port}" for point in controllers}
    for point in config.listeners.controller:
        if is_wildcard(point.host):
            own |= {f"{host}:{point.port}" for host in _THIS_MACHINE}
    return set(config.list("controller.quorum.bootstrap.servers")) <= own


def _has_records(disk: Disk, folder: str) -> bool:
    if not disk.exists(folder):
        return False
    for name, size in disk.scan(folder):
        segment, snapshot = names.parse_segment_file(name), checkpoint.parse_name(name)
        if segment is not None and segment.kind == names.LOG and size:
            return True
        if snapshot is not None and not snapshot.suffix and snapshot.id != BOOTSTRAP_VOTERS:
            return True
    return False
