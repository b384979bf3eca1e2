"""One node of each kind with the same topics, in the session that all tests of Spark share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from compat_tests.node import make_node
from compat_tests.spark.segments.estates import CONFIG, Estate
from testkit import needs
from testkit.oracle.kafka import kafka_libs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session", params=["pykbroker", "apache-kafka"])
def estate(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Estate]:
    """The node of one kind. A test that OURS marks has Apache Kafka's only in a long run."""
    needs.python_package("pyarrow")
    if request.param == "apache-kafka":
        kafka_libs()
    node = make_node(request.param, CONFIG)
    try:
        made = Estate(node.start(), spark)
        yield made
        made.close()
    finally:
        node.close()
