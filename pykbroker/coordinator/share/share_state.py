"""The state of one share partition at the share coordinator, and its change by records; pure (KIP-932).

A snapshot holds everything. An update holds what one write changed, and is applied to the snapshot before it: it sets
the start offset and the leader epoch unless they are -1, and its batches are merged. An update holds no state epoch,
because a new state epoch begins with a snapshot.

Responsible for these values and for the step from one to the next. Not responsible for the epochs that fence a writer
(`KeptState`, which shard.py changes), nor for bytes (records.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pykbroker.coordinator.share.state_batches import NO_START, PersistedBatch, are_merged, merged

#: The leader epoch of an update that leaves it as it was.
NO_EPOCH: Final = -1
#: The number of delivered records above the start is unknown, so the group's lag is too.
UNKNOWN_COUNT: Final = -1


class ShareState(NamedTuple):
    """The persistent state of a share partition. Times are wall-clock milliseconds, 0 before the first snapshot.

    `create_ms` is the time of the last snapshot that a write caused, and `write_ms` that of the last snapshot at all:
    they differ after a snapshot of a partition without traffic."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[PersistedBatch, ...]
    create_ms: int
    write_ms: int


class StateUpdate(NamedTuple):
    """The content of a ShareUpdate record. `start_offset` and `leader_epoch` -1 change nothing."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[PersistedBatch, ...]


def initial_state(state_epoch: int, start_offset: int, snapshot_epoch: int, now_ms: int) -> ShareState:
    """Return the state of an InitializeShareGroupState. It replaces everything before it."""
    return ShareState(
        snapshot_epoch=snapshot_epoch,
        state_epoch=state_epoch,
        leader_epoch=0,
        start_offset=start_offset,
        # Before the group has a start offset there is no lag.
        delivery_complete_count=UNKNOWN_COUNT if start_offset == NO_START else 0,
        batches=(),
        create_ms=now_ms,
        write_ms=now_ms,
    )


def after_update(state: ShareState | None, update: StateUpdate) -> ShareState:
    """Return the state after an update. `state` is None if its snapshot is missing and only the update is known."""
    if state is None:
        return ShareState(
            snapshot_epoch=update.snapshot_epoch,
            state_epoch=0,
            leader_epoch=update.leader_epoch,
            start_offset=update.start_offset,
            delivery_complete_count=update.delivery_complete_count,
            batches=update.batches,
            create_ms=0,
            write_ms=0,
        )
    start = state.start_offset if update.start_offset == NO_START else update.start_offset
    return state._replace(
        start_offset=start,
        leader_epoch=state.leader_epoch if update.leader_epoch == NO_EPOCH else update.leader_epoch,
        delivery_complete_count=update.delivery_complete_count,
        batches=merged(state.batches, update.batches, start),
    )


def next_snapshot(state: ShareState, update: StateUpdate, now_ms: int) -> ShareState:
    """Return the snapshot that is written in place of an update."""
    return after_update(state, update)._replace(
        snapshot_epoch=state.snapshot_epoch + 1, create_ms=now_ms, write_ms=now_ms
    )


def cold_snapshot(state: ShareState, now_ms: int) -> ShareState:
    """Return the snapshot of a share partition that is not written to. It lets older records be deleted."""
    return state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_ms=now_ms)


def in_order(batches: Sequence[PersistedBatch]) -> tuple[PersistedBatch, ...]:
    """Return the batches of a record as a merged list. Another coordinator may have written them in another order."""
    return tuple(batches) if are_merged(batches) else merged((), batches, NO_START)


class KeptState:
    """The state of one share partition, and what decides about its next write. Only shard.py changes it."""

    __slots__ = ("leader_epoch", "snapshot_at", "state", "state_epoch", "updates")

    def __init__(self, state: ShareState) -> None:
        self.state = state
        #: the highest epochs of any record; a request with a lower one is fenced
        self.leader_epoch = state.leader_epoch
        self.state_epoch = state.state_epoch
        #: updates since the last snapshot that a write caused
        self.updates = 0
        #: the offset of the last snapshot; None if only updates are known
        self.snapshot_at: int | None = None
