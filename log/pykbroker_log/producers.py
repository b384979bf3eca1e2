"""The idempotent and transactional producers of a log, and the `.snapshot` files that store them.

Responsible for checking a producer's next batch (KIP-98, KIP-360, KIP-890), for the last five batches per producer id
(a repetition of one is answered with its offsets), and for which transactions are open. Not responsible for deciding
transactions: their markers arrive as control batches.

Invariants:
* `judge` changes nothing. `apply` carries out its decision when the batch is in the log, and it cannot fail.
* Within a producer epoch the sequence of a batch follows the last one (2^31 - 1 is followed by 0); epochs only rise.
* The state is a function of the log: replaying its batches from a snapshot restores the state of the running log. But a
  snapshot has only the last batch per producer (earlier_batches.py finds the others). Verifications are not part of the
  state: they are requests under way, and are sent again after a restart.
* The first unstable offset is the smallest first offset of a transaction that is undecided, or decided by a marker
  that is not below the high watermark yet.
* A producer with an open transaction does not expire.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pykbroker_log.jumps import NO_JUMPS, Jumps
from pykbroker_log.log_config import AppendOrigin
from pykbroker_log.open_transactions import NO_TRANSACTIONS, OpenTransactions
from pykbroker_log.txn_index import AbortedTxn
from pykbroker_log.verification import Verifications
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import CONTROL, MAX_INT32, NO_SEQUENCE, TRANSACTIONAL, BatchHeader
from pykbroker_wire.records.control import ControlRecord, ControlType, parse_control
from pykbroker_wire.records.crc import crc32c
from pykbroker_wire.records.record import iter_records

if TYPE_CHECKING:
    from pykbroker_log.validate import Validated

KEPT_BATCHES = 5
DEFAULT_EXPIRATION_MS = 86_400_000

_NO_EPOCH = -1
_LAST_EPOCH = 32767
#: From this transaction.version on, every transaction ends with an epoch of its own (KIP-890).
_EPOCH_PER_TRANSACTION = 2

_SNAPSHOT_HEAD = struct.Struct(">hIi")  # version, CRC-32C of everything after it, count of entries
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1
_CRC_END = 6


class CorruptProducerSnapshot(ValueError):
    pass


@dataclass(slots=True)
class BatchMetadata:
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
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "is_partial",
        "last_timestamp",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = _NO_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.txn_first_offset = -1
        self.batches: list[BatchMetadata] = []
        #: loaded from a snapshot: the log may contain earlier batches of this epoch
        self.is_partial = False

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def begin_epoch(self, epoch: int) -> None:
        self.batches.clear()
        self.epoch = epoch
        self.is_partial = False

    def repeated_by(self, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Return the kept batch with these sequence numbers, or None."""
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None

    def complete(self, earlier: list[BatchMetadata]) -> None:
        """Add the earlier batches that were read from the log."""
        self.is_partial = False
        room = KEPT_BATCHES - len(self.batches)
        if room > 0:
            self.batches[:0] = earlier[-room:]


@dataclass(slots=True)
class ProducerDecision:
    """The verdict on one batch of a producer, which `ProducerStates.apply` carries out."""

    producer_id: int
    epoch: int
    #: The batch as its producer's entry keeps it, or the earlier batch that it repeats.
    batch: BatchMetadata
    is_transactional: bool
    #: True if the log has the batch already: then it is neither written nor applied again.
    is_repetition: bool = False
    #: The end of a transaction, which is the only content of its batch; None for data.
    marker: ControlRecord | None = None
    #: The transaction that the marker aborts, for the transaction index; None if it aborts none.
    aborted: AbortedTxn | None = None


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers returns it; -1 for missing values."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


#: The entry that stands for an unknown producer.
_NOBODY = ProducerEntry(-1)
# Shared by logs to which no producer with an id writes. Never changed; a node has thousands of logs.
_NO_ENTRIES: dict[int, ProducerEntry] = {}
_NO_VERIFICATIONS = Verifications()


