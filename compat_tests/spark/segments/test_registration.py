"""A program that registers the data source, started as `python job.py` with another Python in the PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.spark.session import short_lived
from testkit import needs
from testkit.logs.data_directory import DataDirectory
from testkit.logs.helpers import append
from testkit.needs import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOB = """
import sys
from pyspark.sql import SparkSession
from pyspark_pykbroker import register

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
spark = builder.config("spark.driver.extraJavaOptions", sys.argv[2]).getOrCreate()
register(spark)
print("rows:", spark.read.format("pyspark_pykbroker").option("subscribe", "t").load(sys.argv[1]).count())
"""


def test_a_registered_source_runs_in_the_python_of_the_program(tmp_path: Path) -> None:
    needs.java()
    needs.python_package("pyarrow")
    directory = DataDirectory(tmp_path / "data")
    log = directory.log()
    for number in range(30):
        append(log, b"%d" % number)
    directory.checkpoint()
    log.close(clean=True)
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "python3"
    other.write_text("#!/bin/sh\necho 'the wrong Python' >&2\nexit 1\n")
    other.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    env["PATH"] = os.pathsep.join([str(other.parent), env["PATH"]])
    env["PYTHONPATH"] = os.pathsep.join(str(ROOT / folder) for folder in ("spark/segments", "wire", "log"))
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "job.py"), str(directory.path), short_lived()],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "rows: 30\n" in ran.stdout
