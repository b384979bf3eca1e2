"""A job's checkpoint: the id of its query, the offsets that it has read, and its topics.

Spark writes `metadata` once, `offsets/N` (where batch N ends) before a batch and `commits/N` after it; `sources/I/0` is
where the first batch began. `pipeline.json` is the pipeline's own: the job and the topics, with their ids, of this
checkpoint. Offsets are not enough, because a topic that was deleted and created again has the same name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.broker import Partition
from pipeline.errors import DoesNotFitError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = 1
IDENTITY = "pipeline.json"


class Files(Protocol):
    """A folder that may not exist yet."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, an empty list if the folder does not exist."""

    def read(self, path: str) -> str:
        """Raises FileNotFoundError."""

    def write(self, path: str, text: str) -> None:
        """Replace the file in one step."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The job and the topics of a checkpoint. Ids are None if the brokers have none."""

    job: str
    topics: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Position:
    """`next`: the first offset that no committed batch has read.

    `planned`: the end of a batch that must be repeated.
    """

    next: dict[Partition, int] = field(default_factory=dict)
    planned: dict[Partition, int] = field(default_factory=dict)


def identity(files: Files) -> Identity | None:
    """Return the job and topics of the checkpoint, or None before the first start.

    Raises:
        DoesNotFitError: the file is of a later version.
    """
    try:
        found = json.loads(files.read(IDENTITY))
    except FileNotFoundError:
        return None
    if found.get("format") != FORMAT:
        raise DoesNotFitError(f"{IDENTITY}: format {found.get('format')}, this pipeline knows {FORMAT}")
    return Identity(found["job"], found["topics"])


def write_identity(files: Files, is_of: Identity) -> None:
    files.write(IDENTITY, json.dumps({"format": FORMAT, "job": is_of.job, "topics": is_of.topics}, indent=1) + "\n")


def query_id(files: Files) -> str | None:
    """Return Spark's id of the query, the same after every restart; None before the first start."""
    try:
        return str(json.loads(files.read("metadata"))["id"])
    except FileNotFoundError:
        return None


def plan(files: Files, batch_id: int) -> str:
    """Return a digest of the offsets (and the watermark) that Spark has written for a batch before running it.

    A repeated batch has the same digest. A batch that is planned again, because the checkpoint was restored, has
    another.
    """
    return hashlib.sha256(files.read(f"offsets/{batch_id}").encode()).hexdigest()


def ends(files: Files, batch_id: int) -> list[object]:
    """Return the end of a planned batch for each source, as Spark writes it."""
    lines = files.read(f"offsets/{batch_id}").splitlines()[2:]
    return [json.loads(line) for line in lines if line.startswith("{")]


def planned(files: Files, batch_id: int) -> dict[Partition, int]:
    """Return the end of a planned batch for each partition."""
    return _of_batch(files.read(f"offsets/{batch_id}"))


def watermark_ms(files: Files, batch_id: int) -> int:
    """Return the watermark that a batch was planned with; 0 before there is one."""
    settings = json.loads(files.read(f"offsets/{batch_id}").splitlines()[1])
    return int(settings.get("batchWatermarkMs", 0))


def position(files: Files) -> Position:
    committed, planned = _newest(files, "commits"), _newest(files, "offsets")
    if committed >= 0:
        begun = _of_batch(files.read(f"offsets/{committed}"))
    else:
        begun = {}
        for source in files.names("sources"):
            if "0" in files.names(f"sources/{source}"):
                # A zero byte comes first, for very old versions of Spark.
                begun |= _of_source(files.read(f"sources/{source}/0").lstrip("\0").splitlines()[1:])
    return Position(begun, _of_batch(files.read(f"offsets/{planned}")) if planned > committed else {})


def _newest(files: Files, folder: str) -> int:
    return max((int(name) for name in files.names(folder) if name.isdigit()), default=-1)


def _of_batch(text: str) -> dict[Partition, int]:
    """Parse the version and the batch's settings, then a line for each source."""
    return _of_source(text.splitlines()[2:])


def _of_source(lines: Iterable[str]) -> dict[Partition, int]:
    found: dict[Partition, int] = {}
    for line in lines:
        if line.startswith("{"):  # "-" is a source without offsets yet
            found |= offsets(json.loads(line))
    return found


def offsets(value: dict[str, dict[str, int]] | None) -> dict[Partition, int]:
    """Parse offsets as Spark writes them, for example {"clicks": {"0": 7}}."""
    return {
        Partition(topic, int(number)): offset
        for topic, each in (value or {}).items()
        for number, offset in each.items()
    }


class SparkFiles:
    """`Files` on the file system that Spark uses for the checkpoint."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        session: Any = spark._jsparkSession
        self._jvm = jvm
        self._root = jvm.org.apache.hadoop.fs.Path(root)
        streaming = jvm.org.apache.spark.sql.execution.streaming
        self._manager = streaming.CheckpointFileManager.create(self._root, session.sessionState().newHadoopConf())

    def names(self, folder: str) -> list[str]:
        path = self._path(folder)
        return [each.getPath().getName() for each in self._manager.list(path)] if self._manager.exists(path) else []

    def read(self, path: str) -> str:
        if not self._manager.exists(self._path(path)):
            raise FileNotFoundError(path)
        stream = self._manager.open(self._path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        self._manager.mkdirs(self._root)
        stream = self._manager.createAtomic(self._path(path), True)
        stream.write(text.encode())
        stream.close()

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root
