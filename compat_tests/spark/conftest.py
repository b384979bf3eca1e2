"""One Spark session per test session."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testkit import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Seconds for a test with Spark. The first one also makes the archive of classes: minutes on a busy machine.
_PATIENCE_S = 600
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_PATIENCE_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, Any]:
    report = yield
    if call.excinfo is not None and call.excinfo.errisinstance(pytest.fail.Exception):  # a time-out is one
        from compat_tests.spark.session import forget_call

        forget_call()
    return report


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
