"""The state machine's view of the log: its ends, the start offsets of epochs, the snapshots. No records, no files.

Responsible for KRaft's questions about a log: whether (offset, epoch) is in it, where another log diverges from it, and
what a fetching replica must do. Invariants: start <= every end; epoch starts ascend in both numbers; nothing is cut
below the high watermark (`ReplicaLog` checks it before it truncates).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import total_ordering


@total_ordering
@dataclass(frozen=True, slots=True)
class OffsetAndEpoch:
    """A position in a log: the offset after the last record, and that record's epoch. Ordered by epoch first, as Raft
    compares logs."""

    offset: int
    epoch: int

    def __lt__(self, other: OffsetAndEpoch) -> bool:
        return (self.epoch, self.offset) < (other.epoch, other.offset)

    def __str__(self) -> str:
        return f"{self.offset}-{self.epoch}"


# The snapshot with the voter set of a new quorum; it is never replicated.
BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)


class FetchVerdict(Enum):
    """A leader's verdict on the (offset, epoch) of a replica."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


@dataclass(slots=True)
class LogView:
    """Ends, epochs and snapshots of the local log."""

    start_offset: int = 0
    end_offset: int = 0
    # Everything below this offset is fsynced.
    durable_offset: int = 0
    # (epoch, offset of its first record), ascending.
    epochs: list[tuple[int, int]] = field(default_factory=list)
    # Snapshot -> size in bytes.
    snapshots: dict[OffsetAndEpoch, int] = field(default_factory=dict)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return max(self.snapshots, default=None)

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return min(self.snapshots, default=None)

    @property
    def last_epoch(self) -> int:
        if self.epochs:
            return self.epochs[-1][0]
        snapshot = self.latest_snapshot
        if snapshot is None:
            return 0
        if not (snapshot.offset == self.start_offset == self.end_offset):
            raise AssertionError(f"log {self.start_offset}..{self.end_offset} has no epoch, snapshot is {snapshot}")
        return snapshot.epoch

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at `offset`, or of the snapshot that replaced it."""
        for epoch, start in reversed(self.epochs):
            if start <= offset:
                return epoch
        earlier = [snapshot for snapshot in self.snapshots if snapshot.offset > offset]
        return min(earlier).epoch if earlier else 0

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the end offset of records with epochs up to `epoch`, and the largest such epoch."""
        if not self.epochs or epoch > self.epochs[-1][0]:
            return self.end
        if epoch == self.epochs[-1][0]:
            found = OffsetAndEpoch(self.end_offset, epoch)
        else:
            floor = epoch
            for known, start in self.epochs:
                if known > epoch:
                    found = OffsetAndEpoch(start, floor)
                    break
                floor = known
        earliest = self.earliest_snapshot
        if earliest is not None and found.offset == earliest.offset and found.epoch == epoch:
            # The epoch is older than the oldest one on the log, so the snapshot at the log's start decides.
            return earliest
        return found

    def validate(self, offset: int, epoch: int) -> tuple[FetchVerdict, OffsetAndEpoch]:
        """Check if a replica whose last record before `offset` has `epoch` may continue from there."""
        if self.start_offset == 0 and offset == 0:
            return FetchVerdict.VALID, OffsetAndEpoch(0, 0)
        earliest = self.earliest_snapshot
        if earliest is not None and (
            offset < self.start_offset
            or (offset == self.start_offset and epoch != earliest.epoch)
            or epoch < earliest.epoch
        ):
            latest = self.latest_snapshot
            assert latest is not None
            return FetchVerdict.SNAPSHOT, latest
        end = self.end_offset_for_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return FetchVerdict.DIVERGING, end
        return FetchVerdict.VALID, OffsetAndEpoch(offset, epoch)

    def truncation_point(self, leader_end: OffsetAndEpoch) -> int:
        """Return where to cut so that the rest agrees with a leader whose records of an epoch end at `leader_end`."""
        if leader_end.epoch == 0:
            return min(leader_end.offset, self.end_offset)
        own = self.end_offset_for_epoch(leader_end.epoch)
        return min(own.offset, leader_end.offset) if own.epoch == leader_end.epoch else own.offset

    def appended(self, base_offset: int, next_offset: int, epoch: int) -> None:
        if base_offset != self.end_offset or next_offset <= base_offset:
            raise AssertionError(f"batch {base_offset}..{next_offset} does not continue the log at {self.end_offset}")
        if not self.epochs or epoch > self.epochs[-1][0]:
            self.epochs.append((epoch, base_offset))
        elif epoch < self.epochs[-1][0]:
            raise AssertionError(f"batch at {base_offset} has epoch {epoch}, the log is at {self.epochs[-1][0]}")
        self.end_offset = next_offset

    def truncated(self, offset: int) -> None:
        self.end_offset = min(self.end_offset, offset)
        self.durable_offset = min(self.durable_offset, offset)
        while self.epochs and self.epochs[-1][1] >= offset:
            self.epochs.pop()

    def restarted(self, snapshot: OffsetAndEpoch, size: int) -> None:
        """Record that the log was emptied and starts after a snapshot."""
        self.start_offset = self.end_offset = self.durable_offset = snapshot.offset
        self.epochs.clear()
        self.snapshots = {known: n for known, n in self.snapshots.items() if known >= snapshot}
        self.snapshots[snapshot] = size

    def started_at(self, offset: int) -> None:
        """Record that records and snapshots below `offset` were deleted."""
        if offset > self.end_offset:
            raise AssertionError(f"log start {offset} above its end {self.end_offset}")
        self.start_offset = max(self.start_offset, offset)
        while len(self.epochs) > 1 and self.epochs[1][1] <= offset:
            del self.epochs[0]
        if self.epochs and self.epochs[0][1] < offset:
            self.epochs[0] = (self.epochs[0][0], offset)
        if self.start_offset == self.end_offset:
            self.epochs.clear()
        self.snapshots = {known: n for known, n in self.snapshots.items() if known.offset >= offset}
