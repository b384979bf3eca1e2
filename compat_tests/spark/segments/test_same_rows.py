"""Segments and `format("kafka")` give the same rows for a topic, on directories of pykbroker and of Apache Kafka."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from compat_tests.spark.segments.estates import OURS, Estate, message_of, rows
from testkit.clients import NOW_MS

JSON_RANGE = {
    "startingOffsets": json.dumps({"mixed": {"0": 100, "1": -2}}),
    "endingOffsets": json.dumps({"mixed": {"0": 1201, "1": -1}}),
}


#: Each kind of node writes these in its own way.
OF_EACH_KIND: dict[str, dict[str, Any]] = {
    "with headers": {"subscribe": "mixed", "includeHeaders": "true"},
    "committed transactions": {
        "subscribe": "transactions",
        "kafka_isolation_level": "read_committed",
        "minPartitions": "5",
    },
    "compacted": {"subscribe": "compacted", "minPartitions": "3"},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "in nine tasks": {"subscribe": "mixed", "minPartitions": "9"},
    "between timestamps": {
        "assign": '{"mixed": [1]}',
        "startingTimestamp": NOW_MS + 5_003,
        "endingTimestamp": NOW_MS + 25_000,
    },
    "between offsets": {"subscribe": "mixed", **JSON_RANGE},
    "transactions": {"subscribe": "transactions"},
    "topics by a pattern": {"subscribePattern": "app.*|trans.*", "kafka_isolation_level": "read_committed"},
}


@pytest.mark.parametrize("options", OF_EACH_KIND.values(), ids=OF_EACH_KIND)
def test_the_same_rows(estate: Estate, options: dict[str, Any]) -> None:
    frame = estate.segments(**options)
    wanted = estate.kafka(**options)
    assert frame.schema == wanted.schema
    found, expected = rows(frame), rows(wanted)
    assert len(found) == len(expected) > 0
    assert found == expected


@OURS
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_same_rows_of_these_options(estate: Estate, options: dict[str, Any]) -> None:
    test_the_same_rows(estate, options)


@OURS
def test_a_job_swaps_one_word(estate: Estate) -> None:
    def job(source: str) -> list[Any]:
        reader = estate.spark.read.format(source).option("kafka.bootstrap.servers", estate.node.bootstrap)
        # The Kafka source ignores `path`, because it is an unknown option there.
        reader = reader.option("path", str(estate.node.data_dir)).option("subscribe", "mixed")
        frame = reader.load().where("value IS NOT NULL").selectExpr("partition", "length(value) AS size")
        return sorted(map(tuple, frame.groupBy("partition").sum("size").collect()))

    assert job("pyspark_pykbroker") == job("kafka") != []


@OURS
def test_columns_are_pruned_by_a_schema(estate: Estate) -> None:
    reader = estate.spark.read.format("pyspark_pykbroker").option("subscribe", "mixed")
    frame = reader.schema("offset bigint, value binary").load(str(estate.node.data_dir))
    wanted = estate.kafka(subscribe="mixed").select("offset", "value")
    assert sorted(frame.collect(), key=repr) == sorted(wanted.collect(), key=repr)
    assert frame.columns == ["offset", "value"]


@OURS
def test_a_time_behind_the_last_record(estate: Estate) -> None:
    late = {"subscribe": "mixed", "startingTimestamp": NOW_MS + 10**9}
    for source in (estate.segments, estate.kafka):
        with pytest.raises(Exception, match=str(late["startingTimestamp"])):
            source(**late).count()
        assert source(**late, startingOffsetsByTimestampStrategy="latest").count() == 0
        ended = source(subscribe="mixed", endingTimestamp=late["startingTimestamp"])
        assert ended.count() == source(subscribe="mixed").count()


@OURS
def test_what_is_wrong_is_said_through_spark(estate: Estate) -> None:
    with pytest.raises(Exception, match="pyspark_pykbroker") as unknown:
        estate.segments(subscribe="mixed", bogus="1")
    assert "WrongOption: unknown options: bogus" in message_of(unknown.value)
    with pytest.raises(Exception, match="pyspark_pykbroker") as missing:
        estate.segments(subscribe="nothing").collect()
    assert "no directory has a partition of nothing" in message_of(missing.value)
    for error in (unknown.value, missing.value):
        assert re.match(r"\[[A-Z_]+\] [^:]*: pyspark_pykbroker\.faults\.WrongOption: ", message_of(error))
        assert "Traceback" not in message_of(error)
