from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.node import Node
from compat_tests.spark.pipeline.copying import World
from compat_tests.spark.pipeline.s3 import S3
from compat_tests.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def world(broker: Node, topics: Topics, tmp_path: Path) -> World:
    return World(broker, topics, tmp_path)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    server = S3()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def s3(suite_session: SparkSession, s3_server: S3) -> str:
    """Return the address of a bucket that the session can reach."""
    hadoop = suite_session._jsc.hadoopConfiguration()
    for key, value in s3_server.hadoop.items():
        hadoop.set(key, value)
    return f"s3a://{s3_server.bucket}"
