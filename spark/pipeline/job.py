"""The jobs as a program: options, session, queries, exit code.

    python spark/jobs/dead_letters.py --config pipeline.toml --once

Exit codes: 0 if the jobs are done or were asked to stop; 1 if a query failed; 2 if the command line or the
configuration is wrong. 3 means that checkpoint and topics do not fit: records are gone, or the topics are not those of
the checkpoint.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline import config as configuration
from pipeline import preflight, secured, session
from pipeline.broker import Broker
from pipeline.checkpoint import SparkFiles
from pipeline.config import Config
from pipeline.errors import DoesNotFitError, PipelineError
from pipeline.explain import explain
from pipeline.lake import Lake
from pipeline.metrics import Metrics
from pipeline.progress import Progress
from pipeline.sinks import Trigger
from pipeline.stopping import Stop, finish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# The interval at which the program checks if a query has ended.
LOOK_S = 1
# The interval at which it checks if topics were replaced.
TOPICS_S = 10


@dataclass(frozen=True, slots=True)
class Job:
    """One query: its name (also of its checkpoint), the topics it reads, its start function, the topics it writes.

    `makes_watermarks`: True if a client whose clock is ahead must not write to its topics.
    """

    name: str
    topics: Callable[[Config], list[str]]
    start: Callable[[SparkSession, Config, Trigger], StreamingQuery]
    writes: Callable[[Config], list[str]] = lambda config: []
    makes_watermarks: bool = True


def main(jobs: Sequence[Job], argv: Sequence[str]) -> int:
    """Run the jobs in one driver; return the exit code."""
    options = _options(jobs, argv)
    try:
        config = configuration.load(options.config)
        spark = session.make("+".join(job.name for job in jobs), config, options.master)
    except PipelineError as error:
        print(error, file=sys.stderr)
        return 2
    trigger = Trigger(options.once, config.trigger_s if options.trigger is None else options.trigger)
    try:
        if options.adopt_lake:
            Lake(spark, config.lake.path).release()
        return run(spark, jobs, config, trigger)
    except PipelineError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        spark.stop()


def run(spark: SparkSession, jobs: Sequence[Job], config: Config, trigger: Trigger) -> int:
    """Run the jobs in a session; return the exit code."""
    metrics = Metrics(config.kafka, config.topics.metrics)
    try:
        with Stop() as stop:
            _Run(spark, jobs, config, trigger, metrics).to_the_end(stop)
    except PipelineError as error:
        print(error, file=sys.stderr)
        return 3 if isinstance(error, DoesNotFitError) else 1
    finally:
        metrics.close()
    return 0


def _options(jobs: Sequence[Job], argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Runs {', '.join(job.name for job in jobs)}.")
    parser.add_argument("--config", default="pipeline.toml", help="the configuration file (default: %(default)s)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="read what is there, then end")
    how.add_argument("--continuous", action="store_true", help="go on until stopped (the default)")
    parser.add_argument("--master", help="Spark's master (default: all cores of this machine, or spark-submit's)")
    parser.add_argument("--trigger", type=float, metavar="SECONDS", help="seconds between batches, over trigger_s")
    parser.add_argument(
        "--adopt-lake", action="store_true", help="let another checkpoint go on with a lake: see docs/lake.md first"
    )
    return parser.parse_args(argv)


class _Run:
    """Runs the jobs from the checks before their start to their end."""

    def __init__(
        self, spark: SparkSession, jobs: Sequence[Job], config: Config, trigger: Trigger, metrics: Metrics
    ) -> None:
        self._spark = spark
        self._jobs = jobs
        self._config = config
        self._trigger = trigger
        self._broker = _broker(config)
        self._progress = Progress(self._broker, metrics, max_skew_s=config.times.max_skew_s)
        self._queries: list[StreamingQuery] = []

    def to_the_end(self, stop: Stop) -> None:
        """Raises PipelineError if a job cannot start, or with what ended a query."""
        from pyspark.errors import PySparkException

        self._spark.streams.resetTerminated()
        try:
            self._check_clocks()
            for job in self._jobs:
                self._check(job)
            for job in self._jobs:
                self._queries.append(job.start(self._spark, self._config, self._trigger))
            self._wait(stop)
            finish(self._queries, self._look)
            for query in self._queries:
                query.awaitTermination()  # raises the error that ended it
        except PySparkException as error:
            raise self._explained(error) from error
        finally:
            for query in self._queries:
                query.stop()
            self._look()
            if self._broker is not None:
                self._broker.close()

    def _wait(self, stop: Stop) -> None:
        topics_at = time.monotonic() + TOPICS_S
        while not stop.asked and any(query.isActive for query in self._queries):
            self._spark.streams.awaitAnyTermination(LOOK_S)
            self._spark.streams.resetTerminated()
            self._look()
            if time.monotonic() >= topics_at:
                self._look_at_topics()
                topics_at = time.monotonic() + TOPICS_S

    def _look(self) -> None:
        self._progress.look(self._queries)

    def _check(self, job: Job) -> None:
        """Raises PipelineError if the job cannot start, or cannot go on."""
        if self._broker is not None:
            topics, files = job.topics(self._config), self._files(job)
            written = job.writes(self._config)
            preflight.allowed(self._config, job.name, [*topics, *written], self._broker)
            self._progress.lost(job.name, preflight.check(self._config, job.name, topics, files, self._broker))

    def _check_clocks(self) -> None:
        """Raises PipelineError if a topic lets a client's clock move the watermark too far."""
        if self._broker is not None:
            topics = sorted({topic for job in self._jobs if job.makes_watermarks for topic in job.topics(self._config)})
            for told in preflight.clocks(self._config, topics, self._broker):
                print(told, file=sys.stderr, flush=True)

    def _look_at_topics(self) -> None:
        if self._broker is None:
            return
        for job in self._jobs:
            try:
                changed = preflight.changed(self._files(job), job.topics(self._config), self._broker)
            except PipelineError:
                return  # no broker answers; Spark waits for them, or fails
            if changed:
                self._check(job)

    def _files(self, job: Job) -> SparkFiles:
        return SparkFiles(self._spark, self._config.checkpoint(job.name))

    def _explained(self, error: Exception) -> PipelineError:
        from pyspark.errors.exceptions.captured import StreamingQueryException

        found = explain(error, self._config)
        if isinstance(found, DoesNotFitError):
            for job in self._jobs:
                self._check(job)  # names the lost records, if they can still be found
        # An unknown error that ended a query needs its stack, which Spark does not log (`session.STREAMS_LOGGER`).
        stack = (error._stackTrace or "") if isinstance(error, StreamingQueryException) else ""
        return found or PipelineError(secured.scrubbed(str(error)), secured.scrubbed(stack))


def _broker(config: Config) -> Broker | None:
    try:
        secured.kafka_python(config.kafka)
    except PipelineError as error:
        print(f"nothing is checked before the start, and there are no metrics: {error}", file=sys.stderr)
        return None
    return Broker(config.kafka)
