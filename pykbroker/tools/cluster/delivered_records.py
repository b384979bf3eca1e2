"""Records of a share group, from the answer to a ShareFetch. Pure.

Responsible for leaving out what the answer has beside the acquired records: it has whole batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from pykbroker.tools.cluster.failure import failed
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.share_fetch import AcquiredRecords, PartitionData
from pykbroker_wire.records.batch import LOG_APPEND_TIME, CorruptBatch, iter_batches, verify_crc
from pykbroker_wire.records.record import iter_records


@dataclass(slots=True, frozen=True)
class DeliveredRecord:
    """A record of a share group: a `ReadRecord` of record_format.py."""

    topic: str
    partition: int
    offset: int
    #: milliseconds since the epoch
    timestamp: int
    #: 0 for the producer's time, 1 for the broker's
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    #: how often the record was delivered, this time included
    delivery_count: int


def delivered_records(topic: str, answer: PartitionData) -> list[DeliveredRecord]:
    """Return the acquired records of a partition. Raises AskFailed for bytes that are no records."""
    acquired = answer.acquired_records
    firsts = [one.first_offset for one in acquired]
    data = answer.records
    if data is None:
        return []
    assert isinstance(data, memoryview), "an answer that was decoded has a view"
    found = []
    try:
        for position, header in iter_batches(data):
            if header.is_control or not _overlaps(acquired, firsts, header.base_offset, header.last_offset):
                continue
            if not verify_crc(data, position, header):
                raise CorruptBatch(f"the batch at offset {header.base_offset} has a wrong CRC")
            by_broker = int(header.attributes & LOG_APPEND_TIME != 0)
            for record in iter_records(data, position, header):
                place = bisect_right(firsts, record.offset) - 1
                if place < 0 or record.offset > acquired[place].last_offset:
                    continue
                found.append(
                    DeliveredRecord(
                        topic,
                        answer.partition_index,
                        record.offset,
                        record.timestamp,
                        by_broker,
                        None if record.key is None else bytes(record.key),
                        None if record.value is None else bytes(record.value),
                        record.headers,
                        acquired[place].delivery_count,
                    )
                )
    except ValueError as error:
        said = f"{topic}-{answer.partition_index} has records that cannot be read: {error}"
        raise failed(ErrorCode.CORRUPT_MESSAGE, said) from None
    return found


def _overlaps(acquired: Sequence[AcquiredRecords], firsts: Sequence[int], first: int, last: int) -> bool:
    """Return True if a part of the offsets from `first` to `last` was acquired."""
    place = bisect_right(firsts, last) - 1
    return place >= 0 and acquired[place].last_offset >= first
