"""One Spark session per test session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from testkit import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def suite_session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    needs.java()
    needs.python_package("pyspark")
    from compat_tests.spark.session import make_session

    # The packages of an object store have 558 MB, so they are added only if a chosen test needs them.
    wanted = any(item.get_closest_marker("object_store") for item in request.session.items)
    session = make_session("compat-tests", tmp_path_factory.mktemp("warehouse"), *(["s3a:"] if wanted else []))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark(suite_session: SparkSession) -> SparkSession:
    """Return the session that tests use, unless their module has one of its own."""
    return suite_session
