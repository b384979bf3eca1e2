"""From `__pykbroker_metrics` to a file for `pykbroker balance plan --loads`.

    python spark/jobs/cluster_loads.py --config cluster.toml --window 1800 --file loads.jsonl

Only the tables `[kafka]`, `[security]` and `[spark]` of the configuration are used, as in pipeline.toml. The file is
JSON lines, one for each partition; docs/metrics-topic.md of pykbroker describes its fields. Exit codes: 0 if it is
written; 1 if it cannot be; 2 if the command line or the configuration is wrong.

Invariant: the job writes no file for a window of which reports cover less than 95 %, and no line for a partition of
which they cover less. `balance plan` then has no load for these partitions, and refuses if there are too many.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import config as configuration
from pipeline import permissions, secured, session
from pipeline.config import Config
from pipeline.errors import PipelineError
from pipeline.explain import explain, shortened
from pipeline.partition_rates import broker_rates, newest_window, of_window, partition_rates, reports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "__pykbroker_metrics"
LEAST_COVERAGE = 0.95
#: Records are read that are this much older than the window, for clocks that differ and the intervals at its ends.
_SLACK_S = 600
_NOT_ENABLED = "do the brokers have pykbroker.load.reporter.enable=true?"


def main(argv: Sequence[str]) -> int:
    """Return the exit code."""
    options = _options(argv)
    try:
        config = load(options.config)
        spark = session.make("cluster-loads", config, options.master)
    except PipelineError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        head = write(spark, config, Path(options.file), options.window, options.topic)
    except PipelineError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        spark.stop()
    for each in head["brokers"]:
        print(json.dumps(each))
    print(f"{options.file}: {head['partitions']} partitions, {head['coverage']:.1%} of the window is there")
    return 0


def load(path: str | Path) -> Config:
    """Read the tables of the file with which a cluster is reached. Raises PipelineError."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror}", "name the configuration file with --config") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PipelineError(f"{Path(path).name}: not TOML: {error}") from None
    reached: dict[str, Any] = {table: values[table] for table in ("kafka", "security", "spark") if table in values}
    return configuration.parse({"checkpoints": "none", "lake": {"path": "none"}, **reached})


def write(spark: SparkSession, config: Config, file: Path, window_s: float, topic: str = TOPIC) -> dict[str, Any]:
    """Write the loads of the newest window. Return the facts to print: the window, its coverage, the number of
    partitions in the file, and the rates of the brokers.

    Raises:
        PipelineError: there are too few reports, or Spark cannot read them.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    read_ms = time.time_ns() // 1_000_000
    begin_ms = read_ms - round((window_s + max(_SLACK_S, window_s)) * 1000)
    raw = (
        spark.read.format("kafka")
        .options(**config.kafka_options())
        .option("subscribe", topic)
        .option("startingTimestamp", str(max(0, begin_ms)))
        .option("startingOffsetsByTimestampStrategy", "latest")
        .load()
    )
    try:
        found = reports(raw).cache()
        window = newest_window(found, window_s, read_ms=read_ms)
        chosen = of_window(found, window)
        clusters = [row[0] for row in chosen.select("cluster_id").distinct().collect()]
        if len(clusters) != 1:
            raise PipelineError(f"the topic has reports of {len(clusters)} clusters in this window")
        brokers = [row.asDict() for row in broker_rates(chosen, window).orderBy("broker").collect()]
        coverage = sum(each["coverage"] for each in brokers) / len(brokers)
        if coverage < LEAST_COVERAGE:
            silent = [
                f"{each['broker']} ({each['coverage']:.0%})" for each in brokers if each["coverage"] < LEAST_COVERAGE
            ]
            raise PipelineError(
                f"{coverage:.1%} of the window is there, and {LEAST_COVERAGE:.0%} are needed;"
                f" brokers with less: {', '.join(silent)}",
                "take a shorter --window, or wait until the brokers have reported for longer",
            )
        rates = partition_rates(chosen, window).where(f"coverage >= {LEAST_COVERAGE}").orderBy("topic", "partition")
        lines = [json.dumps(row.asDict()) for row in rates.toLocalIterator()]
        found.unpersist()
    except (PySparkException, Py4JError) as error:  # the latter stands for Java's own exceptions
        raise _explained(str(error), config, topic) from None
    _replace(file, "".join(f"{line}\n" for line in lines))
    return {
        "cluster_id": clusters[0],
        "begin_ms": window.begin_ms,
        "end_ms": window.end_ms,
        "coverage": coverage,
        "partitions": len(lines),
        "brokers": brokers,
    }


def _explained(text: str, config: Config, topic: str) -> PipelineError:
    """Return the meaning of an error of Spark."""
    if "TopicAuthorizationException" in text:  # for the one topic that the job reads
        return permissions.refusal(config, "TOPIC_AUTHORIZATION_FAILED", [topic], {topic: permissions.READ})
    if "UnknownTopicOrPartitionException" in text:
        return PipelineError(f"topic {topic} does not exist", _NOT_ENABLED)
    short = secured.scrubbed(shortened(text))
    return explain(RuntimeError(short), config) or PipelineError(short)


def _replace(file: Path, text: str) -> None:
    """Replace the file in one step, so that a reader sees the whole file or the one before."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(file)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise PipelineError(f"{file}: {error.strerror}") from None


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Writes what each partition of a cluster costs, as its brokers tell.")
    parser.add_argument("--config", required=True, help="a file with [kafka], [security] and [spark] of pipeline.toml")
    parser.add_argument("--file", required=True, help="the file for `pykbroker balance plan --loads`")
    parser.add_argument("--window", type=_seconds, default=1800.0, metavar="SECONDS", help="default: %(default)s")
    parser.add_argument("--topic", default=TOPIC, help="default: %(default)s")
    parser.add_argument("--master", help="Spark's master (default: all cores of this machine, or spark-submit's)")
    return parser.parse_args(argv)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is no length of a window")
    return seconds
