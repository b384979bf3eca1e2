"""Checks, before the log is opened, that the metadata partition still has all its records.

Committed metadata is never cut off. The torn end of a write may be cut off. Records that have whole batches after them,
or that are below the offset in the note (flushed_note.py) or in a snapshot's name, must not be lost. If they are, the
start ends with `LostMetadata`. There are three exceptions: a snapshot holds the same records, the replica is only an
observer, or its operator gives the records up.

Responsible for that decision and its messages. Not responsible for scanning (log/), nor for opening
(metadata_storage.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from pykbroker_log import names
from pykbroker_log.cut_guard import CutGuard, DamagedLog
from pykbroker_log.disk import Disk, read_file
from pykbroker_raft import checkpoint
from pykbroker_raft.election_state import FILE as QUORUM_STATE
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.flushed_note import FILE, NotedFlush
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.voters import VoterHistory
from pykbroker_wire.records.batch import BatchHeader

logger = logging.getLogger(__name__)

CUT_AT_KEY = "pykbroker.metadata.log.cut.at"


class LostMetadata(ValueError):
    """Metadata that was durable is damaged or missing. The message is for the operator."""


class DisagreeingVoters(ValueError):
    """The configured voters cannot be those of the quorum to which the log belongs."""


class MissingSnapshot(ValueError):
    """The beginning of the log is gone, and no snapshot replaces it."""


@dataclass(slots=True)
class FoundSnapshots:
    """The snapshots of a folder: the newest whole one, and the damaged ones that are newer."""

    whole: OffsetAndEpoch | None = None
    damaged: dict[OffsetAndEpoch, str] = field(default_factory=dict)

    def set_damaged_aside(self, disk: Disk, path: str, now_ms: int) -> None:
        """Rename the damaged snapshots. Their records are in the log, or in an older snapshot and the log."""
        for snapshot, why in self.damaged.items():
            file = f"{path}/{checkpoint.file_name(snapshot)}"
            aside = f"{file}.corrupt-{now_ms}"
            disk.rename(file, aside)
            logger.warning(
                "The snapshot %s is damaged (%s): it is now %s, and the metadata is read from %s",
                file,
                why,
                aside,
                "the log" if self.whole is None else f"the snapshot {self.whole} and the log",
            )


def find_snapshots(disk: Disk, path: str) -> FoundSnapshots:
    """Check the newest snapshot, and older ones as long as they are damaged. Raises OSError."""
    parsed = [name.id for name in map(checkpoint.parse_name, disk.list(path)) if name and not name.suffix]
    found = FoundSnapshots()
    for snapshot in sorted(parsed, reverse=True):
        try:
            data = read_file(disk, f"{path}/{checkpoint.file_name(snapshot)}")
            checkpoint.decode(data, with_values=False)
        except checkpoint.CorruptMetadataSnapshot as error:
            found.damaged[snapshot] = str(error)
        else:
            found.whole = snapshot
            break
    return found


def guard_of(
    disk: Disk, path: str, note: NotedFlush, found: FoundSnapshots, cut_at: int | None, *, is_observer: bool
) -> CutGuard:
    """Return the requirements for the log that is opened next. Raises OSError, MissingSnapshot, CorruptQuorumState, and
    CorruptMetadataSnapshot if nothing replaces a damaged snapshot."""
    covered = found.whole.offset if found.whole is not None else 0
    bases = names.log_segments(disk.list(path))
    start = min(bases, default=covered)
    damaged = ", ".join(f"{checkpoint.file_name(snapshot)} ({why})" for snapshot, why in found.damaged.items())
    if start > covered:
        raise MissingSnapshot(
            f"{path}: the log starts at offset {start}, and no snapshot has the records before it"
            + (f". Damaged snapshots: {damaged}" if damaged else "")
            + f". {_WAYS_OUT}"
        )
    if found.damaged and found.whole is None and not any(_size_of(disk, path, base) for base in bases):
        raise checkpoint.CorruptMetadataSnapshot(
            f"{path}: the log is empty, and no snapshot is whole. Damaged snapshots: {damaged}. {_WAYS_OUT}"
        )
    promised = max([note.offset, *(snapshot.offset for snapshot in found.damaged)])
    return CutGuard(
        flushed=promised,
        is_exact=note.is_known,
        covered=covered,
        given_up_from=cut_at,
        is_replaceable=is_observer,
        judge=_EpochJudge(_highest_epoch(disk, path)),
    )


def _size_of(disk: Disk, path: str, base: int) -> int:
    return dict(disk.scan(path)).get(names.segment_file(base, names.LOG), 0)


def _highest_epoch(disk: Disk, path: str) -> int | None:
    """Return the epoch in quorum-state, which is durable before any record of it is written; None without
    quorum-state."""
    state = f"{path}/{QUORUM_STATE}"
    return ElectionState.from_bytes(read_file(disk, state)).epoch if disk.exists(state) else None


def check_vote(stored: ElectionState | None, log_end_offset: int, *, has_other_voters: bool) -> None:
    """Refuse a voter without its quorum-state: it could vote twice in an epoch. Raises LostMetadata."""
    if stored is None and log_end_offset > 0 and has_other_voters:
        raise LostMetadata(
            f"{QUORUM_STATE} is missing although the log has records, so this node does not know how it voted. "
            f"{_WAYS_OUT}"
        )


def check_voters(history: VoterHistory, stored: ElectionState | None) -> None:
    """Check the configured voters against those of the newest leader. They may differ by one, because then any two
    majorities share a voter. With more differences this node could lead a quorum of its own, and replace what the
    others committed. (Apache Kafka starts.) Raises DisagreeingVoters."""
    known = history.electors or (stored.voters if stored is not None else ())
    configured = set(history.voters.ids())
    if history.kraft_version > 0 or not known or len(configured.symmetric_difference(known)) <= 1:
        return
    raise DisagreeingVoters(
        f"controller.quorum.voters names {sorted(configured)}, and the newest leader in the metadata log was elected "
        f"by {sorted(known)}. Name the same voters on all nodes. Change one voter at a time, and let all nodes run "
        "before the next change"
    )


class _EpochJudge:
    """Checks that epochs never decrease. A batch's checksum does not cover its epoch."""

    def __init__(self, highest: int | None) -> None:
        self._highest = highest
        self._latest = 0

    def __call__(self, header: BatchHeader, batch: memoryview) -> str:
        epoch = header.partition_leader_epoch
        if epoch < self._latest:
            return f"its epoch {epoch} is older than {self._latest}, the epoch of the batch before"
        if self._highest is not None and epoch > self._highest:
            return f"its epoch {epoch} is newer than {self._highest}, the epoch in {QUORUM_STATE}"
        self._latest = epoch
        return ""


