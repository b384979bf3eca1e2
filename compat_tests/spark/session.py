"""A small local Spark with its Kafka connector, which is resolved as for a user, through spark.jars.packages."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compat_tests.spark import shared_classes
from pipeline.session import keep_names, settings
from testkit.needs import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Options of a JVM that lives for seconds or minutes, and plans queries that were never planned before. One compiler
#: alone would have 48 MB for its code; Spark with Delta fills that, and its code is interpreted from then on.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=192m -XX:+UseSerialGC"


#: Settings of sessions that plan most of their queries once. Compiled code for a query would cost more than it saves.
QUICK = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def short_lived() -> str:
    """Return the options of drivers, executors and daemons in tests."""
    return f"{_SHORT_LIVED} {shared_classes.options()}"


def make_session(name: str, warehouse: Path, *places: str, java_options: str | None = None) -> SparkSession:
    """Return a small form of the session that the pipeline's jobs run in, with lakes at these places. `java_options`
    replace the options for shared classes."""
    from pyspark.sql import SparkSession

    # Spark looks for data sources in packages that its Python workers can import, which are those of the tests' Python.
    found = [str(ROOT / folder) for folder in ("spark/segments", "wire", "log")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*found, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    own = {
        **QUICK,
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": short_lived() if java_options is None else f"{_SHORT_LIVED} {java_options}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.default.parallelism": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # for VACUUM, which uses 10,000
        "spark.sql.warehouse.dir": str(warehouse),
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in settings(own, places).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    keep_names(session)
    return session


def forget_call() -> None:
    """Close the connection of this thread to the JVM, so that the next call makes another one.

    A test that its time-out has ended may leave a call whose answer would be taken for that of the next call, and then
    each later test of the session fails.
    """
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    connection = None if gateway is None else gateway._gateway_client.get_thread_connection()
    if connection is not None:
        connection.close()
