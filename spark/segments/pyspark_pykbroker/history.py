"""A topic's past from its segments and its present from the broker, as one DataFrame without gap or overlap.

Responsible for the boundary between both: an offset of each partition up to which the segments are safe, so that every
leader has these records. Records before it come from the segments, records from it on come from Spark's Kafka source.
Not responsible for reading either of the two.

Invariants:
* A stream writes its boundary once, before it begins, into a file next to the checkpoint, and later always uses that. A
  checkpoint that has begun without that file, or with another topic's, is refused.
* With read_committed the boundary is a last stable offset, so no transaction with records on both sides of it is
  decided differently on the two sides.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_pykbroker.bounds import bounds_of
from pyspark_pykbroker.faults import RecordsLost, WrongOption
from pyspark_pykbroker.places import stored
from pyspark_pykbroker.ranges import look
from pyspark_pykbroker.registration import register
from pyspark_pykbroker.source_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Appended to the checkpoint's own name.
BOUNDARY = "-boundary.json"
_VERSION = 1
_WHAT_TO_DO = "Begin with a new checkpoint, and with an output that is empty."


@dataclass(frozen=True, slots=True)
class Boundary:
    topic: str
    #: the topic's id; "" if the directories do not have it
    topic_id: str
    isolation: str
    #: partition -> the first offset that comes from the broker
    offsets: Mapping[int, int]

    @classmethod
    def of(cls, options: SourceOptions) -> Boundary:
        """Return where the segments end now. Raises SegmentsError."""
        replicas = look(options)
        [topic] = {topic for topic, _ in replicas}
        offsets = {key[1]: bounds_of(replica, options.isolation).end for key, replica in replicas.items()}
        topic_id = next((replica.topic_id for replica in replicas.values() if replica.topic_id), "")
        return cls(topic, topic_id, options.isolation.value, offsets)

    def json_of_offsets(self) -> str:
        """Return the offsets in the form of startingOffsets and endingOffsets."""
        return json.dumps(stored({(self.topic, number): offset for number, offset in self.offsets.items()}))

    def assigned(self) -> str:
        return json.dumps({self.topic: sorted(self.offsets)})

    def encode(self) -> str:
        offsets = {str(number): offset for number, offset in sorted(self.offsets.items())}
        fields = {"topic": self.topic, "topicId": self.topic_id, "isolation": self.isolation, "boundary": offsets}
        return json.dumps({"version": _VERSION, **fields})

    @classmethod
    def decode(cls, text: str, path: str) -> Boundary:
        """Raises WrongOption."""
        try:
            fields = json.loads(text)
            if fields["version"] != _VERSION:
                raise WrongOption(f"{path} has version {fields['version']}: a newer pyspark-pykbroker wrote it")
            offsets = {int(number): int(offset) for number, offset in fields["boundary"].items()}
            return cls(fields["topic"], fields["topicId"], fields["isolation"], offsets)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise WrongOption(
                f"{path} is no boundary between segments and broker: {text[:80]!r}. {_WHAT_TO_DO}"
            ) from None


def history_and_tail(
    spark: SparkSession,
    topic: str,
    *,
    directories: str | Sequence[str],
    kafka: Mapping[str, str],
    checkpoint: str | None = None,
    isolation: str = "read_uncommitted",
    include_headers: bool = False,
    columns: Sequence[str] | None = None,
    history_options: Mapping[str, str] | None = None,
    tail_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return every record of `topic`: the past from `directories`, the rest from the broker that `kafka` names (options
    of the Kafka source, at least `kafka.bootstrap.servers`).

    Without `checkpoint` the result is a batch; with it a stream, whose query must have that checkpointLocation.
    `columns` are those to keep. `history_options` and `tail_options` go to one source each. Raises SegmentsError.
    """
    _refuse("history_options", history_options, ("ending",))
    _refuse("tail_options", tail_options, ("starting",))
    _refuse("kafka", kafka, ("starting", "ending"))
    common = {"includeHeaders": str(include_headers).lower(), "kafka.isolation.level": isolation}
    path = directories if isinstance(directories, str) else ",".join(directories)
    options = SourceOptions.parse({"directories": path, "subscribe": topic, **common})
    if len(options.subscription.topics) != 1:
        raise WrongOption(f"history_and_tail reads one topic, not {topic!r}")
    register(spark)
    boundary = Boundary.of(options) if checkpoint is None else _kept(spark, checkpoint, options)
    at = boundary.json_of_offsets()
    reader = spark.read if checkpoint is None else spark.readStream
    beginning = {} if history_options and any(name.startswith("starting") for name in history_options) else EARLIEST
    past = (
        reader.format("pyspark_pykbroker")
        .options(**common, directories=path, assign=boundary.assigned(), endingOffsets=at)
        .options(**beginning, **(history_options or {}))
        .load()
    )
    reader = spark.read if checkpoint is None else spark.readStream
    present = (
        reader.format("kafka")
        .options(**kafka, **common, subscribe=topic, startingOffsets=at)
        .options(**(tail_options or {}))
        .load()
    )
    wanted = list(columns or past.columns)
    return past.select(*wanted).unionByName(present.select(*wanted))


