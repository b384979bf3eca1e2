"""Control batches: records that control readers instead of carrying data.

The key identifies a control record: int16 version 0, int16 type. The value depends on the type. An end-transaction
marker has int16 version 0 and int32 coordinator epoch; the records of KRaft are messages of `pykbroker_wire.stored`,
passed here as encoded bytes. A control batch is never compressed.

Facts: `ControlRecordType`, `EndTransactionMarker` of Apache Kafka; KIP-98 (markers), KIP-595 (leader change), KIP-630
(snapshot header and footer), KIP-853 (kraft version and voters).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, NamedTuple

from pykbroker_wire.records.batch import NO_LEADER_EPOCH, build_batch
from pykbroker_wire.records.record import InvalidRecord, Record

if TYPE_CHECKING:
    from pykbroker_wire.primitives import Buffer


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class ControlRecord(NamedTuple):
    """A parsed control record. A type that this version does not know becomes UNKNOWN, and readers skip it."""

    type: ControlType
    value: memoryview
    coordinator_epoch: int
    """The epoch in an end-transaction marker; otherwise -1."""


_KEY = Struct(">hh")
_MARKER = Struct(">hi")
_TYPES = {int(member): member for member in ControlType if member >= 0}


def control_batch(
    records: Iterable[tuple[int, Buffer]],
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> bytes:
    """Build a control batch of (control type, encoded value)."""
    return build_batch(
        [(_KEY.pack(0, control_type), value, (), timestamp) for control_type, value in records],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=True,
    )


def end_txn_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Build the batch that ends a producer's transaction in one partition. It has no sequence."""
    return control_batch(
        [(ControlType.COMMIT if commit else ControlType.ABORT, _MARKER.pack(0, coordinator_epoch))],
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
    )


def leader_change(value: Buffer, *, timestamp: int, base_offset: int, leader_epoch: int) -> bytes:
    """Build a new leader's first batch; `value` is an encoded LeaderChangeMessage."""
    return control_batch(
        [(ControlType.LEADER_CHANGE, value)], timestamp=timestamp, base_offset=base_offset, leader_epoch=leader_epoch
    )


def snapshot_header(value: Buffer, *, timestamp: int, base_offset: int = 0, leader_epoch: int = 0) -> bytes:
    """Build the first batch of a snapshot file; `value` is an encoded SnapshotHeaderRecord."""
    return control_batch(
        [(ControlType.SNAPSHOT_HEADER, value)], timestamp=timestamp, base_offset=base_offset, leader_epoch=leader_epoch
    )


def snapshot_footer(value: Buffer, *, timestamp: int, base_offset: int, leader_epoch: int = 0) -> bytes:
    """Build the last batch of a snapshot file; `value` is an encoded SnapshotFooterRecord."""
    return control_batch(
        [(ControlType.SNAPSHOT_FOOTER, value)], timestamp=timestamp, base_offset=base_offset, leader_epoch=leader_epoch
    )


def kraft_version(value: Buffer, *, timestamp: int, base_offset: int, leader_epoch: int) -> bytes:
    """Build the batch that sets kraft.version; `value` is an encoded KRaftVersionRecord."""
    return control_batch(
        [(ControlType.KRAFT_VERSION, value)], timestamp=timestamp, base_offset=base_offset, leader_epoch=leader_epoch
    )


def parse_control(record: Record) -> ControlRecord:
    """Parse a control record. A higher version is read as the known one, because later ones may only add fields. Raises
    InvalidRecord."""
    if record.key is None or len(record.key) < 4:
        raise InvalidRecord("Invalid key size found for control record: at least 4 bytes are needed")
    version, type_id = _KEY.unpack_from(record.key)
    if version < 0:
        raise InvalidRecord(f"Invalid version found for control record: {version}. May indicate data corruption")
    control_type = _TYPES.get(type_id, ControlType.UNKNOWN)
    value = memoryview(b"") if record.value is None else record.value
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(control_type, value, -1)
    try:
        version, coordinator_epoch = _MARKER.unpack_from(value)
    except StructError:
        raise InvalidRecord(
            f"Invalid value size found for end transaction marker: 6 bytes are needed, found {len(value)}"
        ) from None
    if version < 0:
        raise InvalidRecord(
            f"Invalid version found for end transaction marker: {version}. May indicate data corruption"
        )
    return ControlRecord(control_type, value, coordinator_epoch)
