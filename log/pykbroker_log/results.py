"""The results of an append and of a read."""

from __future__ import annotations

from pykbroker_log.producers import BatchMetadata
from pykbroker_log.slices import Slice
from pykbroker_log.txn_index import AbortedTxn


class AppendInfo:
    """The result of an append. `duplicate` means that nothing was appended; the offsets are those of the first
    append."""

    __slots__ = (
        "byte_count",
        "duplicate",
        "first_offset",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "max_timestamp",
        "record_count",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        log_append_time_ms: int,
        log_start_offset: int,
        byte_count: int,
        record_count: int,
        duplicate: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.byte_count = byte_count
        self.record_count = record_count
        self.duplicate = duplicate

    @classmethod
    def of_repetition(cls, of: BatchMetadata, log_start_offset: int, byte_count: int, record_count: int) -> AppendInfo:
        first, last, timestamp = of.first_offset, of.last_offset, of.timestamp
        return cls(first, last, timestamp, timestamp, log_start_offset, byte_count, record_count, True)

    def __repr__(self) -> str:
        return f"AppendInfo({self.first_offset}..{self.last_offset}, {self.byte_count} bytes)"


class ReadResult:
    """Whole batches. The next read begins at `next_offset`; `last_epoch` is the leader epoch of the last batch, -1 if
    unknown; `aborted` has the transactions whose records a read-committed reader leaves out."""

    __slots__ = ("aborted", "first_offset", "last_epoch", "next_offset", "size", "slices")

    def __init__(self, slices: list[Slice], size: int, first_offset: int, next_offset: int, last_epoch: int) -> None:
        self.slices = slices
        self.size = size
        self.first_offset = first_offset
        self.next_offset = next_offset
        self.last_epoch = last_epoch
        self.aborted: list[AbortedTxn] = []

    def joined(self) -> bytes:
        """Return the batches as bytes. The caller must not have asked for regions, which are only for sockets."""
        if len(self.slices) == 1 and isinstance(self.slices[0], bytes):
            return self.slices[0]
        assert not self.slices, "regions are for sockets"
        return b""
