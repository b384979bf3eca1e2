"""Refuses to start a node on metadata with a feature level that this release does not serve.

Responsible for judging the stored levels before the node takes part in an election. A single voter elects itself, and
writes to the directory, before it reads the records. Not responsible for levels that come later from the quorum, nor
for damage, which the opening of the metadata log judges.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykbroker.metadata.features import KRAFT_VERSION, beyond_served
from pykbroker.storage.format import StorageFormatError
from pykbroker_log.disk import Disk
from pykbroker_raft.metadata_storage import DIRECTORY
from pykbroker_raft.stored_records import UnreadableRecords, find_files, read_records
from pykbroker_wire.primitives import DecodeError
from pykbroker_wire.stored.metadata import FeatureLevelRecord
from pykbroker_wire.stored_framing import encode_metadata_record

#: Every FeatureLevelRecord of version 0 begins so: the version of the frame, the type and its version.
_FRAME = encode_metadata_record(FeatureLevelRecord(), 0)[:3]
_PART_BYTES = 1 << 20
#: more than a FeatureLevelRecord has
_OVERLAP_BYTES = 512


def check_levels(disk: Disk, metadata_log_dir: str) -> None:
    """Raise StorageFormatError if the newest stored level of a feature is not served. It changes nothing."""
    folder = f"{metadata_log_dir}/{DIRECTORY}"
    if not disk.exists(folder):
        return
    try:
        files = find_files(disk, folder)
        # Decoding a long log takes seconds, and nearly always every level is served. So the bytes are searched first.
        if not any(beyond_served(dict([level])) for path in files.paths for level in _possible_levels(disk, path)):
            return
        found = beyond_served(_levels(disk, folder))
    except OSError:
        # The opening of the metadata log reads the same files next, and says which of them cannot be read.
        return
    if found:
        raise StorageFormatError(
            f"The metadata log in {metadata_log_dir} has a feature level that is not served: {'; '.join(found)}. "
            "Start a release that serves it, of pykbroker or of Apache Kafka"
        )


def _possible_levels(disk: Disk, path: str) -> Iterator[tuple[str, int]]:
    """Yield each level in a file, as well as other bytes that look like one."""
    file = disk.open(path)
    try:
        for begin in range(0, file.size(), _PART_BYTES):
            part = file.pread(_PART_BYTES + _OVERLAP_BYTES, begin)
            position = part.find(_FRAME)
            while position >= 0:
                position += len(_FRAME)
                try:
                    record, _ = FeatureLevelRecord.decode(part, position, 0)
                    yield record.name, record.feature_level
                except DecodeError:
                    pass
                position = part.find(_FRAME, position)
    finally:
        file.close()


def _levels(disk: Disk, folder: str) -> dict[str, int]:
    try:
        values = read_records(disk, folder).values
        found = [FeatureLevelRecord.decode(value, len(_FRAME), 0)[0] for value in values if value.startswith(_FRAME)]
    except (UnreadableRecords, DecodeError):
        return {}
    # The level of kraft.version that counts is in the quorum's control records.
    return {record.name: record.feature_level for record in found if record.name != KRAFT_VERSION}
