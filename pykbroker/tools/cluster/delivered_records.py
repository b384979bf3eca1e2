"""Records of a share group, from the answer to a ShareFetch. Pure.

Responsible for leaving out what the answer has beside the acquired records, because it has whole batches. Also
responsible for a bound: a few compressed bytes of a hostile broker may become any number of records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pykbroker.tools.cluster.failure import failed
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.share_fetch import AcquiredRecords, PartitionData
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.records.batch import LOG_APPEND_TIME, BatchHeader, CorruptBatch, iter_batches, verify_crc
from pykbroker_wire.records.compression import DEFAULT_LIMIT, TooLarge, decompress
from pykbroker_wire.records.layout import HEADER_SIZE
from pykbroker_wire.records.record import InvalidRecord, Record, iter_encoded

#: A fetch asks for some hundred records, and gets at least the whole of one batch.
_MOST_ITEMS: Final = 1_000_000
_MOST_BYTES: Final = 512 * 1024 * 1024


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


@dataclass(slots=True)
class Allowance:
    """A bound for one answer, from which each batch takes its part."""

    #: records, and headers of records
    items: int = _MOST_ITEMS
    #: after decompression
    size_bytes: int = _MOST_BYTES

    def content(self, batches: memoryview, position: int, header: BatchHeader) -> Buffer:
        """Return the bytes of a batch's records without compression, and count them. Raises TooLarge, InvalidRecord,
        CompressionError."""
        payload = batches[position + HEADER_SIZE : position + header.size_in_bytes]
        if len(payload) != header.size_in_bytes - HEADER_SIZE:
            raise InvalidRecord("the buffer ends inside the batch")
        codec = header.attributes & 7
        content: Buffer = decompress(codec, payload, min(DEFAULT_LIMIT, self.size_bytes)) if codec else payload
        self.size_bytes -= len(content)
        return content

    def count(self, record: Record) -> None:
        """Count one record. Raises TooLarge."""
        self.items -= 1 + len(record.headers)
        if self.items < 0:
            raise TooLarge(f"the answer has more than {_MOST_ITEMS} records and headers")


def delivered_records(topic: str, answer: PartitionData, allowance: Allowance) -> list[DeliveredRecord]:
    """Return the acquired records of a partition. `allowance`: the bound of the whole answer, of which these records
    are taken. Raises AskFailed for bytes that are no records, and for more records than the bound allows."""
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
            content = allowance.content(data, position, header)
            append_time = header.max_timestamp if by_broker else None
            for record in iter_encoded(
                content, header.record_count, header.base_offset, header.base_timestamp, append_time
            ):
                allowance.count(record)
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
