"""What the lake asks a Spark checkpoint: who the query is, and what was planned for a batch."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from pipeline.lake.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Checkpoint:
    def __init__(self, spark: SparkSession, path: str) -> None:
        self._files = HadoopFiles(spark, path)

    def query_id(self) -> str | None:
        """The query's id, the same after every restart; None before its first start."""
        try:
            return str(json.loads(self._files.read("metadata"))["id"])
        except FileNotFoundError:
            return None

    def plan(self, batch_id: int) -> str:
        """A digest of the offsets (and the watermark) that Spark has written down for a batch, before it ran it.

        A batch that is repeated has the same; one that is planned anew, for its checkpoint was restored, has
        another."""
        return hashlib.sha256(self._files.read(f"offsets/{batch_id}").encode()).hexdigest()
