"""Encoding and decoding the batches of the metadata log, and the control records of KRaft.

Responsible for the form of the batches that KRaft appends: plain values without keys and headers, uncompressed, and
control records in the versions that Apache Kafka writes. Not responsible for the meaning of the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pykbroker_raft.voters import VoterSet
from pykbroker_wire.messages.kraft_version_record import KRaftVersionRecord
from pykbroker_wire.messages.leader_change_message import LeaderChangeMessage, Voter
from pykbroker_wire.messages.snapshot_footer_record import SnapshotFooterRecord
from pykbroker_wire.messages.snapshot_header_record import SnapshotHeaderRecord
from pykbroker_wire.messages.voters_record import VotersRecord
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.records.batch import BatchHeader, CorruptBatch, build_batch, iter_batches, verify_crc
from pykbroker_wire.records.control import ControlType as ControlType
from pykbroker_wire.records.control import control_batch as build_control_batch
from pykbroker_wire.records.control import parse_control
from pykbroker_wire.records.record import iter_records

# The message of each control record type; the version of every one is 0.
_MESSAGES: dict[ControlType, Any] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


class Control(NamedTuple):
    """A control record and its type."""

    type: ControlType
    message: Any

    def encoded(self) -> bytes:
        return b"".join(self.message.encode(0))


class Batch(NamedTuple):
    """The place of a batch in a buffer, and the values of its header."""

    position: int
    size: int
    base_offset: int
    next_offset: int
    epoch: int
    timestamp_ms: int
    is_control: bool
    header: BatchHeader


def leader_change(leader_id: int, voters: Sequence[int], granting: Sequence[int]) -> Control:
    message = LeaderChangeMessage(
        leader_id=leader_id,
        voters=[Voter(voter_id=voter) for voter in voters],
        granting_voters=[Voter(voter_id=voter) for voter in granting],
    )
    return Control(ControlType.LEADER_CHANGE, message)


def electors(change: Control) -> tuple[int, ...]:
    """Return the ids of all voters that the leader of a LeaderChange knew."""
    return tuple(sorted(voter.voter_id for voter in change.message.voters))


def kraft_version(version: int) -> Control:
    return Control(ControlType.KRAFT_VERSION, KRaftVersionRecord(version=0, kraft_version=version))


def voters(voter_set: VoterSet) -> Control:
    return Control(ControlType.KRAFT_VOTERS, voter_set.to_record())


def snapshot_header(last_timestamp_ms: int) -> Control:
    message = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp_ms)
    return Control(ControlType.SNAPSHOT_HEADER, message)


def snapshot_footer() -> Control:
    return Control(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0))


def data_batch(values: Sequence[bytes], base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    return build_batch(
        [(None, value, (), timestamp_ms) for value in values], base_offset=base_offset, leader_epoch=epoch
    )


def control_batch(records: Sequence[Control], base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    return build_control_batch(
        [(record.type, record.encoded()) for record in records],
        timestamp=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def intact(data: Buffer) -> Iterator[Batch]:
    """Yield the batches before the first one that is cut off or damaged."""
    try:
        for position, header in iter_batches(data):
            if not verify_crc(data, position, header):
                return
            yield Batch(
                position,
                header.size_in_bytes,
                header.base_offset,
                header.next_offset,
                header.partition_leader_epoch,
                header.max_timestamp,
                header.is_control,
                header,
            )
    except CorruptBatch:
        return


def values(data: Buffer, batch: Batch) -> list[bytes]:
    """Return the values of a data batch; a control batch has no values for a listener."""
    if batch.is_control:
        return []
    return [bytes(record.value or b"") for record in iter_records(data, batch.position, batch.header)]


def control_of(data: Buffer, batch: Batch) -> Iterator[tuple[int, Control]]:
    """Yield the control records of one control batch with their offsets, without types that are not KRaft's."""
    for record in iter_records(data, batch.position, batch.header):
        parsed = parse_control(record)
        message_type = _MESSAGES.get(parsed.type)
        if message_type is not None:
            message, _ = message_type.decode(parsed.value, 0, 0)
            yield record.offset, Control(parsed.type, message)


def control_records(data: Buffer) -> Iterator[tuple[int, Control]]:
    """Yield all control records in some batches, with their offsets."""
    for batch in intact(data):
        if batch.is_control:
            yield from control_of(data, batch)
