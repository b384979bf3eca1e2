"""Metadata records as bytes: the frame of KIP-631 (frame version, type, version, body) and which version to write.

Responsible for both directions of one record's value. Not responsible for batches nor for offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.metadata.features import METADATA_VERSION_MIN
from pykbroker_wire.primitives import DecodeError, TopLevel, read_varint
from pykbroker_wire.stored.metadata import record_class

FRAME_VERSION = 1

#: Record type -> (lowest metadata.version, record version), highest first; types that are absent have version 0 only.
_VERSIONS: dict[int, tuple[tuple[int, int], ...]] = {
    # RegisterBrokerRecord: controlled shutdown, ZooKeeper migration, directories (KIP-858), cordoned ones (KIP-1066).
    0: ((30, 4), (17, 3), (8, 2), (7, 1)),
    # PartitionRecord, PartitionChangeRecord: directories (KIP-858), eligible leader replicas (KIP-966).
    3: ((23, 2), (17, 1)),
    5: ((23, 2), (17, 1)),
    # BrokerRegistrationChangeRecord.
    17: ((30, 3), (17, 2), (7, 1)),
}


def record_version(record_type: int, metadata_version: int) -> int:
    """The version in which a record of this type is written under a finalised metadata.version."""
    for lowest, version in _VERSIONS.get(record_type, ()):
        if metadata_version >= lowest:
            return version
    return 0


def encode_record(record: TopLevel, metadata_version: int) -> bytes:
    """One framed value."""
    version = record_version(record.API_KEY, metadata_version or METADATA_VERSION_MIN)
    # Types and versions are below 128, so each varint is one byte.
    return b"".join([bytes((FRAME_VERSION, record.API_KEY, version)), *record.encode(version)])


def encode_records(records: Iterable[TopLevel], metadata_version: int) -> list[bytes]:
    return [encode_record(record, metadata_version) for record in records]


def decode_record(value: bytes | memoryview) -> TopLevel:
    """The record in one framed value; DecodeError when it is damaged or of a type that 4.3.1 does not have."""
    frame_version, pos = read_varint(value, 0)
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"metadata record with frame version {frame_version}")
    record_type, pos = read_varint(value, pos)
    version, pos = read_varint(value, pos)
    cls = record_class(record_type)
    if cls is None:
        raise DecodeError(f"metadata record of unknown type {record_type}")
    record, end = cls.decode(value, pos, version)
    if end != len(value):
        raise DecodeError(f"{len(value) - end} bytes after a {cls.__name__}")
    return record
