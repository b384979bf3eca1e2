"""What the lake's log says: its entries as values, as text, and what they add up to. Pure: no Spark, no files.

The log is a sequence of entries, version 1, 2, 3 ..., each a file that is created whole or not at all and never
changed. There are three kinds. A `Claim` is a driver that takes the lake; it repeats everything that the log has said
before, so that reading begins at the last claim and the entries before it can go. A `Batch` adds the files of one
micro-batch. A `Compaction` puts few files in the place of many.

An entry is the commit; the files move afterwards (`steps`), and moving is repeatable: the entry says where each file
was staged and where it belongs. Removals come before moves: whoever lists `*.parquet` never sees a row twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from pipeline.errors import PipelineError

FORMAT = 1

LOG = "_log"
STAGING = "_staging"


class LakeError(PipelineError):
    """The lake cannot go on."""


class LakeTakenError(LakeError):
    """Another driver has claimed the lake since: this one must stop."""


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str  # date=.../topic=.../name.parquet, below the lake's root
    rows: int
    bytes: int

    @property
    def partition(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a streaming query has come: its last batch, and a digest of what Spark had planned for that batch."""

    batch: int
    plan: str


@dataclass(frozen=True, slots=True)
class Claim:
    owner: str | None  # the query that has written last; None: nobody, or it was released
    positions: dict[str, Position]
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    query: str
    position: Position
    staging: str
    adds: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Compaction:
    staging: str
    adds: tuple[DataFile, ...]
    removes: tuple[str, ...]


Entry = Claim | Batch | Compaction
_KINDS: dict[str, type[Entry]] = {"claim": Claim, "batch": Batch, "compaction": Compaction}


def log_path(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def version_of(name: str) -> int | None:
    """The version of a file in the log's folder; None for anything else."""
    stem, _, extension = name.partition(".")
    return int(stem) if extension == "json" and stem.isdecimal() else None


def staged(staging: str, path: str = "") -> str:
    """Where an attempt's file waits; without a path the attempt's folder."""
    return f"{STAGING}/{staging}/{path}" if path else f"{STAGING}/{staging}"


def encode(entry: Entry, writer: str) -> str:
    """The entry's text. `writer` is the driver that writes it: two drivers never write the same text."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(entry, cls))
    return json.dumps({"format": FORMAT, "writer": writer, "kind": kind, **asdict(entry)}) + "\n"


def decode(text: str, name: str) -> Entry:
    """The entry in a file's text; `name` is for the message.

    Raises LakeError for a newer format and for text that is no entry."""
    try:
        value = json.loads(text)
        if value["format"] != FORMAT:
            raise LakeError(
                f"the lake's {name} has format {value['format']}, this program knows {FORMAT}",
                "Run the version of the pipeline that wrote the lake, or a newer one",
            )
        return _entry(value)
    except (ValueError, KeyError, TypeError) as error:
        raise LakeError(
            f"the lake's {name} is damaged ({type(error).__name__}: {error})",
            "Restore it from a backup: without it nobody can say which files belong to the lake",
        ) from error


def _entry(value: dict[str, Any]) -> Entry:
    match value["kind"]:
        case "claim":
            positions = {query: Position(**position) for query, position in value["positions"].items()}
            return Claim(value["owner"], positions, _files(value["files"]))
        case "batch":
            return Batch(value["query"], Position(**value["position"]), value["staging"], _files(value["adds"]))
        case "compaction":
            return Compaction(value["staging"], _files(value["adds"]), tuple(value["removes"]))
        case kind:
            raise ValueError(f"unknown kind {kind!r}")


def _files(values: list[dict[str, Any]]) -> tuple[DataFile, ...]:
    return tuple(DataFile(**value) for value in values)


@dataclass(slots=True)
class Contents:
    """What a log's entries add up to."""

    owner: str | None = None
    positions: dict[str, Position] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)

    def apply(self, entry: Entry) -> None:
        match entry:
            case Claim(owner, positions, files):
                self.owner = owner
                self.positions = dict(positions)
                self.files = {file.path: file for file in files}
            case Batch(query, position, _, adds):
                self.owner = query
                self.positions[query] = position
                self.files.update((file.path, file) for file in adds)
            case Compaction(_, adds, removes):
                for path in removes:
                    del self.files[path]
                self.files.update((file.path, file) for file in adds)

    def claim(self) -> Claim:
        return Claim(self.owner, dict(self.positions), tuple(self.files.values()))


@dataclass(frozen=True, slots=True)
class Remove:
    path: str


@dataclass(frozen=True, slots=True)
class Move:
    source: str
    target: str


def steps(entry: Entry) -> Iterable[Remove | Move]:
    """What makes the listing agree with an entry. All of it may be done again, from the start."""
    if isinstance(entry, Compaction):
        yield from (Remove(path) for path in entry.removes)
    if not isinstance(entry, Claim):
        yield from (Move(staged(entry.staging, file.path), file.path) for file in entry.adds)
