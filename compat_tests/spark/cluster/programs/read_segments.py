"""The program that test_submitted.py submits. It reads a topic from its segments, then its past united with its
present.

    read_segments.py FOLDER     FOLDER/asked.json: topic, directories, kafka (options of Spark's Kafka source)

A task that has read rows reports its worker in `FOLDER/reading-<worker>`, and keeps the rows until FOLDER/released is
there. At the end the rows are in FOLDER/segments.json and FOLDER/united.json.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pyspark_pykbroker import history_and_tail, register


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.05)


def held(folder: Path):  # type: ignore[no-untyped-def]
    """Return what a task does with its batches. The working folder of an executor is a folder of its worker."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            [name] = [part for part in Path.cwd().parts if part.startswith("worker-")]
            (folder / f"reading-{name}").touch()
            wait_for(folder / "released")
            yield batch

    return hold


def write(frame: DataFrame, path: Path) -> None:
    rows = frame.selectExpr("partition", "offset", "CAST(key AS STRING)", "CAST(value AS STRING)").collect()
    path.write_text(json.dumps(sorted(list(row) for row in rows)))


def main(folder: Path) -> None:
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    asked = json.loads((folder / "asked.json").read_text())
    segments = (
        spark.read.format("pyspark_pykbroker")
        .option("subscribe", asked["topic"])
        .option("maxRecordsPerPartition", "500")
        .load(",".join(asked["directories"]))
    )
    write(segments.mapInArrow(held(folder), segments.schema), folder / "segments.json")
    united = history_and_tail(spark, asked["topic"], directories=asked["directories"], kafka=asked["kafka"])
    (folder / "divided").touch()
    wait_for(folder / "goes-on")
    write(united, folder / "united.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
