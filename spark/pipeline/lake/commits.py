"""The commits of a Delta table as values, and what the pipeline writes into them. Pure: no Spark, no files.

A commit is a file of JSON lines, one action each (Delta's protocol, "Actions"). Each commit of a driver of the pipeline
has a `Note` in its `userMetadata` with the driver, job, checkpoint, batch and offsets. A commit without a note is
another writer's. It is accepted if it changes no rows and no columns: OPTIMIZE, VACUUM, properties.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

FORMAT = 1
MARK = "pykbroker-pipeline"  # the key that marks a text of userMetadata as a note; its value is FORMAT

#: One appId for all drivers and one sequence of versions: the driver's epoch in the upper bits, its batch in the lower.
APP_ID = "pykbroker-pipeline"
EPOCH_BITS = 40

CLAIM, BATCH, COMPACTION = "claim", "batch", "compaction"
#: Commits of other writers that rewrite the table's metadata and leave its columns as they are.
HARMLESS = ("SET TBLPROPERTIES", "UNSET TBLPROPERTIES")


class NewerNoteError(Exception):
    """A note that a later version of the pipeline wrote."""


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str  # as the log spells it
    bytes: int
    partition: tuple[tuple[str, str | None], ...]  # (column, value); the value None is null


@dataclass(frozen=True, slots=True)
class Position:
    """The progress of a streaming query: its last batch, and a digest of what Spark had planned for that batch."""

    batch: int
    plan: str


@dataclass(frozen=True, slots=True)
class State:
    """The content of the lake: the events of this checkpoint up to this batch.

    `checkpoint` is Spark's id of the query, None before the first batch. `released`: any checkpoint may continue.
    """

    checkpoint: str | None = None
    position: Position | None = None
    released: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """`follows` is the version that a claim has read. `releases` is True if the claim lets any checkpoint continue, and
    False if it only repeats the state that it has read. `state` is the state after this commit."""

    kind: str
    writer: str
    epoch: int
    job: str
    state: State
    follows: int = -1
    releases: bool = False
    offsets: list[Any] = field(default_factory=list)  # the end of the batch for each source, as Spark writes it

    def encode(self) -> str:
        return json.dumps({MARK: FORMAT, **asdict(self)})


@dataclass(frozen=True, slots=True)
class Commit:
    """`changes`: what another writer has changed in the table, as a word of a sentence, or None if nothing."""

    version: int
    operation: str
    at_ms: int | None
    engine: str
    note: Note | None
    adds: tuple[DataFile, ...]
    removes: tuple[str, ...]
    changes: str | None

    def __str__(self) -> str:
        when = f", {datetime.fromtimestamp(self.at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if self.at_ms else ""
        return f"version {self.version} ({self.operation}{when}, by {self.engine})"


def decode_note(text: str | None) -> Note | None:
    """Return the note in a text, or None if another writer wrote the text.

    Raises:
        NewerNoteError: a later version of the pipeline wrote it.
    """
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(value, dict) or MARK not in value:
        return None
    if value.pop(MARK) != FORMAT:
        raise NewerNoteError
    state = value.pop("state")
    position = state["position"]
    decoded = State(state["checkpoint"], Position(**position) if position else None, state["released"])
    return Note(state=decoded, **value)


def decode(version: int, text: str) -> Commit:
    """Return the commit in a file of the log.

    Raises:
        NewerNoteError: a later version of the pipeline wrote it.
        ValueError: the text is damaged.
    """
    actions: list[tuple[str, dict[str, Any]]] = []
    for line in filter(str.strip, text.splitlines()):
        action = json.loads(line)
        if not isinstance(action, dict):
            raise ValueError(f"an action is expected, not {line[:40]}")
        actions += action.items()
    info = next((value for kind, value in actions if kind == "commitInfo"), {})
    operation = str(info.get("operation", "an operation without a name"))
    note = decode_note(info.get("userMetadata"))
    adds = [value for kind, value in actions if kind == "add"]
    removes = [value for kind, value in actions if kind == "remove"]
    changes = None
    if note is None and any(value.get("dataChange", True) for value in adds + removes):
        changes = "rows"
    elif note is None and operation not in HARMLESS and any(kind in ("metaData", "protocol") for kind, _ in actions):
        changes = "columns"
    return Commit(
        version,
        operation,
        info.get("timestamp"),
        str(info.get("engineInfo", "a writer without a name")),
        note,
        tuple(_file(value) for value in adds),
        tuple(value["path"] for value in removes),
        changes,
    )


def _file(add: dict[str, Any]) -> DataFile:
    return DataFile(add["path"], add["size"], tuple(sorted(add["partitionValues"].items())))


def transaction_version(epoch: int, batch: int | None) -> int:
    """Return the txnVersion of a commit; `batch` is None for the claim that begins the epoch.

    If two transactions under one appId have read the same version, one of them conflicts. So a driver whose epoch is
    over cannot commit a batch, however the two interleave.
    """
    return (epoch << EPOCH_BITS) + (0 if batch is None else batch + 1)
