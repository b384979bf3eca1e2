"""The results of one shard that are collected for the next batch, as offset commits are; pure.

Responsible for the size of the batch. Not responsible for when it is written (machine.py).
"""

from __future__ import annotations

from pykbroker.coordinator.result import Result

#: A collected batch is written when it has this many bytes. Results that need not be whole are cut into such batches.
BATCH_BYTES = 256 * 1024

#: Keys and values of records.
Encoded = list[tuple[bytes, bytes | None]]


def encoded_bytes(records: Encoded) -> int:
    """Return the number of bytes of all keys and values."""
    return sum(len(key) + len(value or b"") for key, value in records)


class CollectedBatch:
    """The collected results, in the order in which they came, with their records."""

    __slots__ = ("_bytes", "_records", "_results", "began_s")

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._records: Encoded = []
        self._bytes = 0
        #: the caller's clock when the first of the results came
        self.began_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._results)

    def has_room_for(self, byte_count: int) -> bool:
        """Return True if `byte_count` more bytes do not make the batch larger than BATCH_BYTES. An empty batch takes
        any number."""
        return not self._results or self._bytes + byte_count <= BATCH_BYTES

    def add(self, result: Result, records: Encoded, byte_count: int) -> None:
        """Add a result. `byte_count` is the size of its records (`encoded_bytes`)."""
        self._results.append(result)
        self._records += records
        self._bytes += byte_count

    def take(self) -> tuple[list[Result], Encoded]:
        """Return the results and their records, and begin an empty batch."""
        taken = self._results, self._records
        self._results, self._records, self._bytes = [], [], 0
        return taken
