"""Reads from the log, when needed, the batches before a producer's last one, which a producer snapshot does not have.

A snapshot keeps one batch per producer, but a client may repeat any of the five that were in flight when the node
stopped. Apache Kafka refuses the first one that is repeated (OUT_OF_ORDER_SEQUENCE_NUMBER), unless it is the last of
the five, and the client cannot recover from that.

Responsible for finding them. Not responsible for whether a batch is a repetition (producers.py). The log is read only
when a batch would be refused, once per producer and start, and not further back than `_LOOK_BACK_BYTES`.
"""

from __future__ import annotations

from pykbroker_log.producers import BatchMetadata, ProducerStates
from pykbroker_log.segments import Segments
from pykbroker_log.validate import Validated
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import CorruptBatch

# More than five of the largest usual batches. Walking the headers of that much takes some milliseconds.
_LOOK_BACK_BYTES = 8 * 1024 * 1024


def repeated(segments: Segments, producers: ProducerStates, batch: Validated, refusal: KafkaError) -> BatchMetadata:
    """Return the batch in the log that a batch with a refused sequence number repeats. Raises `refusal` if there is
    none, and OSError."""
    entry = producers.partial(batch.producer_id, batch.producer_epoch)
    if entry is None or refusal.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        raise refusal
    try:
        entry.complete(_earlier(segments, entry.producer_id, entry.epoch, entry.batches[0].first_offset))
    except CorruptBatch:
        raise refusal from None
    original = entry.repeated_by(batch.base_sequence, batch.last_sequence)
    if original is None:
        raise refusal
    return original


def _earlier(segments: Segments, producer_id: int, epoch: int, before: int) -> list[BatchMetadata]:
    """Return the producer's batches in this epoch that lie before offset `before`, in order."""
    found: list[BatchMetadata] = []
    left = _LOOK_BACK_BYTES
    for index in range(segments.index_of(before), -1, -1):
        segment = segments[index]
        located = segment.find(before)
        end = located[0] if located is not None else segment.size
        start = segment.position_at_or_before(max(0, end - left))
        found[:0] = [
            BatchMetadata(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
            for _, header in segment.walk(start, end)
            if header.producer_id == producer_id and header.producer_epoch == epoch and not header.is_control
        ]
        left -= end - start
        if left <= 0:
            break
    return found
