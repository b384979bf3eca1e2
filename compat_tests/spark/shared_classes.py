"""The classes that a JVM of Spark loads, kept for the next one by the JDK: a quarter less CPU for each start.

`options` makes the archive once for this checkout; who comes meanwhile waits, which costs less than a start without it.
A JVM with another class path ignores the archive.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from compat_tests import needs

#: A start, some queries, and the writing of 180 MB, on a machine that does other things as well.
_PATIENCE_S = 300


@cache
def options() -> str:
    """The options of a JVM that takes its classes from the archive; without the JDK's warnings about it."""
    import pyspark

    archive = needs.CACHE / f"spark-{pyspark.__version__}.jsa"
    archive.parent.mkdir(exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive)
    return f"-XX:SharedArchiveFile={archive} -Xlog:disable"


def _make(archive: Path) -> None:
    fresh = archive.with_suffix(f".{os.getpid()}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "compat_tests.spark.shared_classes", str(fresh)]
    subprocess.run(command, env=environment, check=True, timeout=_PATIENCE_S, capture_output=True)
    fresh.rename(archive)


def main(fresh: str) -> None:
    """Do a little of what the tests do, in a JVM that leaves the archive at its end."""
    from compat_tests.spark.session import make_session

    with tempfile.TemporaryDirectory() as folder:
        leaving = f"-XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
        spark = make_session("shared classes", Path(folder), java_options=leaving)
        lake = f"{folder}/lake"
        spark.range(100).selectExpr("id % 7 AS name", "id AS value").write.format("delta").save(lake)
        spark.read.format("delta").load(lake).groupBy("name").count().collect()
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    main(sys.argv[1])
