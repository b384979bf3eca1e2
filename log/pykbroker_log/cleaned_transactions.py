"""Transactions during compaction: which records go because they were aborted, and which markers no reader needs.

Responsible for that decision while batches pass in the order of their offsets. Not responsible for when a marker that
no reader needs may go (its delete horizon), nor for what is written.

Invariants:
* Batches of an aborted transaction lie between its first offset and its marker. An index entry does not apply beyond
  its marker.
* A marker is needed as long as a batch of its transaction was found before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykbroker_log.producers import marker_of
from pykbroker_log.txn_index import AbortedTxn
from pykbroker_wire.records.batch import BatchHeader
from pykbroker_wire.records.control import ControlType


@dataclass(slots=True)
class _Ongoing:
    aborted: AbortedTxn
    met: bool = False
    """True if a batch of the transaction is still in the log."""


class CleanedTransactions:
    __slots__ = ("_aborted", "_committed", "_ongoing", "_position", "kept")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._aborted = sorted(aborted, key=lambda txn: txn.first_offset)
        self._position = 0
        self._ongoing: dict[int, _Ongoing] = {}
        # Producers that, since their last marker, have a batch of a transaction that was not aborted.
        self._committed: set[int] = set()
        #: aborted transactions whose marker was read and is still needed: the caller writes them to `.txnindex` and
        #: clears the list
        self.kept: list[AbortedTxn] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return True if all records of a data batch may go."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        ongoing = self._ongoing.get(header.producer_id)
        if ongoing is not None and ongoing.aborted.last_offset < header.base_offset:
            # The marker must have been before this batch, even if it is gone now: this is another transaction.
            del self._ongoing[header.producer_id]
            ongoing = None
        if ongoing is None:
            self._committed.add(header.producer_id)
            return False
        ongoing.met = True
        return True

    def is_unneeded(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return True if no record is left to which the control batch applies."""
        self._begin_up_to(header.last_offset)
        if header.record_count == 0:
            # An earlier cleaning has emptied this batch and kept it for its producer only.
            return True
        marker = marker_of(header, batch)
        if marker is None:
            return False
        if marker.type is ControlType.COMMIT:
            is_needed = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not is_needed
        ongoing = self._ongoing.pop(header.producer_id, None)
        if ongoing is None or not ongoing.met:
            return True
        self.kept.append(ongoing.aborted)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._position < len(self._aborted) and self._aborted[self._position].first_offset <= offset:
            aborted = self._aborted[self._position]
            self._position += 1
            self._ongoing.setdefault(aborted.producer_id, _Ongoing(aborted))
