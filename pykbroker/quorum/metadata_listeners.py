"""Passes committed records to the parts of the node: each listener gets a snapshot or the start of the log, then each
batch once, in order.

Responsible for the position of each listener and for counting the bytes since the last snapshot.

Invariants:

* listeners get nothing above the high watermark;
* a listener gets the leadership of its own node only after it has seen everything committed before, because it would
  decide on old state otherwise;
* listeners are called on the loop and never from within another listener's call;
* a listener that failed gets no record after the one that it missed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pykbroker_raft import batches
from pykbroker_raft.log_view import BOOTSTRAP_SNAPSHOT
from pykbroker_raft.metadata_storage import MetadataStorage
from pykbroker_raft.ready import LeaderChange

logger = logging.getLogger(__name__)

_READ_BYTES = 1024 * 1024
# The most batches that are kept decoded between append and commit. Others are read back from the log.
_KEPT_BATCHES = 4096


class MetadataListener(Protocol):
    """Called on the loop, in order. Offsets of snapshots are inclusive: the last offset that they contain."""

    def handle_commit(self, base_offset: int, epoch: int, timestamp_ms: int, values: list[bytes]) -> None: ...

    def handle_snapshot(self, offset: int, epoch: int, values: Iterator[bytes]) -> None: ...

    def handle_leader(self, leader_id: int | None, epoch: int) -> None: ...


@dataclass(slots=True)
class CommittedBatch:
    """A batch, decoded. A control batch has no values."""

    base_offset: int
    next_offset: int
    epoch: int
    timestamp_ms: int
    size: int
    values: list[bytes]


@dataclass(slots=True)
class _Registration:
    listener: MetadataListener
    # None before the first call.
    next_offset: int | None = None
    told_leader: tuple[int | None, int] | None = None
    # True after a call has raised: the listener's state lacks a committed record.
    has_failed: bool = False


class ListenerFailed(Exception):
    """A listener has raised, which is a bug or a record that this release does not know. The replica cannot go on,
    because as leader it would decide without committed records, and its snapshots would lack them."""


class MetadataListeners:
    """All listeners of one node."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._storage: MetadataStorage | None = None
        self._registrations: list[_Registration] = []
        self._recent: deque[CommittedBatch] = deque()
        self._high_watermark: int | None = None
        self._has_all = False
        self._leader: LeaderChange | None = None
        self._telling = False
        self._again = False
        self._once_told: list[Callable[[], None]] = []
        self._counted_offset = 0
        self.bytes_since_snapshot = 0

    def open(self, storage: MetadataStorage) -> None:
        self._storage = storage
        latest = storage.latest_snapshot
        self._counted_offset = storage.log.log_start_offset if latest is None else latest.offset

    def register(self, listener: MetadataListener, up_to_date: Callable[[], None] | None = None) -> None:
        """Add a listener. `up_to_date` is called once, as soon as a leader has reported the committed offset and all
        listeners have got the records before it. Before that call listeners may have only a part: a replica that lacks
        many records, or begins with a snapshot, passes them on in steps."""
        self._registrations.append(_Registration(listener))
        if up_to_date is not None:
            self._once_told.append(up_to_date)

    def unregister(self, listener: MetadataListener) -> None:
        self._registrations = [known for known in self._registrations if known.listener is not listener]

    def appended(self, records: bytes, values: list[bytes] | None = None) -> None:
        """Note batches at the end of the log. `values` spares decoding the batch that this node has just encoded."""
        for batch in batches.intact(records):
            found = batches.values(records, batch) if values is None else values
            self._recent.append(
                CommittedBatch(batch.base_offset, batch.next_offset, batch.epoch, batch.timestamp_ms, batch.size, found)
            )
        while len(self._recent) > _KEPT_BATCHES:
            self._recent.popleft()

    def truncated(self, offset: int) -> None:
        while self._recent and self._recent[-1].next_offset > offset:
            self._recent.pop()

    def log_restarted(self) -> None:
        self._recent.clear()

    def snapshot_taken(self, next_offset: int) -> None:
        self.bytes_since_snapshot = 0
        self._counted_offset = max(self._counted_offset, next_offset)

    def advance(self, high_watermark: int, promised: int | None) -> None:
        """Take a new high watermark. `promised` is the offset that the leader reports as committed. This replica has
        the records below `high_watermark`."""
        self._high_watermark = high_watermark
        self._has_all = promised is not None and high_watermark >= promised

    def leader_changed(self, change: LeaderChange) -> None:
        self._leader = change

    def tell(self) -> None:
        """Bring all listeners up to date. Raises ListenerFailed."""
        if self._telling:
            # This call comes from within a listener's call, so the outer call repeats its loop.
            self._again = True
            return
        self._telling = True
        try:
            self._again = True
            while self._again:
                self._again = False
                for registration in list(self._registrations):
                    self._tell_commits(registration)
                    self._tell_leader(registration)
            if self._once_told and self._has_all:
                callbacks, self._once_told = self._once_told, []
                for callback in callbacks:
                    callback()
        finally:
            self._telling = False
        self._count()

    def _tell_commits(self, registration: _Registration) -> None:
        storage, high_watermark = self._storage, self._high_watermark
        if storage is None or high_watermark is None:
            return
        latest = storage.latest_snapshot
        position = registration.next_offset
        if registration.has_failed:
            return
        if position is None or position < storage.log.log_start_offset:
            if latest is not None and latest != BOOTSTRAP_SNAPSHOT and latest.offset <= high_watermark:
                snapshot = storage.load_snapshot(latest)
                values = (value for batch in snapshot.values for value in batch)
                position = registration.next_offset = latest.offset
                self._call(registration, "handle_snapshot", latest.offset - 1, latest.epoch, values)
            else:
                position = registration.next_offset = storage.log.log_start_offset
        while position < high_watermark:
            for batch in self._committed(position, high_watermark):
                position = registration.next_offset = batch.next_offset
                if batch.values:
                    self._call(
                        registration, "handle_commit", batch.base_offset, batch.epoch, batch.timestamp_ms, batch.values
                    )

    def _committed(self, start: int, end: int) -> list[CommittedBatch]:
        """Return some batches from `start`, all below `end`, from memory if they are there, otherwise from the log."""
        if self._recent and self._recent[0].base_offset <= start:
            found = [batch for batch in self._recent if start < batch.next_offset <= end]
            if found:
                return [_from(found[0], start), *found[1:]]
        assert self._storage is not None
        data = self._storage.read(start, _READ_BYTES, end)
        found = [
            CommittedBatch(
                batch.base_offset,
                batch.next_offset,
                batch.epoch,
                batch.timestamp_ms,
                batch.size,
                batches.values(data, batch),
            )
            for batch in batches.intact(data)
            if batch.next_offset > start
        ]
        if not found:
            raise AssertionError(f"committed batches from {start} to {end} are not in the log")
        return [_from(found[0], start), *found[1:]]

    def _tell_leader(self, registration: _Registration) -> None:
        change = self._leader
        if change is None:
            return
        leader_id = change.leader_id
        if leader_id == self._node_id and (registration.next_offset or 0) <= change.start_offset:
            # This node leads, but the listener has not seen all earlier records. Until it has, it gets no leader.
            leader_id = None
        told = (leader_id, change.epoch)
        if registration.told_leader != told:
            registration.told_leader = told
            self._call(registration, "handle_leader", leader_id, change.epoch)

    def _call(self, registration: _Registration, method: str, *args: object) -> None:
        try:
            getattr(registration.listener, method)(*args)
        except Exception as error:
            registration.has_failed = True
            what = f"The metadata listener {registration.listener!r} failed in {method}{args[:2]}: {error!r}"
            raise ListenerFailed(what) from error

    def _count(self) -> None:
        """Add up the bytes that were committed since the last snapshot, and drop the batches that all listeners have
        seen."""
        high_watermark = self._high_watermark
        if high_watermark is None or self._storage is None:
            return
        # A snapshot from the leader may have skipped records that were never counted.
        self._counted_offset = max(self._counted_offset, self._storage.log.log_start_offset)
        while self._counted_offset < high_watermark:
            for batch in self._committed(self._counted_offset, high_watermark):
                self.bytes_since_snapshot += batch.size
                self._counted_offset = batch.next_offset
        while self._recent and self._recent[0].next_offset <= high_watermark:
            self._recent.popleft()


def _from(batch: CommittedBatch, start: int) -> CommittedBatch:
    """Return the batch without its records before `start`, which a snapshot contains."""
    if batch.base_offset >= start:
        return batch
    rest = batch.values[start - batch.base_offset :]
    return CommittedBatch(start, batch.next_offset, batch.epoch, batch.timestamp_ms, batch.size, rest)
