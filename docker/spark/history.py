"""Count the records of a topic in each hour: the past from the brokers' segments, the rest from the brokers.

    spark-submit --py-files pipeline.whl,segments.whl history.py --config pipeline.toml clicks

Only [kafka], [security] and [spark] of the configuration are used. The brokers' directories are /brokers/1, ... on
every machine of Spark (docker/compose.spark.yaml). The program prints a line of JSON for each hour. Its exit codes are
those of the jobs.
"""

from __future__ import annotations

import argparse
import json
import sys

from pyspark.sql import functions as F

from pipeline import session
from pipeline.errors import PipelineError
from pipeline.loads_job import load
from pyspark_pykbroker import history_and_tail

BROKERS = "/brokers/1,/brokers/2,/brokers/3"


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts the records of each hour.")
    parser.add_argument("--config", required=True)
    parser.add_argument("topic")
    options = parser.parse_args()
    try:
        config = load(options.config)
        spark = session.make("history", config, None)
    except PipelineError as error:
        print(error, file=sys.stderr)
        return 2
    records = history_and_tail(spark, options.topic, directories=BROKERS, kafka=config.kafka_options())
    hours = records.groupBy(F.date_trunc("hour", "timestamp").alias("hour")).count().orderBy("hour")
    for row in hours.collect():
        print(json.dumps({"hour": row.hour.isoformat(), "records": row["count"]}))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
