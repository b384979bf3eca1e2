"""Running jobs as a program: options, session, queries, exit code.

    python spark/jobs/dead_letters.py --config pipeline.toml --once

Exit codes: 0 what was to be done is done; 1 a query failed; 2 the command line or the configuration is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline import config as configuration
from pipeline import session
from pipeline.config import Config
from pipeline.errors import PipelineError
from pipeline.lake import Lake
from pipeline.sinks import Trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# How often the program looks whether a query has ended.
LOOK_S = 1


@dataclass(frozen=True, slots=True)
class Job:
    """One query: its name (also of its checkpoint), the topics it reads, and how it is started."""

    name: str
    topics: Callable[[Config], list[str]]
    start: Callable[[SparkSession, Config, Trigger], StreamingQuery]


def main(jobs: Sequence[Job], argv: Sequence[str]) -> int:
    """Runs the jobs in one driver; returns the exit code."""
    options = _options(jobs, argv)
    try:
        config = configuration.load(options.config)
    except PipelineError as error:
        print(error, file=sys.stderr)
        return 2
    trigger = Trigger(options.once, config.trigger_s if options.trigger is None else options.trigger)
    spark = session.make("+".join(job.name for job in jobs), config, options.master)
    try:
        if options.adopt_lake:
            Lake(spark, config.lake.path).release()
        return _run(spark, jobs, config, trigger)
    except PipelineError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        spark.stop()


def _options(jobs: Sequence[Job], argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Runs {', '.join(job.name for job in jobs)}.")
    parser.add_argument("--config", default="pipeline.toml", help="the configuration file (default: %(default)s)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="read what is there, then end")
    how.add_argument("--continuous", action="store_true", help="go on until stopped (the default)")
    parser.add_argument("--master", help="Spark's master (default: all cores of this machine, or spark-submit's)")
    parser.add_argument("--trigger", type=float, metavar="SECONDS", help="seconds between batches, over trigger_s")
    parser.add_argument(
        "--adopt-lake", action="store_true", help="let another checkpoint go on with a lake: see docs/pipeline.md first"
    )
    return parser.parse_args(argv)


def _run(spark: SparkSession, jobs: Sequence[Job], config: Config, trigger: Trigger) -> int:
    from pyspark.errors import StreamingQueryException

    queries: list[StreamingQuery] = []
    try:
        for job in jobs:
            queries.append(job.start(spark, config, trigger))
        while any(query.isActive for query in queries):
            spark.streams.awaitAnyTermination(LOOK_S)
            spark.streams.resetTerminated()
        for query in queries:
            query.awaitTermination()  # raises what ended it
    except StreamingQueryException as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        for query in queries:
            query.stop()
    return 0
