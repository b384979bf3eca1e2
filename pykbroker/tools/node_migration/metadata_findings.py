"""Findings about the metadata log of a node: whether the start can open it, and what its records ask of the node.

Responsible for running the start's own opening and the watch of settings on a copy in memory. Not responsible for the
copy (node_files.py), nor for what only the live cluster knows (cluster_findings.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pykbroker.config.kinds import ConfigError
from pykbroker.config.protection import promises
from pykbroker.config.typed_config import Config
from pykbroker.metadata.config_watch import broken_promises, without_effect
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.features import KRAFT_VERSION, beyond_served, not_served
from pykbroker.metadata.image import DIRECTORY_RESERVED_LAST, EMPTY_IMAGE, MetadataImage
from pykbroker.metadata.records import decode_record
from pykbroker.metadata.replay import MetadataReplay
from pykbroker.metadata.replay_error import MetadataReplayError
from pykbroker.node.quorum_settings import quorum_config
from pykbroker.node.ways_to_nodes import refuse_scram_of_voters
from pykbroker.quorum.replica_opening import OpenedStorage, open_storage
from pykbroker.storage.bare_directories import check_metadata
from pykbroker.storage.format import StorageFormatError, bootstrap_records
from pykbroker.tools.node_migration.directory_findings import OpenedDirectories
from pykbroker.tools.node_migration.findings import FindingLevel, NodeFinding, counted, ok, some, stop, warn
from pykbroker.tools.node_migration.setting_findings import of_promise
from pykbroker_log import names
from pykbroker_log.disk import Disk
from pykbroker_raft.flushed_note import FILE as FLUSHED_NOTE
from pykbroker_raft.flushed_note import read_note
from pykbroker_raft.metadata_storage import DIRECTORY, UNUSABLE
from pykbroker_raft.stored_records import UnreadableRecords, read_records
from pykbroker_wire.primitives import DecodeError, uuid_to_str
from pykbroker_wire.stored_framing import UnknownRecordType

_NEWER = "Leave this node on Apache Kafka until a release of pykbroker serves it"


def metadata_findings(
    config: Config, disk: Disk, opened: OpenedDirectories, *, now_ms: int
) -> tuple[MetadataImage, list[NodeFinding]]:
    """Return the image of the metadata log, as far as it can be read, and the findings. `disk` is the copy, which this
    changes as the start does."""
    folder = f"{config.metadata_log_dir}/{DIRECTORY}"
    found = [*_note(disk, folder)]
    image, unreadable = _image(disk, folder)
    found += unreadable
    found += _opening(config, disk, opened, folder, now_ms)
    found += image_findings(config, image, opened, folder)
    if not any(finding.level is FindingLevel.STOP for finding in found):
        found.append(ok("The start can open the metadata log, and serves all that it asks for", folder))
    return image, found


def image_findings(
    config: Config, image: MetadataImage, opened: OpenedDirectories, where: str
) -> Iterator[NodeFinding]:
    """Yield what the metadata of the cluster asks of this node and is not served, and what does not fit its
    directories."""
    delta = MetadataDelta.of_everything(image)
    for text in beyond_served(image.features.all()):
        yield stop(f"The cluster has finalised a newer feature: {text}", where, _NEWER)
    # The layers of a broker are judged together with its file, whose promises the check has named already.
    of_file = promises(config.overrides())
    for promise in dict.fromkeys(broken_promises(config, delta, image)):
        if promise not in of_file:
            yield of_promise(promise, "the metadata of the cluster")
    kept = [f"{name}={level}" for name, level in not_served(image).items()]
    if kept:
        yield warn(
            f"The cluster has features whose groups are not served: {', '.join(kept)}",
            "the metadata of the cluster",
            "Nothing without group.protocol=streams; members of such groups stop while a pykbroker coordinates them",
        )
    silent = without_effect(config, delta)
    if silent:
        yield warn(
            f"These settings of the cluster have no effect in this version: {', '.join(sorted(set(silent)))}",
            "the metadata of the cluster",
            "Decide for each whether the cluster can do without it",
        )
    if config.is_broker:
        yield from _moved(config, image, opened)


def _note(disk: Disk, folder: str) -> Iterator[NodeFinding]:
    if not disk.exists(folder):
        return
    note = read_note(disk, folder)
    if note.is_outdated:
        yield ok(f"{FLUSHED_NOTE} is of an earlier stay of pykbroker and counts no longer", folder, "Nothing")
    elif note.exists and not note.needs_mark:
        yield warn(
            f"{FLUSHED_NOTE} is of an earlier release, which did not mark whether another program came after it",
            folder,
            "If Apache Kafka has run on the directory since, remove this file before pykbroker starts",
        )


def _image(disk: Disk, folder: str) -> tuple[MetadataImage, list[NodeFinding]]:
    if not disk.exists(folder):
        return EMPTY_IMAGE, []
    image = EMPTY_IMAGE
    try:
        records = map(decode_record, read_records(disk, folder).values)
        for change in MetadataReplay().batch(EMPTY_IMAGE, records, 0, 0):
            image = change.image
    except UnknownRecordType as error:
        return image, [stop(f"The metadata log has records of a newer release ({error})", folder, _NEWER)]
    except (UnreadableRecords, DecodeError, MetadataReplayError) as error:
        return image, [stop(f"The metadata log cannot be read: {error}", folder, "Find out what damaged it first")]
    return image, []


def _opening(config: Config, disk: Disk, opened: OpenedDirectories, folder: str, now_ms: int) -> Iterator[NodeFinding]:
    """Do what the start does with the metadata log, and yield its reason if it refuses."""
    settings = quorum_config(config, opened.formatted, ())
    # The copy needs no reserve.
    settings = replace(settings, storage=replace(settings.storage, reserve_bytes=0))
    try:
        check_metadata(disk, config, opened.log_dirs, config.listeners.controller)
        storage = open_storage(disk, settings, now_ms)
        if storage.view.end_offset == 0:
            bootstrap_records(disk, config)
        refuse_scram_of_voters(config, max(1, len(storage.history.voters)))
    except (StorageFormatError, ConfigError, *UNUSABLE) as error:
        yield stop(f"The start refuses the metadata log: {error}", folder, "See the text; nothing was changed")
    else:
        yield from _voters(config, storage, folder)


def _voters(config: Config, opened: OpenedStorage, folder: str) -> Iterator[NodeFinding]:
    history = opened.history
    for text in beyond_served({KRAFT_VERSION: history.kraft_version}):
        yield stop(f"The quorum has a newer version: {text}", folder, _NEWER)
    if not config.is_controller or opened.view.end_offset == 0:
        return
    own = history.voters.get(config.node_id)
    if own is None:
        yield warn(
            f"This controller is no voter; the voters are {some(sorted(history.voters.ids()))}",
            folder,
            "Add it with `pykbroker quorum add`, if it should vote",
        )


def _moved(config: Config, image: MetadataImage, opened: OpenedDirectories) -> Iterator[NodeFinding]:
    """Yield directories and replicas that the metadata has and the node does not."""
    node, here = config.node_id, opened.formatted.directory_ids
    broker = image.brokers.get(node)
    if broker is not None:
        missing = [uuid_to_str(each) for each in broker.directories if each not in here.values()]
        if missing:
            yield stop(
                f"Directories of this broker are not here: directory.id {some(missing)}",
                ", ".join(here),
                "Name them in log.dirs, or take the broker out of the cluster and add it again",
            )
            return
    folders, lost = opened.folders, []
    for topic in image.topics.by_name.values():
        for index, partition in topic.partitions.items():
            directory = partition.directory(node)
            if directory is None or directory <= DIRECTORY_RESERVED_LAST or directory not in here.values():
                continue
            # After the stop of its last replica a partition has no ISR, and its eligible leader replicas count.
            counts = node in partition.isr or node in partition.elr
            if (topic.name, index) not in folders and counts:
                lost.append(names.partition_dir(topic.name, index))
    lost.sort()
    if lost:
        yield stop(
            f"{counted(len(lost), 'replica')} that may lead by the metadata, without a folder here: {some(lost)}",
            ", ".join(here),
            "Bring the folders back, or let Apache Kafka start once and follow until the replicas are in sync",
        )
