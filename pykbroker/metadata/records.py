"""Metadata records as framed values (KIP-631), and the version of each record under each metadata.version.

Not responsible for the frame (pykbroker_wire.stored_framing), for batches, nor for offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.metadata.features import METADATA_VERSION_MIN
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import BrokerRegistrationChangeRecord
from pykbroker_wire.stored_framing import decode_metadata_record, encode_metadata_record

#: Record type -> (lowest metadata.version, record version), highest first. Types that are absent have only version 0.
_VERSIONS: dict[int, tuple[tuple[int, int], ...]] = {
    # RegisterBrokerRecord: controlled shutdown, ZooKeeper migration, directories (KIP-858), cordoned directories
    # (KIP-1066).
    0: ((30, 4), (17, 3), (8, 2), (7, 1)),
    # PartitionRecord, PartitionChangeRecord: directories (KIP-858), eligible leader replicas (KIP-966).
    3: ((23, 2), (17, 1)),
    5: ((23, 2), (17, 1)),
}


def record_version(record_type: int, metadata_version: int) -> int:
    """Return the version of a record of this type under a finalised metadata.version."""
    for lowest, version in _VERSIONS.get(record_type, ()):
        if metadata_version >= lowest:
            return version
    return 0


def encode_record(record: TopLevel, metadata_version: int) -> bytes:
    """Encode a record as one framed value."""
    if isinstance(record, BrokerRegistrationChangeRecord):
        return encode_metadata_record(record, _change_version(record))
    return encode_metadata_record(record, record_version(record.API_KEY, metadata_version or METADATA_VERSION_MIN))


def _change_version(record: BrokerRegistrationChangeRecord) -> int:
    """Return the lowest version that has all fields of the record, as Apache Kafka writes it."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


def encode_records(records: Iterable[TopLevel], metadata_version: int) -> list[bytes]:
    return [encode_record(record, metadata_version) for record in records]


decode_record = decode_metadata_record
"""The record in one framed value; DecodeError when it is damaged or of a type that 4.3.1 does not have."""
