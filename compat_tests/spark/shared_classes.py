"""The classes that a JVM of Spark loads, kept for the next JVM by the JDK, which saves a quarter of the CPU of each
start.

The archive is made once. A process that comes at that time waits, which costs less than a start without it. A JVM with
another class path ignores the archive.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from pathlib import Path

from compat_tests.built import built, run


@cache
def options() -> str:
    """Return the options of a JVM that takes its classes from the archive, without the JDK's warnings about it."""
    import pyspark

    here = Path(__file__)
    sources = [here, here.with_name("session.py"), Path(pyspark.__file__).with_name("version.py")]
    return f"-XX:SharedArchiveFile={built('spark-classes', sources, _make) / 'classes.jsa'} -Xlog:disable"


def _make(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run([sys.executable, "-m", "compat_tests.spark.shared_classes", str(folder / "classes.jsa")], env=environment)
    assert (folder / "classes.jsa").exists(), "the JVM has left no archive"


def main(archive: str) -> None:
    """Do a little of what the tests do, in a JVM that leaves the archive at its end."""
    from compat_tests.spark.session import make_session

    with tempfile.TemporaryDirectory() as folder:
        leaving = f"-XX:ArchiveClassesAtExit={archive} -Xlog:disable"
        spark = make_session("shared classes", Path(folder), java_options=leaving)
        lake = f"{folder}/lake"
        spark.range(100).selectExpr("id % 7 AS name", "id AS value").write.format("delta").save(lake)
        spark.read.format("delta").load(lake).groupBy("name").count().collect()
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    main(sys.argv[1])
