"""Snapshot files (`OOO-EEE.checkpoint`, `bootstrap.checkpoint`): their names and their bytes.

A snapshot is a sequence of batches: a control batch (header; kraft.version and voters if there are any), data batches,
a control batch (footer). `bootstrap.checkpoint` has the same form without voters; the first controller of a new cluster
writes its records into the log. Responsible for the form; `metadata_storage` reads and writes the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pykbroker_raft import batches
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.voters import VoterSet
from pykbroker_wire.primitives import Buffer, DecodeError

BOOTSTRAP_FILE = "bootstrap.checkpoint"
# Kafka's writer starts a new batch above these limits.
BATCH_BYTES = 8 * 1024 * 1024
BATCH_RECORDS = 10_000

_NAME = re.compile(r"(\d{20})-(\d{10})(?:-[^.]+)?\.checkpoint(\.part|\.deleted)?$")


class CorruptMetadataSnapshot(ValueError):
    """The file is not a whole snapshot."""


@dataclass(frozen=True, slots=True)
class SnapshotName:
    id: OffsetAndEpoch
    # "", ".part" while the file is written, ".deleted" before it is deleted.
    suffix: str


def file_name(snapshot: OffsetAndEpoch) -> str:
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"


def parse_name(name: str) -> SnapshotName | None:
    match = _NAME.match(name)
    if match is None:
        return None
    return SnapshotName(OffsetAndEpoch(int(match[1]), int(match[2])), match[3] or "")


def encode(
    values: Iterable[bytes],
    *,
    epoch: int,
    now_ms: int,
    last_timestamp_ms: int = 0,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> Iterator[bytes]:
    """Yield the batches of a snapshot, one at a time, so that a large snapshot needs no more memory than a batch."""
    head = [batches.snapshot_header(last_timestamp_ms)]
    if kraft_version > 0:
        head.append(batches.kraft_version(kraft_version))
        if voters is not None:
            head.append(batches.voters(voters))
    yield batches.control_batch(head, 0, epoch, now_ms)
    offset = len(head)
    pending: list[bytes] = []
    size = 0
    for value in values:
        if pending and (size + len(value) > BATCH_BYTES or len(pending) >= BATCH_RECORDS):
            yield batches.data_batch(pending, offset, epoch, now_ms)
            offset += len(pending)
            pending, size = [], 0
        pending.append(value)
        size += len(value) + 16
    if pending:
        yield batches.data_batch(pending, offset, epoch, now_ms)
        offset += len(pending)
    yield batches.control_batch([batches.snapshot_footer()], offset, epoch, now_ms)


@dataclass(slots=True)
class Snapshot:
    """A decoded snapshot: the values of its control records, and its data values."""

    last_timestamp_ms: int
    kraft_version: int
    voters: VoterSet | None
    values: list[list[bytes]]
    """One list per batch."""


def decode(data: Buffer, *, with_values: bool = True) -> Snapshot:
    """Decode a snapshot, with or without its values. Raises CorruptMetadataSnapshot if it is not whole."""
    try:
        return _decode(data, with_values)
    except CorruptMetadataSnapshot:
        raise
    except (DecodeError, ValueError) as error:
        # The batch's checksum is right, but a record in it cannot be decoded.
        raise CorruptMetadataSnapshot(str(error)) from error


def _decode(data: Buffer, with_values: bool) -> Snapshot:
    found: Snapshot | None = None
    ended = False
    end = 0
    for batch in batches.intact(data):
        if ended:
            raise CorruptMetadataSnapshot("batches after the footer")
        end = batch.position + batch.size
        if not batch.is_control:
            if found is None:
                raise CorruptMetadataSnapshot("no header")
            if with_values:
                found.values.append(batches.values(data, batch))
            continue
        for _, record in batches.control_of(data, batch):
            if record.type is batches.ControlType.SNAPSHOT_HEADER:
                found = Snapshot(record.message.last_contained_log_timestamp, 0, None, [])
            elif found is None:
                raise CorruptMetadataSnapshot("no header")
            elif record.type is batches.ControlType.KRAFT_VERSION:
                found.kraft_version = record.message.kraft_version
            elif record.type is batches.ControlType.KRAFT_VOTERS:
                found.voters = VoterSet.from_record(record.message)
            elif record.type is batches.ControlType.SNAPSHOT_FOOTER:
                ended = True
    if found is None or not ended or end != len(data):
        raise CorruptMetadataSnapshot(f"cut off or damaged after {end} of {len(data)} bytes")
    return found