class ProducerStates:
    """The producers of one log. Callers pass in the log's other offsets (high watermark, start)."""

    __slots__ = ("_verifying", "entries", "expiration_ms", "map_end_offset", "transactions", "verifications", "verify")

    def __init__(self, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> None:
        self.entries = _NO_ENTRIES
        self.expiration_ms = expiration_ms
        #: True if a transaction may only begin with a guard (`transaction.partition.verification.enable`)
        self.verify = False
        self.verifications = _NO_VERIFICATIONS
        # Read for every batch.
        self._verifying = self.verifications.pending
        #: the state reflects the log up to here, exclusive
        self.map_end_offset = 0
        self.transactions = NO_TRANSACTIONS

    def __len__(self) -> int:
        return len(self.entries)

    # -- decisions

    def judge(
        self, batch: Validated, origin: AppendOrigin, guard: object | None = None, transaction_version: int = 0
    ) -> ProducerDecision | None:
        """Decide about a batch of a producer that has its offsets and is to be written. Return None if it changes no
        producer. Raises KafkaError.

        `guard` is what `begin_verification` has returned for the batch. `transaction_version` decides by which rules
        the epoch of a marker is checked.
        """
        attributes = batch.attributes
        if attributes & CONTROL:
            decision = self.accepted(BatchHeader.parse(batch.records), batch.records)
            if decision is not None:
                self._check_marker(decision, transaction_version)
            return decision
        producer_id = batch.producer_id
        epoch = batch.producer_epoch
        is_transactional = attributes & TRANSACTIONAL != 0
        entry = self.entries.get(producer_id)
        if entry is not None and epoch == entry.epoch and origin is AppendOrigin.CLIENT:
            kept = entry.batches
            # Usually the batch is the next one in order, and then it repeats none of the kept batches.
            if not (
                kept
                and batch.base_sequence == kept[-1].last_sequence + 1
                and (entry.txn_first_offset >= 0) is is_transactional
                and not self._verifying
            ):
                original = entry.repeated_by(batch.base_sequence, batch.last_sequence)
                if original is not None:
                    return ProducerDecision(producer_id, epoch, original, is_transactional, is_repetition=True)
                self._check_data(entry, batch, origin, guard)
        elif entry is not None or is_transactional or self._verifying:
            self._check_data(entry or _NOBODY, batch, origin, guard)
        metadata = BatchMetadata(batch.last_sequence, batch.last_offset, batch.record_count - 1, batch.max_timestamp)
        return ProducerDecision(producer_id, epoch, metadata, is_transactional)

    def accepted(self, header: BatchHeader, batch: memoryview | bytes | None) -> ProducerDecision | None:
        """Return the decision about a batch that a leader has accepted, or None if the batch changes no producer.
        `batch` is needed only for control batches."""
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        marker = aborted = None
        if header.attributes & CONTROL:
            marker = marker_of(header, batch) if batch is not None else None
            if marker is None:
                return None
            aborted = self._aborted_by(producer_id, marker, header.base_offset)
        metadata = BatchMetadata(
            header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
        )
        return ProducerDecision(
            producer_id, header.producer_epoch, metadata, header.is_transactional, marker=marker, aborted=aborted
        )

    def _check_data(self, entry: ProducerEntry, batch: Validated, origin: AppendOrigin, guard: object | None) -> None:
        """Check that a batch of data that repeats no kept batch may be appended. Raises KafkaError."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        is_transactional = batch.attributes & TRANSACTIONAL != 0
        if epoch < entry.epoch:
            raise _old_epoch(producer_id, epoch, entry)
        if (
            is_transactional
            and self.verify
            and not (entry.txn_first_offset >= 0 and epoch == entry.epoch)
            and not self.verifications.is_current(producer_id, guard)
        ):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"no transaction of producer {producer_id} was verified for this partition"
            )
        if origin is AppendOrigin.CLIENT:
            if self._verifying:
                self.verifications.check_sequence(producer_id, batch.base_sequence, knows_batches=bool(entry.batches))
            self._check_sequence(entry, epoch, batch.base_sequence)
        if entry.txn_first_offset >= 0 and not is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} wrote outside of its ongoing transaction"
            )

    def partial(self, producer_id: int, epoch: int) -> ProducerEntry | None:
        """Return the producer if its batches in this epoch are known only from a snapshot, else None."""
        entry = self.entries.get(producer_id)
        return entry if entry is not None and entry.is_partial and entry.epoch == epoch else None

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> object | None:
        """Return the guard with which a transactional batch may begin a transaction here, once its coordinator has
        allowed it. Return None if the transaction is open and the coordinator need not be asked. Raises KafkaError."""
        entry = self.entries.get(producer_id)
        if entry is not None:
            if epoch < entry.epoch:
                raise _old_epoch(producer_id, epoch, entry)
            if entry.txn_first_offset >= 0 and epoch == entry.epoch:
                return None
        if self.verifications is _NO_VERIFICATIONS:
            self.verifications = Verifications()
            self._verifying = self.verifications.pending
        return self.verifications.begin(
            producer_id, epoch, sequence, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
        )

    def takes_guard(self, producer_id: int, epoch: int, guard: object) -> bool:
        """Return True if the guard is still valid, or `judge` does not need it: the transaction is open by now, the
        epoch is an old one, or verification is off."""
        if not self.verify or self.verifications.is_current(producer_id, guard):
            return True
        entry = self.entries.get(producer_id)
        return entry is not None and (epoch < entry.epoch or (epoch == entry.epoch and entry.txn_first_offset >= 0))

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

    def _check_marker(self, decision: ProducerDecision, transaction_version: int) -> None:
        """Check that a marker may be appended. Raises INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED."""
        producer_id, epoch, marker = decision.producer_id, decision.epoch, decision.marker
        entry = self.entries.get(producer_id)
        if entry is None or marker is None:
            return
        if transaction_version >= _EPOCH_PER_TRANSACTION:
            # The marker raises the epoch. A marker that does not is a repetition if no transaction is open (a response
            # was lost), or its producer has used up its epochs.
            is_repeated = epoch == entry.epoch and (entry.txn_first_offset < 0 or epoch == _LAST_EPOCH)
            if epoch <= entry.epoch and not is_repeated:
                raise _old_epoch(producer_id, epoch, entry)
        elif epoch < entry.epoch:
            raise _old_epoch(producer_id, epoch, entry)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker for producer {producer_id} has coordinator epoch {marker.coordinator_epoch}, and the last "
                f"marker had a newer one, {entry.coordinator_epoch}",
            )

    def _aborted_by(self, producer_id: int, marker: ControlRecord, offset: int) -> AbortedTxn | None:
        """Return the transaction that this marker is about to abort, or None if it commits or no data belongs to it."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.txn_first_offset < 0 or marker.type is not ControlType.ABORT:
            return None
        undecided = self.transactions.first_undecided_but(entry.txn_first_offset)
        return AbortedTxn(producer_id, entry.txn_first_offset, offset, undecided if undecided >= 0 else offset + 1)

    # -- change

    def apply(self, decision: ProducerDecision) -> None:
        """Carry out the decision about a batch that is in the log now."""
        batch = decision.batch
        entry = self.entries.get(decision.producer_id) or self._add(ProducerEntry(decision.producer_id))
        if decision.epoch != entry.epoch:
            entry.begin_epoch(decision.epoch)
        entry.last_timestamp = batch.timestamp
        if decision.marker is not None:
            self._end_transaction(entry, decision.marker, batch.last_offset)
            return
        batches = entry.batches
        if len(batches) == KEPT_BATCHES:
            del batches[0]
        batches.append(batch)
        if decision.is_transactional:
            self.verifications.drop(entry.producer_id)
            if entry.txn_first_offset < 0:
                self._begin_transaction(entry, batch.first_offset)

    def _begin_transaction(self, entry: ProducerEntry, first_offset: int) -> None:
        entry.txn_first_offset = first_offset
        if self.transactions is NO_TRANSACTIONS:
            self.transactions = OpenTransactions()
        self.transactions.begin(first_offset)

    def _end_transaction(self, entry: ProducerEntry, marker: ControlRecord, marker_offset: int) -> None:
        self.verifications.drop(entry.producer_id)
        entry.coordinator_epoch = marker.coordinator_epoch
        first_offset, entry.txn_first_offset = entry.txn_first_offset, -1
        if first_offset >= 0:
            self.transactions.decide(first_offset, marker_offset)

    def _add(self, entry: ProducerEntry) -> ProducerEntry:
        if not self.entries:
            self.entries = {}
        self.entries[entry.producer_id] = entry
        return entry

    def replay(self, header: BatchHeader, batch: memoryview | bytes | None) -> AbortedTxn | None:
        """Apply a batch that is already in the log, and return the transaction that it aborts, or None. `batch` is
        needed only for control batches."""
        decision = self.accepted(header, batch)
        self.map_end_offset = header.next_offset
        if decision is None:
            return None
        self.apply(decision)
        return decision.aborted

    # -- transactions

    def on_log_start(self, offset: int) -> None:
        self.transactions.replicated(offset)
        self.map_end_offset = max(self.map_end_offset, offset)

    def active(self) -> list[ActiveProducer]:
        return [
            ActiveProducer(
                producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
            for producer_id, entry in self.entries.items()
        ]

    # -- life

    def remove_expired(self, now_ms: int, jumps: Jumps = NO_JUMPS) -> None:
        """Remove idle producers (`producer.id.expiration.ms`), but none with an open transaction."""
        left = {
            producer_id: entry
            for producer_id, entry in self.entries.items()
            if not self._is_expired(entry, now_ms, jumps)
        }
        self.entries = left or _NO_ENTRIES
        self.verifications.remove_expired(now_ms, self.expiration_ms, jumps)

    def _is_expired(self, entry: ProducerEntry, now_ms: int, jumps: Jumps = NO_JUMPS) -> bool:
        return entry.txn_first_offset < 0 and jumps.age_ms(now_ms, entry.last_timestamp) >= self.expiration_ms

    def clear(self, map_end_offset: int) -> None:
        self.entries = _NO_ENTRIES
        self.transactions = NO_TRANSACTIONS
        self.map_end_offset = map_end_offset

    # -- snapshots

    def remember(self, batches: Mapping[int, list[BatchMetadata]]) -> None:
        """Add the last batches of some producers that recovery has read from this log. Called after a snapshot was
        loaded, which has only one batch per producer."""
        for producer_id, kept in batches.items():
            entry = self.entries.get(producer_id)
            if entry is not None and entry.batches and entry.batches[-1] == kept[-1]:
                entry.batches = kept

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
        """Replace the state by a snapshot's. Raises CorruptProducerSnapshot, and then nothing has changed."""
        entries = list(decode_snapshot(data))
        self.clear(map_end_offset)
        for entry in entries:
            if not self._is_expired(entry, now_ms):
                self._add(entry)
        undecided = [entry.txn_first_offset for entry in entries if entry.txn_first_offset >= 0]
        if undecided:
            self.transactions = OpenTransactions(undecided)


def _old_epoch(producer_id: int, epoch: int, entry: ProducerEntry) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} has epoch {epoch}, and its last epoch in this partition is {entry.epoch}",
    )


def decode_snapshot(data: bytes) -> Iterator[ProducerEntry]:
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CorruptProducerSnapshot(f"{len(data)} bytes are too few")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptProducerSnapshot(f"unknown version {version}")
    if crc32c(data[_CRC_END:]) != crc:
        raise CorruptProducerSnapshot("the checksum does not match")
    if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptProducerSnapshot(f"{count} entries do not take {len(data)} bytes")
    for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
        producer_id, epoch, sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
        entry = ProducerEntry(producer_id)
        entry.epoch = epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.txn_first_offset = txn_first_offset
        if last_offset >= 0:
            entry.batches.append(BatchMetadata(sequence, last_offset, delta, timestamp))
            entry.is_partial = True
        yield entry


def marker_of(header: BatchHeader, batch: memoryview | bytes) -> ControlRecord | None:
    """Return the end-transaction marker of a batch, or None for data, other control records and an emptied batch."""
    if not header.attributes & CONTROL or header.producer_id < 0:
        return None
    record = next(iter(iter_records(batch, 0, header)), None)
    if record is None:
        return None
    control = parse_control(record)
    return control if control.type in (ControlType.ABORT, ControlType.COMMIT) else None
