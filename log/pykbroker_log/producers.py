"""What a log knows of its idempotent and transactional producers, and the `.snapshot` files that keep it.

Responsible for: the verdict on a producer's next batch (KIP-98, KIP-360), the last five batches per producer id
for which a repetition is answered with the original offsets, which transactions are open. Not responsible for
deciding transactions: their markers arrive as control batches.

Invariants:
* `check` changes nothing; `apply` is called once the batch is in the log and cannot fail: what was checked is
  applied as is.
* Within a producer epoch the sequence of a batch follows the last one (2^31 - 1 is followed by 0); epochs only rise.
* The state is a function of the log: replaying its batches from a snapshot gives what the running log held, except
  that a snapshot knows only the last batch per producer.
* The first unstable offset is the smallest first offset of a transaction that is undecided, or decided by a marker
  that is not below the high watermark yet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from pykbroker_log.log_config import AppendOrigin
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import CONTROL, MAX_INT32, TRANSACTIONAL, BatchHeader
from pykbroker_wire.records.control import ControlRecord, ControlType, parse_control
from pykbroker_wire.records.crc import crc32c
from pykbroker_wire.records.record import iter_records

KEPT_BATCHES = 5
DEFAULT_EXPIRATION_MS = 86_400_000

_NO_EPOCH = -1
_NO_SEQUENCE = -1

_SNAPSHOT_HEAD = struct.Struct(">hIi")  # version, CRC-32C of everything after it, count of entries
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1
_CRC_END = 6


class CorruptSnapshot(ValueError):
    pass


class BatchMetadata(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_INT32


class ProducerEntry:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = _NO_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.txn_first_offset = -1
        self.batches: list[BatchMetadata] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def raise_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerStates:
    """The producers of one log. Offsets of the log's other facts (high watermark, start) are told, not asked."""

    __slots__ = ("_completed", "_ongoing", "entries", "expiration_ms", "map_end_offset")

    def __init__(self, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.expiration_ms = expiration_ms
        #: the state reflects the log up to here, exclusive
        self.map_end_offset = 0
        # First offset -> producer id; in the order of the log, so the first one is the oldest.
        self._ongoing: dict[int, int] = {}
        # Decided, but the marker may not be replicated yet: first offset -> offset of the marker.
        self._completed: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.entries)

    # -- verdict

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        attributes: int,
        origin: AppendOrigin,
    ) -> BatchMetadata | None:
        """None: append it. A batch: this one is a repetition of that. Otherwise raises KafkaError."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return None
        is_client = origin is AppendOrigin.CLIENT
        if is_client and epoch == entry.epoch:
            batches = entry.batches
            if batches and first_sequence == batches[-1].last_sequence + 1 and entry.txn_first_offset < 0:
                # The next one in order, as nearly always: it repeats none of the kept ones.
                return None
            for batch in entry.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} with epoch {epoch}, the last one seen is {entry.epoch}",
            )
        if attributes & CONTROL:
            return None
        if is_client:
            self._check_sequence(entry, epoch, first_sequence)
        if entry.txn_first_offset >= 0 and not attributes & TRANSACTIONAL:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} wrote outside of its ongoing transaction"
            )
        return None

    @staticmethod
    def _check_sequence(entry: ProducerEntry, epoch: int, first_sequence: int) -> None:
        if entry.epoch == _NO_EPOCH:
            return
        if epoch != entry.epoch:
            if first_sequence != 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {entry.producer_id} begins epoch {epoch} with sequence number {first_sequence}, not 0",
                )
            return
        last = entry.last_sequence
        if first_sequence != last + 1 and not (first_sequence == 0 and last == MAX_INT32):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {entry.producer_id} sent sequence number {first_sequence} after {last}",
            )

    def check_marker(self, producer_id: int, marker: ControlRecord) -> None:
        entry = self.entries.get(producer_id)
        if entry is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker for producer {producer_id} of coordinator epoch {marker.coordinator_epoch}, "
                f"the last one seen is {entry.coordinator_epoch}",
            )

    # -- change

    def apply(
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        """A batch of data is in the log."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        entry.raise_epoch(epoch)
        batches = entry.batches
        if len(batches) == KEPT_BATCHES:
            del batches[0]
        batches.append(BatchMetadata(last_sequence, last_offset, last_offset - first_offset, timestamp))
        entry.last_timestamp = timestamp
        if is_transactional and entry.txn_first_offset < 0:
            entry.txn_first_offset = first_offset
            self._ongoing[first_offset] = producer_id

    def apply_marker(
        self, producer_id: int, epoch: int, marker: ControlRecord, offset: int, timestamp: int
    ) -> CompletedTxn | None:
        """An end-transaction marker is in the log; returns the transaction that it ends, if any data belongs to it."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        entry.raise_epoch(epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        first_offset, entry.txn_first_offset = entry.txn_first_offset, -1
        if first_offset < 0:
            return None
        self._ongoing.pop(first_offset, None)
        self._completed[first_offset] = offset
        return CompletedTxn(producer_id, first_offset, offset, marker.type is ControlType.ABORT)

    def replay(self, header: BatchHeader, batch: memoryview | bytes | None) -> CompletedTxn | None:
        """Apply a batch that is already in the log. `batch` is needed for control batches only."""
        completed = None
        if header.producer_id >= 0:
            if header.attributes & CONTROL:
                marker = parse_marker(header, batch) if batch is not None else None
                if marker is not None:
                    completed = self.apply_marker(
                        header.producer_id, header.producer_epoch, marker, header.base_offset, header.max_timestamp
                    )
            else:
                self.apply(
                    header.producer_id,
                    header.producer_epoch,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                    header.is_transactional,
                )
        self.map_end_offset = header.next_offset
        return completed

    # -- transactions

    def first_unstable_offset(self) -> int:
        """-1 when everything is stable."""
        if not self._ongoing and not self._completed:
            return -1
        oldest = next(iter(self._ongoing), -1)
        decided = min(self._completed, default=-1)
        if oldest < 0 or decided < 0:
            return max(oldest, decided)
        return min(oldest, decided)

    def first_undecided_offset(self) -> int:
        return next(iter(self._ongoing), -1)

    def on_high_watermark(self, offset: int) -> None:
        if self._completed:
            self._completed = {first: last for first, last in self._completed.items() if last >= offset}

    def on_log_start(self, offset: int) -> None:
        self.on_high_watermark(offset)
        self.map_end_offset = max(self.map_end_offset, offset)

    # -- life

    def remove_expired(self, now_ms: int) -> None:
        """Forget idle producers (`producer.id.expiration.ms`), never one with an open transaction."""
        self.entries = {
            producer_id: entry for producer_id, entry in self.entries.items() if not self._is_expired(entry, now_ms)
        }

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.expiration_ms

    def clear(self, map_end_offset: int) -> None:
        self.entries.clear()
        self._ongoing.clear()
        self._completed.clear()
        self.map_end_offset = map_end_offset

    # -- snapshots

    def encode(self) -> bytes:
        body = b"".join(
            _SNAPSHOT_ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_offset,
                entry.batches[-1].offset_delta if entry.batches else 0,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
            for entry in self.entries.values()
        )
        head = _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(self.entries))
        crc = crc32c(body, crc32c(head[_CRC_END:]))
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc, len(self.entries)) + body

    def load(self, data: bytes, map_end_offset: int, now_ms: int) -> None:
        """Replace the state by a snapshot's. Raises CorruptSnapshot and then has changed nothing."""
        entries = list(decode_snapshot(data))
        self.clear(map_end_offset)
        for entry in entries:
            if not self._is_expired(entry, now_ms):
                self.entries[entry.producer_id] = entry
        ongoing = [(entry.txn_first_offset, entry.producer_id) for entry in entries if entry.txn_first_offset >= 0]
        self._ongoing = dict(sorted(ongoing))


def decode_snapshot(data: bytes) -> Iterator[ProducerEntry]:
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"unknown version {version}")
    if crc32c(data[_CRC_END:]) != crc:
        raise CorruptSnapshot("the checksum does not match")
    if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptSnapshot(f"{count} entries do not take {len(data)} bytes")
    for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
        producer_id, epoch, sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
        entry = ProducerEntry(producer_id)
        entry.epoch = epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.txn_first_offset = txn_first_offset
        if last_offset >= 0:
            entry.batches.append(BatchMetadata(sequence, last_offset, delta, timestamp))
        yield entry


def parse_marker(header: BatchHeader, batch: memoryview | bytes) -> ControlRecord | None:
    """The end-transaction marker of a control batch; None for other control records and for an emptied batch."""
    record = next(iter(iter_records(batch, 0, header)), None)
    if record is None:
        return None
    control = parse_control(record)
    return control if control.type in (ControlType.ABORT, ControlType.COMMIT) else None
