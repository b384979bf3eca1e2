"""The wheels, the three secured nodes, and the Spark with two workers that the tests of this folder share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.spark.cluster.secured import Secured
from compat_tests.spark.cluster.standalone import Standalone
from testkit import needs


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the wheels of the pipeline and of the data source, as pip makes them."""
    folder = tmp_path_factory.mktemp("wheels")
    for source in ("spark", "spark/segments"):
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(needs.ROOT / source)]
        subprocess.run(pip, check=True, timeout=300)
    return folder


@pytest.fixture(scope="session")
def pipeline_wheel(wheels: Path) -> Path:
    [found] = wheels.glob("pykbroker_pipeline-*.whl")
    return found


@pytest.fixture(scope="session")
def segments_wheel(wheels: Path) -> Path:
    [found] = wheels.glob("pyspark_pykbroker-*.whl")
    return found


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("nodes")) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    needs.java()
    needs.python_package("pyspark")
    with Standalone(tmp_path_factory.mktemp("cluster")) as spark:
        yield spark
