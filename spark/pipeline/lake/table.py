"""The lake as Spark sees it: DataFrames are written and read here; the order of things is `pipeline.lake.log`'s."""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING

from pipeline.lake import compaction
from pipeline.lake.hadoop import SCHEMES, HadoopFiles
from pipeline.lake.log import Writer, load, locate
from pipeline.lake.manifest import STAGING, DataFile, LakeError, Position, staged
from pipeline.schemas import EVENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = ("date", "topic")
SCHEMA = f"{EVENT}, date date, topic string"


class Lake:
    """The one driver that writes a lake of Parquet files, partitioned by the columns `date` and `topic`."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Raises LakeError for a file system that the protocol cannot use."""
        self._spark = spark
        self._files = HadoopFiles(spark, path)
        if self._files.scheme not in SCHEMES:
            raise LakeError(
                f"the lake {path} is on {self._files.scheme}:, which cannot create a file only if it is absent",
                f"Put the lake on one of {', '.join(f'{each}:' for each in SCHEMES)}",
            )
        self._writer = Writer(self._files, lambda: uuid.uuid4().hex, path)

    def claim(self, query_id: str | None) -> None:
        """Become the lake's writer, finish what was committed before, clear what was not. Before anything else.

        `query_id` is the id in the checkpoint's metadata, None if the query has not run yet. Raises LakeError if
        another checkpoint's events are in the lake."""
        self._writer.claim(query_id)

    def release(self) -> None:
        """Let the next checkpoint go on with this lake, whichever it is and wherever it stands (`--adopt-lake`)."""
        self._writer.release()

    def commit(self, frame: DataFrame, query_id: str, batch_id: int, plan: str) -> bool:
        """Write a micro-batch, once: False if it was in the lake already. `plan` tells apart two batches of one number.

        A repeated batch is computed again all the same, for Spark takes the state of its deduplication and the
        watermark from it; nothing of it is written. Raises LakeError for a batch that cannot be the next one, and if
        another driver has claimed the lake."""

        def write(staging: str) -> tuple[DataFile, ...]:
            # Else each task would write a file of its own into each partition. The hint `rebalance` would also split
            # large partitions, but Spark ignores it in queries that keep state.
            frame.repartition(*PARTITIONS).write.partitionBy(*PARTITIONS).parquet(self._files.uri(staged(staging)))
            return self._written(staging)

        written = self._writer.commit(query_id, Position(batch_id, plan), write)
        if not written:
            frame.write.format("noop").mode("overwrite").save()
        return written

    def compact(self, min_files: int, target_file_bytes: int) -> int:
        """Put one file in the place of many where `compaction.choose` says so; how many files have gone.

        One commit for each group: a listing misses the rows of one group only, and only between the removal of its
        files and the move of the new one; `read` misses nothing. Raises LakeTakenError like `commit`."""
        groups = compaction.choose(self._writer.contents.files.values(), min_files, target_file_bytes)
        for group in groups:
            self._writer.replace(group, partial(self._rewrite, group))
        return sum(map(len, groups)) - len(groups)

    def _rewrite(self, group: list[DataFile], staging: str) -> tuple[DataFile, ...]:
        paths = [self._files.uri(file.path) for file in group]
        whole = self._spark.read.option("mergeSchema", "true").parquet(*paths).coalesce(1)
        whole.write.parquet(self._files.uri(staged(staging, group[0].partition)))
        return self._written(staging)

    def files(self) -> list[DataFile]:
        """What is in the lake now."""
        return list(self._writer.contents.files.values())

    def _written(self, staging: str) -> tuple[DataFile, ...]:
        folder = staged(staging)
        return tuple(
            DataFile(path, self._files.rows(f"{folder}/{path}"), size)
            for path, size in self._files.walk(folder)
            if path.endswith(".parquet") and not path.startswith(("_", "."))
        )


def read(spark: SparkSession, path: str, schema: str = SCHEMA) -> DataFrame:
    """The lake as of now, from its log: every committed event once, also while a batch is moved or files are compacted.

    A file that a compaction removes while the DataFrame is still being computed fails that computation (never a wrong
    answer): call `read` again. Raises LakeError for a damaged log, or none."""
    files = HadoopFiles(spark, path)
    loaded = load(files)
    if not loaded.version:
        raise LakeError(f"there is no lake at {path}", "Name the folder that the job `lake` writes")
    paths = locate(files, loaded)
    frame = spark.createDataFrame([], schema)
    bases = {"": [path for path in paths if not path.startswith(STAGING)]}
    for waiting in (path for path in paths if path.startswith(STAGING)):
        bases.setdefault("/".join(waiting.split("/")[:2]), []).append(waiting)
    for base, members in bases.items():
        if members:
            reader = spark.read.schema(schema).option("basePath", files.uri(base))
            frame = frame.unionByName(reader.parquet(*map(files.uri, members)))
    return frame
