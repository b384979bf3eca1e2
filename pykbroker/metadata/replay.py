"""Turns the records of the metadata log into images. Only this module handles metadata transactions (KIP-868).

The records between BeginTransaction and EndTransaction count as a whole or, after AbortTransaction, not at all. They
may span several batches. Responsible for where a whole change ends. Not responsible for the meaning of a record
(delta.py), nor for notifying publishers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import MetadataImage
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

#: called with (delta so far, record, its offset) when the record is in the delta
Visit = Callable[[MetadataDelta, TopLevel, int], None]


class Change(NamedTuple):
    """A whole change: no transaction is open at its end. `image` is the former image with `delta` applied."""

    delta: MetadataDelta
    image: MetadataImage


class MetadataReplay:
    """Replays batches. It keeps the transaction that is open between two batches."""

    def __init__(self) -> None:
        #: the offset of a BeginTransaction without an end, otherwise -1
        self.begun_at = -1
        #: the number of aborted transactions
        self.aborted = 0
        self._open: MetadataDelta | None = None

    @property
    def unfinished(self) -> MetadataDelta | None:
        """The changes of an open transaction so far."""
        return self._open

    def restart(self) -> None:
        """Drop an open transaction, because the next batch follows another image."""
        self.begun_at = -1
        self._open = None

    def batch(
        self,
        image: MetadataImage,
        records: Iterable[TopLevel],
        base_offset: int,
        epoch: int,
        timestamp_ms: int = -1,
        visit: Visit | None = None,
    ) -> Iterator[Change]:
        """Yield the whole changes in a batch of consecutive records. `image` has everything before the batch, but not
        the changes of an open transaction."""
        delta = self._open or MetadataDelta(image)
        offset = base_offset - 1
        for offset, record in enumerate(records, base_offset):
            if isinstance(record, BeginTransactionRecord):
                if not delta.empty:
                    image = delta.apply(offset - 1, epoch, timestamp_ms)
                    yield Change(delta, image)
                delta = self._open = MetadataDelta(image)
                self.begun_at = offset
            elif isinstance(record, EndTransactionRecord):
                self.restart()
            elif isinstance(record, AbortTransactionRecord):
                self.restart()
                self.aborted += 1
                delta = MetadataDelta(image)
            else:
                delta.replay(record)
                if visit is not None:
                    visit(delta, record, offset)
        if self._open is None:
            yield Change(delta, delta.apply(offset, epoch, timestamp_ms))
