"""A streaming job in a process of its own, so that a test can kill it. It writes a topic to JSON files, slowly.

python -m compat_tests.spark.streaming_job BOOTSTRAP TOPIC OUTPUT CHECKPOINT WAREHOUSE
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from compat_tests.spark.session import make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def topic_to_files(spark: SparkSession, bootstrap: str, topic: str, output: Path, checkpoint: Path) -> DataStreamWriter:
    """Return the query, not started; the test resumes the same query."""
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 40)
        .load()
    )
    columns = source.selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
    return columns.writeStream.format("json").option("path", str(output)).option("checkpointLocation", str(checkpoint))


if __name__ == "__main__":
    servers, name, output_dir, checkpoint_dir, warehouse_dir = sys.argv[1:]
    session = make_session("killed", Path(warehouse_dir))
    topic_to_files(session, servers, name, Path(output_dir), Path(checkpoint_dir)).start().awaitTermination()