_WAYS_OUT = (
    "Restore the files from a backup. Or, if other voters of the quorum are up and have the records, move this folder "
    "away and start: the node then fetches everything from their leader"
)


def explain(damage: DamagedLog) -> str:
    first, last = damage.lost_from, damage.last_known
    records = f"The records from offset {first}"
    if last < first:
        records += " on may have been committed"
    else:
        records += f" to {last} were durable"
    return (
        f"{damage.where}. {records} and would be lost, so nothing is cut off. "
        f"`pykbroker dump-log` shows what is there. {_WAYS_OUT}. Or set {CUT_AT_KEY}={first}: "
        "the node then starts without these records. What they created or changed (topics, configurations, features) "
        "is lost, and the folders of such topics are renamed with the suffix `-stray`"
    )


def warnings(path: str, note: NotedFlush, guard: CutGuard) -> Iterator[str]:
    """Yield the warnings for an operator about a log that could be opened."""
    if note.exists and not note.is_known and not note.is_outdated:
        yield f"{path}/{FILE} is damaged, so it cannot show if the log has lost records at its end. It is written again"
    if guard.gave_up is None:
        return
    last = f"to {guard.flushed - 1}" if guard.flushed > guard.gave_up else "on"
    records = f"{path}: the records from offset {guard.gave_up} {last}"
    if guard.is_replaceable:
        yield f"{records} are damaged or missing, and are fetched from the leader again"
    else:
        yield f"{records} are given up, as {CUT_AT_KEY} says"
