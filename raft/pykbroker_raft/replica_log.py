"""The log of one replica: what is appended, cut and committed, and the voter sets that stand in it.

Responsible for keeping `LogView`, `VoterHistory`, the high watermark and what the disk is asked for in step. Not
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
    """A leader lacks what this replica knows to be committed: following it would lose that. Apache Kafka stops too."""


class ReplicaLog:
    """`view` and `history` are read by every part and changed here alone."""

    def __init__(self, view: LogView, history: VoterHistory, outbox: Outbox) -> None:
        self.view = view
        self.history = history
        self.high_watermark: int | None = None
        #: what the leader calls committed; this log may not have all of it yet. None: no leader has said
        self.promised: int | None = None
        self._outbox = outbox

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_flushed(self) -> bool:
        return self.view.durable_offset == self.view.end_offset

    def append_own(self, records: bytes, count: int, epoch: int) -> None:
        """A leader's batch of `count` records."""
        base = self.view.end_offset
        self.view.appended(base, base + count, epoch)
        self._outbox.write(Append(base, base + count, records))
        self._outbox.flush()

    def append_control(self, records: list[batches.Control], epoch: int, now_ms: int) -> None:
        """A leader's control records. Voter sets and kraft.version count from now on."""
        data = batches.control_batch(records, self.view.end_offset, epoch, now_ms)
        self.append_own(data, len(records), epoch)
        self._note_control(data)

    def append_fetched(self, data: bytes, epoch: int, *, must_flush: bool) -> None:
        """Take what is whole, intact and not from the future; the rest comes again. `epoch` is the replica's.

        `must_flush`: it is fsynced before the next fetch claims it.
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
            # No leader counts an observer that stays one: it need not wait for the disk.
            view.durable_offset = view.end_offset
        self._note_control(data)

    def truncate(self, leader_end: OffsetAndEpoch) -> None:
        """Cut the log so that it agrees with a leader whose records of an epoch end at `leader_end`."""
        if self.high_watermark is not None and leader_end.offset < self.high_watermark:
            raise LeaderLostCommitted(
                f"the leader's log ends its epoch {leader_end.epoch} at {leader_end.offset}, below what is committed: "
                f"{self.high_watermark}. This node follows no further, its log stays as it is"
            )
        offset = self.view.truncation_point(leader_end)
        if self.high_watermark is not None and offset < self.high_watermark:
            raise AssertionError(f"truncation to {offset} would cut below the high watermark {self.high_watermark}")
        self.view.truncated(offset)
        self.history.truncate(offset)
        self._outbox.write(Truncate(offset))

    def flushed(self, offset: int) -> bool:
        """Everything below `offset` is on the disk for good; whether that is news."""
        offset = min(offset, self.view.end_offset)
        if offset <= self.view.durable_offset:
            return False
        self.view.durable_offset = offset
        return True

    def commit(self, offset: int) -> None:
        """Everything below `offset` is committed, if it was not before."""
        if self.high_watermark is not None and offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self._outbox.committed(offset)

    def promise(self, offset: int) -> None:
        """The leader says that everything below `offset` is committed, of which this log may have a part."""
        is_first, self.promised = self.promised is None, offset
        if is_first and self.high_watermark is not None:
            # A snapshot was there before: the listeners hear that it is all, or that it is not.
            self._outbox.committed(self.high_watermark)

    # Snapshots

    def write_chunk(self, chunk: SnapshotChunk) -> None:
        """A piece of the snapshot that is to take the log's place."""
        self._outbox.write(chunk)

    def restart_after(self, snapshot: OffsetAndEpoch, size: int, voters: VoterSet | None, kraft_version: int) -> None:
        """A fetched snapshot is in place and the log starts after it."""
        self.view.restarted(snapshot, size)
        self.history.reset(snapshot.offset - 1, voters, kraft_version)
        self.commit(snapshot.offset)

    def snapshot_created(self, snapshot: OffsetAndEpoch, size: int) -> None:
        """The local state machine wrote a snapshot of what is committed."""
        if self.high_watermark is None or snapshot.offset > self.high_watermark:
            raise AssertionError(f"snapshot {snapshot} is above the high watermark {self.high_watermark}")
        self.view.snapshots[snapshot] = size

    def start_moved(self, offset: int) -> None:
        """Records below a snapshot were deleted, and the snapshots before it."""
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
