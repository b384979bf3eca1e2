"""From the records of the metadata log to images: the one place that knows what a metadata transaction is (KIP-868).

What stands between BeginTransaction and EndTransaction counts as a whole or, after AbortTransaction, not at all; it may
span several batches. Responsible for where a whole change ends. Not responsible for what a record means (delta.py), nor
for telling anything of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import MetadataImage
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

#: `(delta so far, record, its offset)`, when the record is in the delta
Visit = Callable[[MetadataDelta, TopLevel, int], None]


class Change(NamedTuple):
    """Whole: no transaction is open behind it. `image` is the one before with `delta` applied."""

    delta: MetadataDelta
    image: MetadataImage


class MetadataReplay:
    """Keeps the transaction that is open between two batches."""

    def __init__(self) -> None:
        #: the offset of the BeginTransaction that has no end yet, else -1
        self.begun_at = -1
        #: how many transactions counted for nothing
        self.aborted = 0
        self._open: MetadataDelta | None = None

    @property
    def unfinished(self) -> MetadataDelta | None:
        """What an open transaction has changed so far."""
        return self._open

    def restart(self) -> None:
        """From another image: a transaction that was open is forgotten."""
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
        """The whole changes in a batch of consecutive records; `image` holds everything before it, without what an open
        transaction has changed."""
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