def _refuse(argument: str, options: Mapping[str, str] | None, ends: tuple[str, ...]) -> None:
    """Raises WrongOption for options that would move the boundary, or that would read differently on one side of it."""
    for name in options or ():
        if name.lower().startswith((*ends, "subscribe", "assign", "directories", "path", "includeheaders")) or (
            name.lower() == "kafka.isolation.level"
        ):
            raise WrongOption(f"history_and_tail: {argument} may not have {name}, which the call itself decides")


EARLIEST = {"startingOffsets": "earliest"}


def _kept(spark: SparkSession, checkpoint: str, options: SourceOptions) -> Boundary:
    """Return the boundary of a checkpoint: read it, or make and write it. Raises WrongOption, RecordsLost."""
    files = _Files(spark, checkpoint)
    text = files.read()
    if text is None:
        if files.has_begun():
            raise WrongOption(
                f"{checkpoint} has begun, but {files.boundary} is missing: where its history ended is not known. "
                f"{_WHAT_TO_DO}"
            )
        files.write(Boundary.of(options).encode())
        # If another driver was first, its boundary counts.
        text = files.read() or ""
    kept = Boundary.decode(text, files.boundary)
    [topic] = options.subscription.topics
    if (kept.topic, kept.isolation) != (topic, options.isolation.value):
        raise WrongOption(
            f"{files.boundary} is of {kept.topic} with {kept.isolation}, this is {topic} with "
            f"{options.isolation.value}. {_WHAT_TO_DO}"
        )
    ids = {replica.topic_id for replica in look(options).values() if replica.topic_id}
    if kept.topic_id and ids and kept.topic_id not in ids:
        raise RecordsLost(f"{topic} was deleted and made again since {files.boundary} was written. {_WHAT_TO_DO}")
    return kept


class _Files:
    """The checkpoint's boundary file, on any file system that Spark knows."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._hadoop = hadoop = jvm.org.apache.hadoop.fs
        self._folder = hadoop.Path(checkpoint.rstrip("/"))
        self._system = self._folder.getFileSystem(configuration)
        self._folder = self._system.makeQualified(self._folder)
        self.boundary = f"{self._folder.toString()}{BOUNDARY}"
        self._path = hadoop.Path(self.boundary)

    def has_begun(self) -> bool:
        offsets = self._hadoop.Path(self._folder, "offsets")
        return bool(self._system.exists(offsets)) and len(self._system.listStatus(offsets)) > 0

    def read(self) -> str | None:
        if not self._system.exists(self._path):
            return None
        stream = self._system.open(self._path)
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            return text
        finally:
            stream.close()

    def write(self, text: str) -> None:
        """Write it whole or not at all, and never over another: on HDFS a rename does not overwrite, locally it is a
        link."""
        draft = self._hadoop.Path(self._path.getParent(), f".{self._path.getName()}.{uuid.uuid4().hex}.tmp")
        stream = self._system.create(draft, False)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()
        if self._path.toUri().getScheme() != "file":
            if not self._system.rename(draft, self._path):
                self._system.delete(draft, False)
            return
        with contextlib.suppress(FileExistsError):
            os.link(draft.toUri().getPath(), self._path.toUri().getPath())
        self._system.delete(draft, False)
