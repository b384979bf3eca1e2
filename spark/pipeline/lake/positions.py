"""The state of a lake by its log, and the commits that may follow. Pure: commits in, a state or a refusal out.

New data under a batch number that the lake knows must never be dropped silently. Delta's own recognition of a repeated
batch (`txnAppId`, `txnVersion`) does that if the checkpoint is another one or was restored. So a batch is recognised by
its checkpoint, its number and a digest of the offsets that Spark planned for it. Any other batch that is not the next
one of this checkpoint is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline.errors import PipelineError
from pipeline.lake.commits import BATCH, CLAIM, Commit, Note, Position, State

ADOPTING = (
    "--adopt-lake goes on from here all the same: do that only if you know which events that repeats or leaves out"
)


class LakeError(PipelineError):
    """The pipeline cannot continue with this lake."""


class LakeTakenError(LakeError):
    """Another driver has claimed the lake since then, so this one must stop."""


@dataclass(frozen=True, slots=True)
class Known:
    """The content of the log. `foreign`: commits of other writers that changed the table after the last claim of a
    driver.

    `epoch` is that of the last claim, or 0 if there is none; `state` is None if the log does not contain it.
    """

    epoch: int
    state: State | None
    foreign: tuple[Commit, ...]


def known(read: Callable[[int], Commit], newest: int) -> Known:
    """Walk back from the newest version until the state is known. `read` raises FileNotFoundError.

    A claim repeats the state of the version that it has read. The driver before it may have committed a batch between
    that version and the claim, but not after the claim (`commits.transaction_version`): that batch is then the last
    one.
    """
    foreign: list[Commit] = []
    claim: Note | None = None
    epoch = 0
    for version in range(newest, -1, -1):
        if claim is not None and version <= claim.follows:
            break
        try:
            commit = read(version)
        except FileNotFoundError:  # Delta removes entries that are older than delta.logRetentionDuration
            break
        note = commit.note
        if note is None:
            foreign += [commit] if commit.changes else []
            continue
        epoch = max(epoch, note.epoch)
        if note.kind == BATCH:
            state = replace(note.state, released=True) if claim is not None and claim.releases else note.state
            return Known(epoch, state, tuple(foreign))
        if note.kind == CLAIM and claim is None:
            claim = note
    return Known(epoch, claim.state if claim else None, tuple(foreign))


def refuse_foreign(place: str, foreign: tuple[Commit, ...]) -> None:
    """Raises LakeError for a table that another writer than this pipeline has changed."""
    if not foreign:
        return
    first, more = foreign[-1], f", and {len(foreign) - 1} later ones" if len(foreign) > 1 else ""
    raise LakeError(
        f"another writer has changed {first.changes} of the lake {place}: {first}{more}",
        f"Nothing is lost: the checkpoint goes on where it was. Version {first.version - 1} of the table is the one "
        "before that change. To go on with the table as it is now: --adopt-lake, once",
    )


def refuse_stranger(place: str, checkpoint: str | None, state: State | None) -> None:
    """Raises LakeError if a query (None before its start) must not continue with the content of a lake."""
    if state is None:
        raise LakeError(
            f"{place} is a Delta table, and its log has no commit of this pipeline that says how far the lake is",
            f"Name another folder. If it is this job's lake, its log was cleaned or it was copied. {ADOPTING}",
        )
    if not state.released and state.checkpoint not in (None, checkpoint):
        raise LakeError(
            f"the lake {place} holds the events of another checkpoint (query {state.checkpoint}); this one would read "
            "the topics from its own beginning and write them a second time",
            f"Give the checkpoint that belongs to the lake, or another path for the lake. {ADOPTING}",
        )


def is_committed(place: str, state: State, checkpoint: str, position: Position) -> bool:
    """Return True if the lake has this batch already.

    Raises:
        LakeError: it does not have the batch, and the batch is not the next one.
    """
    if (checkpoint, position) == (state.checkpoint, state.position):
        return True
    if state.released:
        return False
    refuse_stranger(place, checkpoint, state)
    last = state.position
    if last is None:
        if position.batch == 0:
            return False
        raise LakeError(
            f"the checkpoint is at batch {position.batch}, and the lake {place} has none of its batches",
            f"Give the lake that this checkpoint has written, or begin with a new checkpoint. {ADOPTING}",
        )
    if position.batch == last.batch + 1:
        return False
    if position.batch <= last.batch:
        raise LakeError(
            f"the checkpoint is older than the lake {place}: it plans batch {position.batch} anew, and the lake has "
            f"batches up to {last.batch}",
            f"Was the checkpoint restored from a backup? Restore the lake of the same time as well. {ADOPTING}",
        )
    raise LakeError(
        f"the lake {place} is older than the checkpoint: batch {last.batch + 1} should come next, not {position.batch}",
        f"Was the lake restored from a backup? Restore the checkpoint of the same time as well. {ADOPTING}",
    )
