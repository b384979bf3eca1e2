"""The log of one replica: appends, truncations, commits, and the voter sets that it contains.

Responsible for keeping `LogView`, `VoterHistory`, the high watermark and the requests to the disk in step. Not
responsible for when any of it happens.

Invariants: nothing below the high watermark is cut (R6), and the high watermark never moves back (R4).
"""

from __future__ import annotations

from pykbroker_raft import batches
from pykbroker_raft.log_view import LogView, OffsetAndEpoch
from pykbroker_raft.outbox import Outbox
from pykbroker_raft.ready import Append, SnapshotChunk, Truncate
from pykbroker_raft.voters import VoterHistory, VoterSet


class LeaderLostCommitted(Exception):
    """The leader lacks records that this replica knows to be committed. Following it would lose them; Kafka stops
    too."""


class ReplicaLog:
    """Every part reads `view` and `history`; only this class changes them."""

    def __init__(self, view: LogView, history: VoterHistory, outbox: Outbox) -> None:
        self.view = view
        self.history = history
        self.high_watermark: int | None = None
        #: the leader's high watermark; this log may not have all of it yet. None if no leader has sent one
        self.promised: int | None = None
        self._outbox = outbox

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_flushed(self) -> bool:
        return self.view.durable_offset == self.view.end_offset

    def append_own(self, records: bytes, count: int, epoch: int) -> None:
        """Append a leader's batch of `count` records."""
        base = self.view.end_offset
        self.view.appended(base, base + count, epoch)
        self._outbox.write(Append(base, base + count, records))
        self._outbox.flush()

    def append_control(self, records: list[batches.Control], epoch: int, now_ms: int) -> None:
        """Append a leader's control records. Voter sets and kraft.version are in force at once."""
        data = batches.control_batch(records, self.view.end_offset, epoch, now_ms)
        self.append_own(data, len(records), epoch)
        self._note_control(data)

    def append_fetched(self, data: bytes, epoch: int, *, must_flush: bool) -> None:
        """Append the batches that are whole, intact and of no later epoch than `epoch`, which is the replica's own. The
        rest is fetched again.

        With `must_flush`, they are fsynced before the next fetch acknowledges them.
        """
        view = self.view
        end = 0
        base = view.end_offset
        for batch in batches.intact(data):
            if batch.base_offset != view.end_offset or not view.last_epoch <= batch.epoch <= epoch:
                break
            view.appended(batch.base_offset, batch.next_offset, batch.epoch)
            end = batch.position + batch.size
        if end == 0:
            return
        data = data[:end]
        self._outbox.write(Append(base, view.end_offset, data))
        if must_flush:
            self._outbox.flush()
        else:
            # No leader counts a replica that can only be an observer, so it need not wait for the disk.
            view.durable_offset = view.end_offset
        self._note_control(data)

    def truncate(self, leader_end: OffsetAndEpoch) -> None:
        """Cut the log so that it agrees with a leader whose records of an epoch end at `leader_end`."""
        if self.high_watermark is not None and leader_end.offset < self.high_watermark:
            raise LeaderLostCommitted(
                f"the leader has lost committed records: in its log, epoch {leader_end.epoch} ends at offset "
                f"{leader_end.offset}, and the records before {self.high_watermark} are committed. This node no longer "
                "follows the leader, and leaves its own log as it is"
            )
        offset = self.view.truncation_point(leader_end)
        if self.high_watermark is not None and offset < self.high_watermark:
            raise AssertionError(f"truncation to {offset} would cut below the high watermark {self.high_watermark}")
        self.view.truncated(offset)
        self.history.truncate(offset)
        self._outbox.write(Truncate(offset))

    def flushed(self, offset: int) -> bool:
        """Record that everything below `offset` is durable. Return True if that is new."""
        offset = min(offset, self.view.end_offset)
        if offset <= self.view.durable_offset:
            return False
        self.view.durable_offset = offset
        return True

    def commit(self, offset: int) -> None:
        """Record that everything below `offset` is committed, unless that is known already."""
        if self.high_watermark is not None and offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self._outbox.committed(offset)

    def promise(self, offset: int) -> None:
        """Record the leader's high watermark; this log may have only a part of the records below it."""
        is_first, self.promised = self.promised is None, offset
        if is_first and self.high_watermark is not None:
            # A snapshot was committed before: notify the listeners again, because now it is known whether they are up
            # to date.
            self._outbox.committed(self.high_watermark)

    # Snapshots

    def write_chunk(self, chunk: SnapshotChunk) -> None:
        """Write a part of the snapshot that is to replace the log."""
        self._outbox.write(chunk)

    def restart_after(self, snapshot: OffsetAndEpoch, size: int, voters: VoterSet | None, kraft_version: int) -> None:
        """Record that a fetched snapshot is in place and the log starts after it."""
        self.view.restarted(snapshot, size)
        self.history.reset(snapshot.offset - 1, voters, kraft_version)
        self.commit(snapshot.offset)

    def snapshot_created(self, snapshot: OffsetAndEpoch, size: int) -> None:
        """Record that the local state machine has written a snapshot of its committed state."""
        if self.high_watermark is None or snapshot.offset > self.high_watermark:
            raise AssertionError(f"snapshot {snapshot} is above the high watermark {self.high_watermark}")
        self.view.snapshots[snapshot] = size

    def start_moved(self, offset: int) -> None:
        """Record that records below a snapshot, and the snapshots before it, were deleted."""
        self.view.started_at(offset)
        self.history.forget_before(offset)

    def _note_control(self, records: bytes) -> None:
        for offset, record in batches.control_records(records):
            if record.type is batches.ControlType.KRAFT_VOTERS:
                self.history.sets.add(offset, VoterSet.from_record(record.message))
            elif record.type is batches.ControlType.KRAFT_VERSION:
                self.history.versions.add(offset, record.message.kraft_version)
            elif record.type is batches.ControlType.LEADER_CHANGE:
                self.history.electors = batches.electors(record)
