"""The delivery states of ranges of offsets, as a share partition's leader writes them, and their merge; pure.

Where two batches overlap, the one with the higher (delivery count, delivery state) holds (Kafka's
PersisterStateBatchCombiner). The reason is that a delivery raises the count, and that within one delivery the state
only goes on to a final one.

Responsible for lists of batches in which each offset has one state. Not responsible for the meaning of the states
(share_partitions/), nor for when batches are written.

Invariants of a merged list: it is sorted, no two batches overlap, and no batch is below the start. Neighbours of a
merge that touch and are equal are one batch. A merge looks only at the batches that the new ones touch, because up to
10,000 of them lie behind one unacknowledged record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

#: The start offset of a share partition that has none yet.
NO_START: Final = -1


class PersistedBatch(NamedTuple):
    """The offsets from `first` to `last`, both included. `delivery_state` is 0 for AVAILABLE, 2 for ACKNOWLEDGED, 4 for
    ARCHIVED, and 3 for ARCHIVING (KIP-1191)."""

    first: int
    last: int
    delivery_state: int
    delivery_count: int


def merged(
    so_far: Iterable[PersistedBatch], new: Iterable[PersistedBatch], start_offset: int
) -> tuple[PersistedBatch, ...]:
    """Return both as one list, without the offsets below `start_offset`. `so_far` is merged already. `new` may be in
    any order and overlap, and a batch that ends before it begins counts for nothing. `start_offset` NO_START cuts
    nothing."""
    found = list(so_far)
    if start_offset != NO_START:
        _cut_below(found, start_offset)
    for batch in new:
        if start_offset != NO_START and batch.first < start_offset:
            batch = batch._replace(first=start_offset)  # the part that counts
        if batch.first <= batch.last:
            _put(found, batch)
    return tuple(found)


def are_merged(batches: Iterable[PersistedBatch]) -> bool:
    """Return True if the batches are sorted and each offset is in one of them at most."""
    end = None
    for batch in batches:
        if batch.last < batch.first or (end is not None and batch.first <= end):
            return False
        end = batch.last
    return True


def _cut_below(batches: list[PersistedBatch], start_offset: int) -> None:
    at = bisect_left(batches, start_offset, key=_last)
    del batches[:at]
    if batches and batches[0].first < start_offset:
        batches[0] = batches[0]._replace(first=start_offset)


def _put(batches: list[PersistedBatch], new: PersistedBatch) -> None:
    """Merge one batch into a merged list. Only the batches that it overlaps or touches are replaced."""
    low = bisect_left(batches, new.first - 1, key=_last)
    high = low
    between: list[PersistedBatch] = []
    at = new.first
    while high < len(batches) and batches[high].first <= new.last + 1:
        old = batches[high]
        high += 1
        if old.first < new.first:
            _join(between, old._replace(last=min(old.last, new.first - 1)))
        first, last = max(old.first, new.first), min(old.last, new.last)
        if first <= last:
            if at < first:
                _join(between, new._replace(first=at, last=first - 1))
            _join(between, (old if _holds(old, new) else new)._replace(first=first, last=last))
            at = last + 1
        if old.last > new.last:
            if at <= new.last:
                _join(between, new._replace(first=at))
                at = new.last + 1
            _join(between, old._replace(first=max(old.first, new.last + 1)))
    if at <= new.last:
        _join(between, new._replace(first=at))
    batches[low:high] = between


def _join(batches: list[PersistedBatch], batch: PersistedBatch) -> None:
    if batches and batches[-1].last + 1 == batch.first and batches[-1][2:] == batch[2:]:
        batches[-1] = batches[-1]._replace(last=batch.last)
    else:
        batches.append(batch)


def _holds(old: PersistedBatch, new: PersistedBatch) -> bool:
    return (old.delivery_count, old.delivery_state) >= (new.delivery_count, new.delivery_state)


def _last(batch: PersistedBatch) -> int:
    return batch.last
