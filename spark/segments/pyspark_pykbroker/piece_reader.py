"""One piece, read on an executor: from the bytes of its segments to Arrow record batches.

Responsible for finding the piece's files by their present names, for errors in them, and for Arrow arrays over the
filled buffers. Not responsible for the bytes of a batch (pykbroker_wire.records.columns).

Invariants: every row of [start, end) that was not compacted away comes once, in order of offsets, or the read ends in
an error. Markers and, with read_committed, aborted records are no rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from pykbroker_wire.records.batch import BatchHeader
from pykbroker_wire.records.columns import AbortedSpans, BrokenBatch, Columns, Filled
from pykbroker_wire.records.layout import HEADER_SIZE
from pyspark_pykbroker.faults import DamagedSegment, RecordsLost, UnknownFormat
from pyspark_pykbroker.log_view import LogView, settled
from pyspark_pykbroker.row_schema import wanted_of
from pyspark_pykbroker.segment_file import ADVICE, SegmentFile
from pyspark_pykbroker.source_options import Isolation

if TYPE_CHECKING:
    from pyspark_pykbroker.pieces import Piece
    from pyspark_pykbroker.source_options import SourceOptions

logger = logging.getLogger(__name__)


def read_piece(piece: Piece, names: list[str], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield record batches of about `rowsPerBatch` rows with the columns `names`. Raises RecordsLost, DamagedSegment,
    UnknownFormat."""
    start, view = _open(piece, options)
    if start >= piece.end:
        return
    aborted = None
    if options.isolation is Isolation.READ_COMMITTED:
        found = settled(piece.folder, lambda: LogView(piece.folder, start).aborted(start, piece.end))
        aborted = AbortedSpans((each.producer_id, each.first_offset, each.last_offset) for each in found)
    columns = Columns(wanted_of(names), start, piece.end - 1, aborted, max_rows=options.rows_per_batch)
    for segment in view.segments:
        for filled in _read_segment(segment, columns, start):
            yield _record_batch(filled, names, piece)
        if columns.done:
            break
    else:
        view.check_end(columns.next_offset, piece.end)
    if aborted is not None and aborted.undecided:
        settled(piece.folder, lambda: _compare_behind(piece, columns.next_offset, aborted))
    if columns.rows:
        yield _record_batch(columns.take(), names, piece)


def _open(piece: Piece, options: SourceOptions) -> tuple[int, LogView]:
    """Return the offset to begin at, and the open files. Raises RecordsLost."""
    view = settled(piece.folder, lambda: LogView(piece.folder, piece.start, piece.end, hold=True))
    if view.topic_id != piece.topic_id:
        raise RecordsLost(
            f"{piece.folder} belongs to another topic than when this read was planned: {piece.topic} was deleted and "
            "made again. Read again."
        )
    if view.first_offset is not None and view.first_offset <= piece.start:
        return piece.start, view
    first = piece.end if view.first_offset is None else min(view.first_offset, piece.end)
    text = (
        f"{piece.folder}: offsets {piece.start} to {first - 1} were deleted while the job ran (retention or "
        "DeleteRecords)"
    )
    if options.fail_on_data_loss:
        raise RecordsLost(f"{text}. Read again from the offsets that are left, or set failOnDataLoss to false.")
    logger.warning("%s: reading the offsets that are left", text)
    return first, view


def _compare_behind(piece: Piece, start: int, aborted: AbortedSpans) -> None:
    """Read the markers of the piece's transactions after the piece. Raises DamagedSegment if one of them aborts."""
    left = AbortedSpans()
    left.undecided.update(aborted.undecided)
    for segment, position, header in _batches_behind(piece.folder, start):
        if not left.undecided:
            return
        if header.is_control and header.is_transactional and header.base_offset >= start:
            payload = segment.batch(position, header)[HEADER_SIZE:]
            problem = left.end(header.producer_id, payload, header.base_offset)
            if problem is not None:
                raise _fault(segment, BrokenBatch(problem, position, header.base_offset))


def _batches_behind(folder: str, start: int) -> Iterator[tuple[SegmentFile, int, BatchHeader]]:
    """Yield batches from `start` to the end of the log, which may be torn above its high watermark."""
    with suppress(DamagedSegment):
        for segment in LogView(folder, start).segments:
            for position, header in segment.batches(segment.position_before(start)):
                yield segment, position, header
            segment.release()


def _read_segment(segment: SegmentFile, columns: Columns, start: int) -> Iterator[Filled]:
    position = segment.position_before(start) if segment.base_offset < start else 0
    while position < segment.size:
        before = position
        try:
            position = columns.fill(segment.view, position)
        except BrokenBatch as error:
            raise _fault(segment, error) from None
        if columns.full:
            yield columns.take()
        elif columns.done:
            return
        elif position == before or position < segment.size:
            raise segment.torn(position)


def _fault(segment: SegmentFile, error: BrokenBatch) -> DamagedSegment | UnknownFormat:
    """Return the error; the check of the header gives a more exact one for some batches."""
    try:
        next(segment.batches(error.position))
    except (DamagedSegment, UnknownFormat) as known:
        return known
    return DamagedSegment(
        f"{segment.path}, position {error.position}, offset {error.base_offset}: {error.problem}. {ADVICE}"
    )


def _record_batch(filled: Filled, names: list[str], piece: Piece) -> pa.RecordBatch:
    arrays = [_array(name, filled, piece) for name in names]
    if not names:
        return pa.RecordBatch.from_pylist([{}] * filled.rows)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _array(name: str, filled: Filled, piece: Piece) -> pa.Array:
    rows = filled.rows
    if name == "topic":
        return pa.repeat(pa.scalar(piece.topic, pa.string()), rows)
    if name == "partition":
        return pa.repeat(pa.scalar(piece.partition, pa.int32()), rows)
    buffers = [None if buffer is None else pa.py_buffer(buffer) for buffer in filled.buffers]
    if name == "key":
        return pa.Array.from_buffers(pa.binary(), rows, buffers[0:3])
    if name == "value":
        return pa.Array.from_buffers(pa.binary(), rows, buffers[3:6])
    if name == "offset":
        return pa.Array.from_buffers(pa.int64(), rows, [None, buffers[6]])
    if name == "timestamp":
        return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows, [None, buffers[7]])
    if name == "timestampType":
        return pa.Array.from_buffers(pa.int32(), rows, [None, buffers[8]])
    pairs = len(filled.buffers[11] or b"") // 4 - 1
    keys = pa.Array.from_buffers(pa.string(), pairs, [None, buffers[11], buffers[12]])
    values = pa.Array.from_buffers(pa.binary(), pairs, [buffers[13], buffers[14], buffers[15]])
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    struct = pa.StructArray.from_arrays([keys, values], fields=list(entry))
    return pa.Array.from_buffers(pa.list_(entry), rows, [buffers[9], buffers[10]], children=[struct])
