"""Spark and the pipeline's own client against a node with SASL_SSL, SCRAM and ACLs, with the settings of Java."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pipeline import broker as pipeline_broker
from pipeline.broker import Partition
from pykbroker.testing import SecureBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureBroker]:
    with SecureBroker() as broker:
        yield broker


def test_spark_writes_and_reads(spark: SparkSession, secured: SecureBroker) -> None:
    options = {f"kafka.{key}": value for key, value in secured.java("alice").items()}
    frame = spark.createDataFrame([(f"value {number}",) for number in range(100)], "value string")
    frame.selectExpr("CAST(value AS BINARY) AS value").write.format("kafka").options(**options, topic="orders").save()
    read = spark.read.format("kafka").options(**options, subscribe="orders").load()
    found = {row.value for row in read.selectExpr("CAST(value AS STRING) AS value").collect()}
    assert found == {f"value {number}" for number in range(100)}
    client = pipeline_broker.Broker(secured.java("bob"))
    try:
        assert client.topics(["orders"])["orders"].partitions == (0,)
        only = Partition("orders", 0)
        assert client.ranges([only])[only].latest == 100
    finally:
        client.close()
