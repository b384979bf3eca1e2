"""The data source in a session that has not found it by itself.

Spark looks for installed packages on the driver, in a separate Python that `--py-files` does not reach. A data source
that a program registers is sent to the Python of executors, with the archives for its path. Spark takes only archives
whose names end with .zip, and does not use a wheel. So the wheel is sent a second time, as a .zip.

Invariant: the copy stays as long as this Python, because executors that start later fetch it, too.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark_pykbroker
from pyspark_pykbroker.batch_source import SegmentSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Let `spark.read.format("pyspark_pykbroker")` work in this session. Do nothing if it works already.

    On this machine the data source then runs in the Python of this program, unless PYSPARK_PYTHON or a setting names
    another one. Spark's own choice is the `python3` of the PATH, which may not have this package.
    """
    session: Any = spark._jsparkSession
    if session.sessionState().dataSourceManager().dataSourceExists(SegmentSource.name()):
        return
    if (spark.sparkContext.master or "").startswith("local") and not _names_a_python(spark):
        spark.sparkContext.pythonExec = sys.executable
    archive = _archive()
    if archive is not None and archive.suffix == ".whl":
        spark.sparkContext.addPyFile(str(_as_zip(archive)))
    spark.dataSource.register(SegmentSource)


def _names_a_python(spark: SparkSession) -> bool:
    settings = ("spark.pyspark.python", "spark.pyspark.driver.python")
    return "PYSPARK_PYTHON" in os.environ or any(spark.sparkContext.getConf().contains(key) for key in settings)


def _archive() -> Path | None:
    """Return the file that this package was imported from, or None if that is a folder."""
    found = getattr(pyspark_pykbroker.__loader__, "archive", None)
    return None if found is None else Path(found)


def _as_zip(wheel: Path) -> Path:
    folder = tempfile.mkdtemp(prefix="pyspark-pykbroker-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(shutil.copyfile(wheel, Path(folder) / f"{wheel.stem}.zip"))
