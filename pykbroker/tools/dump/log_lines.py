"""`.log` and `.checkpoint` files as Apache Kafka's DumpLogSegments prints them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath

from pykbroker.tools.dump.decoders import Decoder, plain_decoder
from pykbroker.tools.dump.file_batches import Found, NotABatch, batches
from pykbroker_log import names
from pykbroker_log.disk import FileReader
from pykbroker_wire.json_form import render, to_json
from pykbroker_wire.messages.kraft_version_record import KRaftVersionRecord
from pykbroker_wire.messages.leader_change_message import LeaderChangeMessage
from pykbroker_wire.messages.snapshot_footer_record import SnapshotFooterRecord
from pykbroker_wire.messages.snapshot_header_record import SnapshotHeaderRecord
from pykbroker_wire.messages.voters_record import VotersRecord
from pykbroker_wire.primitives import DecodeError, TopLevel
from pykbroker_wire.records.batch import NO_SEQUENCE, BatchHeader, CorruptBatch, increment_sequence, verify_crc
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.control import ControlType, parse_control
from pykbroker_wire.records.record import InvalidRecord, Record, iter_records

MAX_BYTES = 2**31 - 1

_KRAFT: dict[ControlType, tuple[str, type[TopLevel]]] = {
    ControlType.LEADER_CHANGE: ("LeaderChange: ", LeaderChangeMessage),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader ", SnapshotHeaderRecord),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter ", SnapshotFooterRecord),
    ControlType.KRAFT_VERSION: ("KRaftVersion ", KRaftVersionRecord),
    ControlType.KRAFT_VOTERS: ("KRaftVoters ", VotersRecord),
}


@dataclass(slots=True, frozen=True)
class LogOptions:
    """`deep`: print a line for each record. `contents`: with its key and payload. `metadata`: with its offset, sizes
    and so on."""

    deep: bool = False
    contents: bool = False
    metadata: bool = True
    max_bytes: int = MAX_BYTES
    decoder: Decoder = field(default_factory=plain_decoder)


@dataclass(slots=True)
class Gaps:
    """Offsets of one file that do not follow each other: (before, after)."""

    pairs: list[tuple[int, int]] = field(default_factory=list)


def dump_log(path: str, file: FileReader, options: LogOptions, gaps: Gaps) -> Iterator[str]:
    """Yield the lines of one file. Raises NotABatch, DecodeFailure."""
    yield _title(path)
    # As in Apache Kafka's tool, there is a gap before the first batch of a log that begins later than 0.
    position, last_offset = 0, -1
    size = file.size()  # data that a broker appends in the meantime is not read
    for found in batches(file, 0, min(size, options.max_bytes)):
        yield _batch_line(found)
        if options.deep:
            for record in _records(found):
                if record.offset != last_offset + 1:
                    gaps.pairs.append((last_offset, record.offset))
                last_offset = record.offset
                yield _record_line(found.header, record, options)
        position = found.position + len(found.data)
    trailing = size - position
    if trailing > 0 and options.max_bytes == MAX_BYTES:
        yield f"Found {trailing} invalid bytes at the end of {PurePath(path).name}"


def _title(path: str) -> str:
    name = PurePath(path).name
    if name.endswith(names.LOG):
        return f"Log starting offset: {int(name.partition('.')[0])}"
    if name == names.BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot"
    offset, _, epoch = name.partition(".")[0].partition("-")
    return f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}"


def _batch_line(found: Found) -> str:
    header = found.header
    codec = header.compression.name.lower() if header.attributes & 7 in _CODECS else f"unknown({header.attributes & 7})"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} isTransactional: {_java(header.is_transactional)} "
        f"isControl: {_java(header.is_control)} deleteHorizonMs: {_optional(header)} position: {found.position} "
        f"{header.timestamp_type}: {header.max_timestamp} size: {header.size_in_bytes} magic: {header.magic} "
        f"compresscodec: {codec} crc: {header.crc} isvalid: {_java(verify_crc(found.data, 0, header))}"
    )


_CODECS = {int(codec) for codec in Codec}


def _java(value: bool) -> str:
    return "true" if value else "false"


def _optional(header: BatchHeader) -> str:
    return f"OptionalLong[{header.base_timestamp}]" if header.has_delete_horizon else "OptionalLong.empty"


def _records(found: Found) -> Iterator[Record]:
    try:
        yield from iter_records(found.data, 0, found.header)
    except (InvalidRecord, CorruptBatch, DecodeError) as error:
        raise NotABatch(found.position, f"records that cannot be read ({error})") from error


def _record_line(header: BatchHeader, record: Record, options: LogOptions) -> str:
    line, prefix = "", "| "
    if options.metadata:
        delta = record.offset - header.base_offset
        sequence = header.base_sequence
        if sequence != NO_SEQUENCE:
            sequence = increment_sequence(sequence, delta)
        keys = ",".join(name for name, _ in record.headers)
        line = (
            f"| offset: {record.offset} {header.timestamp_type}: {record.timestamp} keySize: {_size(record.key)} "
            f"valueSize: {_size(record.value)} sequence: {sequence} headerKeys: [{keys}]"
        )
        prefix = " "
        if header.is_control:
            line += _control(record)
    if options.contents and not header.is_control:
        key, payload = options.decoder(record)
        if key is not None:
            line += f"{prefix}key: {key}"
            prefix = " "
        if payload is not None:
            line += f"{prefix}payload: {payload}"
    return line


def _size(data: memoryview | bytes | None) -> int:
    return -1 if data is None else len(data)


def _control(record: Record) -> str:
    control = parse_control(record)
    if control.type in (ControlType.ABORT, ControlType.COMMIT):
        return f" endTxnMarker: {control.type.name} coordinatorEpoch: {control.coordinator_epoch}"
    if control.type in _KRAFT:
        word, cls = _KRAFT[control.type]
        # The first field of each of these messages is its version.
        version = int.from_bytes(control.value[:2], "big")
        message, _ = cls.decode(control.value, 0, version)
        return f" {word}{render(to_json(message, version))}"
    return f" controlType: {control.type.name}({int.from_bytes(bytes(record.key or b'')[2:4], 'big', signed=True)})"
