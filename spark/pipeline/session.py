"""The Spark session of the jobs, and the settings that they rely on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyspark

from pipeline.config import Config
from pipeline.errors import PipelineError
from pipeline.lake import object_store
from pipeline.secured import HIDDEN_TEXT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark 4 is built for Scala 2.13; its own parts carry Spark's version. Delta Lake 4.0.0 is the one for Spark 4.0.
# `spark-submit` needs them as --packages.
DELTA = "4.0.0"
PACKAGES = ",".join(
    [f"org.apache.spark:{part}_2.13:{pyspark.__version__}" for part in ("spark-sql-kafka-0-10", "spark-avro")]
    + [f"io.delta:delta-spark_2.13:{DELTA}"]
)
# For the Hadoop that is in Spark 4.0. It brings AWS's SDK, software.amazon.awssdk:bundle:2.24.6, 558 MB.
OBJECT_STORE = "org.apache.hadoop:hadoop-aws:3.4.1"

#: Logs the error that ended a query, with 80 lines of stack, before the program can explain it (`explain`).
STREAMS_LOGGER = "org.apache.spark.sql.execution.streaming.MicroBatchExecution"
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
PARTS = {
    "org.apache.spark.sql.kafka010.KafkaSourceProvider": "no Kafka connector",
    "org.apache.spark.sql.avro.AvroDataToCatalyst": "no Avro",
    EXTENSION: "no Delta Lake",
    object_store.FILE_SYSTEM: "no S3A file system",
}

# Avro allocates the length in a length field before it checks that there are so many bytes. A few bytes of garbage can
# ask for two gigabytes, and the executor dies with all its tasks. No value is larger than this.
MAX_VALUE_BYTES = 16 * 1024 * 1024
AVRO_LIMITS = {
    f"org.apache.avro.limits.{kind}.maxLength": str(MAX_VALUE_BYTES) for kind in ("string", "bytes", "collectionItems")
}

# Spark shows the options of sources and sinks in plans, in its UI and its event log. It hides an option if the first
# expression matches its key or value. The second one is for the relation that `explain` shows for a stream, whose
# options Spark does not check. [spark] may add to both.
HIDDEN = {
    "spark.sql.redaction.options.regex": "(?:(?i)jaas|password|secret|token|keystore[.]key)",
    "spark.sql.redaction.string.regex": f"(?:{HIDDEN_TEXT})",
}

#: Names of classes and packages in the JVM, as PySpark and this pipeline write them.
NAMES = ("PythonUtils", "PythonSQLUtils", "functions", "org", "scala", "org.apache.spark.sql.functions")

DEFAULTS = {
    "spark.sql.redaction.options.regex": "(?i)url",  # the default of Spark
    "spark.sql.shuffle.partitions": "4",  # fixed by the first batch of a checkpoint
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta reads its log in this many tasks; its default, 50, costs a small table seconds.
    "spark.databricks.delta.snapshotPartitions": "2",
    # Delta would write a checkpoint of a lake's log within a batch. This value prevents that in tables that this
    # session creates. The driver writes checkpoints in parallel to the batches (lake/delta_log.py).
    "spark.databricks.delta.properties.defaults.checkpointInterval": str(2**31 - 1),
    # Statistics of a batch's files take a third of a small commit's time. Compaction collects them.
    "spark.databricks.delta.stats.collect": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default, INT96, is deprecated and unordered
    # By default a query without new records and without an interval asks the brokers 100 times a second.
    "spark.sql.streaming.pollingDelay": "200ms",
    # PySpark would ask the JVM four times for each expression, to name a line of Python in Spark's errors. A third of
    # the calls that build the queries are for that.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def packages(places: Iterable[str]) -> str:
    """Return the packages that Spark needs for a lake and checkpoints at these places, in the form of --packages."""
    return f"{PACKAGES},{OBJECT_STORE}" if any(map(object_store.is_object_store, places)) else PACKAGES


def settings(own: dict[str, str], places: Iterable[str] = ()) -> dict[str, str]:
    """Return the settings of a session: defaults, then the configuration's, then those that the transforms and the lake
    need."""
    found = {**DEFAULTS, **own}
    wanted = [*found.get("spark.jars.packages", "").split(","), *packages(places).split(",")]
    found["spark.jars.packages"] = ",".join(dict.fromkeys(filter(None, wanted)))
    extensions = [*found.get("spark.sql.extensions", "").split(","), EXTENSION]
    found["spark.sql.extensions"] = ",".join(dict.fromkeys(filter(None, extensions)))
    found["spark.sql.session.timeZone"] = "UTC"
    found[object_store.SETTING] = object_store.CLASS
    for key, secret in HIDDEN.items():
        own_hidden = found.get(key) or found.get(key.replace(".sql", ""))
        found[key] = f"(?:{own_hidden})|{secret}" if own_hidden else secret
    limits = " ".join(f"-D{key}={value}" for key, value in AVRO_LIMITS.items())
    for java_options in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        found[java_options] = f"{found.get(java_options, '')} {limits}".strip()
    return found


def make(name: str, config: Config, master: str | None) -> SparkSession:
    """Return the session. Without a master here or from `spark-submit` it uses all cores of this machine.

    Raises:
        PipelineError: `spark-submit` was not given the packages.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    places = (config.checkpoints, config.lake.path)
    for key, value in settings(config.spark, places).items():
        builder = builder.config(key, value)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is not None:
        builder = builder.master(master)
    elif not submitted and "spark.master" not in config.spark:
        builder = builder.master("local[*]")
    session = builder.getOrCreate()
    keep_names(session)
    if "spark.log.level" not in config.spark:
        _silence(session, STREAMS_LOGGER)
    if submitted:  # the driver's JVM started before its options
        jvm = session.sparkContext._jvm
        assert jvm is not None
        on_object_store = any(map(object_store.is_object_store, places))
        needed = [name for name in PARTS if on_object_store or name != object_store.FILE_SYSTEM]
        loadable = jvm.org.apache.spark.util.Utils.classIsLoadable
        missing = [PARTS[name] for name in needed if not loadable(name)]
        if missing:
            session.stop()
            raise PipelineError(f"Spark has {' and '.join(missing)}", f"spark-submit --packages {packages(places)}")
        for key, value in AVRO_LIMITS.items():
            jvm.java.lang.System.setProperty(key, value)
    if any(map(object_store.is_object_store, places)):
        object_store.install(session)
    return session


def keep_names(session: SparkSession) -> None:
    """Look up the names once that PySpark looks up for each expression.

    The JVM searches a short name in ten packages, each time in all jars of its class path, which are hundreds.
    """
    jvm: Any = session._jvm
    for name in NAMES:
        setattr(jvm, name, getattr(jvm, name))


def _silence(session: SparkSession, logger: str) -> None:
    jvm: Any = session.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)
