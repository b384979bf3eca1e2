"""The transactions of a log, found slowly from its bytes; and a read-committed consumer's result of its reads. Compared
with what the log keeps: producers, last stable offset, `.txnindex`."""

from __future__ import annotations

from dataclasses import dataclass, field

from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import marker_of
from pykbroker_wire.records.batch import BatchHeader, iter_batches
from pykbroker_wire.records.control import ControlType
from pykbroker_wire.records.record import iter_records


@dataclass
class Txn:
    producer_id: int
    batches: list[BatchHeader] = field(default_factory=list)
    marker: int = -1
    aborted: bool = False

    @property
    def first_offset(self) -> int:
        return self.batches[0].base_offset

    def is_visible(self, start: int) -> bool:
        return self.batches[-1].last_offset >= start


@dataclass
class History:
    """The history of all batches in the files, also of those before the log's start."""

    txns: list[Txn] = field(default_factory=list)
    values: list[tuple[int, bytes, Txn | None]] = field(default_factory=list)
    last_offsets: dict[int, int] = field(default_factory=dict)  # of the batch that a record is in
    segments: dict[int, int] = field(default_factory=dict)  # offset of a marker -> base offset of its segment

    @classmethod
    def of(cls, log: PartitionLog) -> History:
        history = cls()
        open_txns: dict[int, Txn] = {}
        for segment in log.files.segments:
            for position, header in segment.walk(0):
                data = segment.read_batch(position, header)
                marker = marker_of(header, data)
                if marker is not None:
                    history.segments[header.base_offset] = segment.base_offset
                    ended = open_txns.pop(header.producer_id, None)
                    if ended is not None:
                        ended.marker = header.base_offset
                        ended.aborted = marker.type is ControlType.ABORT
                elif not header.is_control:
                    txn = None
                    if header.is_transactional:
                        if header.producer_id not in open_txns:
                            open_txns[header.producer_id] = Txn(header.producer_id)
                            history.txns.append(open_txns[header.producer_id])
                        txn = open_txns[header.producer_id]
                        txn.batches.append(header)
                    for record in iter_records(data, 0, header):
                        history.values.append((record.offset, bytes(record.value or b""), txn))
                        history.last_offsets[record.offset] = header.last_offset
        return history

    def committed(self, start: int, end: int) -> dict[int, bytes]:
        """Return the committed records of batches that end before `end`."""
        return {
            offset: value
            for offset, value, txn in self.values
            if start <= offset
            and self.last_offsets[offset] < end
            and (txn is None or (txn.marker >= 0 and not txn.aborted))
        }


def read_committed(log: PartitionLog, start: int, max_bytes: int) -> dict[int, bytes]:
    """Read as the Java client does: records of an aborted transaction are left out from its first offset to its
    marker."""
    found: dict[int, bytes] = {}
    offset = start
    while offset < log.last_stable_offset:
        result = log.read(offset, max_bytes, log.last_stable_offset, with_aborted=True)
        data = result.joined()
        if not data:
            break
        coming = sorted(result.aborted, key=lambda aborted: aborted.first_offset)
        aborting: set[int] = set()
        for position, header in iter_batches(data):
            while coming and coming[0].first_offset <= header.last_offset:
                aborting.add(coming.pop(0).producer_id)
            if header.is_control:
                marker = marker_of(header, data[position : position + header.size_in_bytes])
                if marker is not None and marker.type is ControlType.ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                for record in iter_records(data, position, header):
                    if record.offset >= start:
                        found[record.offset] = bytes(record.value or b"")
        assert result.next_offset > offset
        offset = result.next_offset
    return found


def check_transactions(log: PartitionLog, *, dense_from: int = 0) -> None:
    """Check the transactions. A transaction that began before `dense_from`, or before the log's start, may be known
    only in part."""
    history = History.of(log)
    bound = max(log.log_start_offset, dense_from)
    entries = {
        aborted.last_offset: (segment.base_offset, aborted)
        for segment in log.files.segments
        for aborted in segment.txn_index.entries()
    }
    assert len(entries) == sum(len(segment.txn_index) for segment in log.files.segments)
    stable = -1
    for marker in sorted(entries):
        base, aborted = entries[marker]
        assert history.segments[marker] == base
        assert stable <= aborted.last_stable_offset <= marker + 1
        stable = aborted.last_stable_offset
    known = {txn.marker: txn for txn in history.txns if txn.aborted}
    for marker, (_, aborted) in entries.items():
        if marker in known:
            assert aborted.producer_id == known[marker].producer_id
            if known[marker].first_offset >= bound:
                assert aborted.first_offset == known[marker].first_offset or aborted.first_offset < bound
        else:
            assert aborted.first_offset < bound, f"{aborted} is in the index and not in the log"
    for marker, txn in known.items():
        if txn.is_visible(bound):
            visible = next(header for header in txn.batches if header.last_offset >= bound)
            assert marker in entries, (txn, entries)
            assert entries[marker][1].first_offset <= visible.last_offset, (txn, entries)
    undecided = [txn for txn in history.txns if txn.marker < 0 and txn.is_visible(bound)]
    first = min((txn.first_offset for txn in undecided), default=-1)
    if first < 0 or first >= bound:
        is_first = log.producers.transactions.first_undecided()
        assert is_first == first or is_first < bound, (is_first, first)
    for txn in undecided:
        visible = next(header for header in txn.batches if header.last_offset >= bound)
        assert log.last_stable_offset <= max(visible.base_offset, log.log_start_offset)
    if log.high_watermark == log.log_end_offset and first < 0 and log.producers.transactions.first_undecided() < 0:
        assert log.last_stable_offset == log.high_watermark
    step = 1 + max(0, log.last_stable_offset - bound) // 5
    for start in range(bound, log.last_stable_offset, step):
        for max_bytes in (1, 300, 1 << 20):
            assert read_committed(log, start, max_bytes) == history.committed(start, log.last_stable_offset)
