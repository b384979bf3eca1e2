"""The options of a read: names, defaults and refusals of Spark's Kafka source."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_pykbroker import history_and_tail
from pyspark_pykbroker.batch_source import SegmentSource
from pyspark_pykbroker.faults import WrongOption
from pyspark_pykbroker.source_options import EARLIEST, LATEST, Isolation, Limit, SourceOptions, Subscription

WHERE = {"path": "/d", "subscribe": "t"}


def parse(**given: str) -> SourceOptions:
    return SourceOptions.parse({**WHERE, **given})


def test_what_is_not_given_is_as_in_the_kafka_source() -> None:
    options = parse()
    assert options.directories == ("/d",)
    assert (options.starting, options.ending) == (Limit(everywhere=EARLIEST), Limit(everywhere=LATEST))
    assert options.isolation is Isolation.READ_UNCOMMITTED
    assert (options.include_headers, options.fail_on_data_loss, options.min_partitions) == (False, True, 0)
    assert SourceOptions.parse(WHERE, streaming=True).starting == Limit(everywhere=LATEST)


def test_a_timestamp_comes_before_offsets_by_timestamp_and_those_before_offsets() -> None:
    by_time = '{"t": {"0": 5}}'
    assert parse(startingTimestamp="7", startingOffsetsByTimestamp=by_time).starting == Limit(timestamp=7)
    assert parse(endingOffsets="latest", endingOffsetsByTimestamp=by_time).ending == Limit(timestamps={("t", 0): 5})
    assert parse(startingOffsets='{"t": {"0": -2, "1": 9}}').starting == Limit(offsets={("t", 0): -2, ("t", 1): 9})


def test_names_are_compared_without_regard_to_case_and_directories_are_a_list() -> None:
    options = SourceOptions.parse(
        {"DIRECTORIES": "/a, file:///b", "SubscribePattern": "t.*", "kafka.Isolation.Level": "read_committed"}
    )
    assert options.directories == ("/a", "/b")
    assert options.isolation is Isolation.READ_COMMITTED
    assert options.subscription == Subscription(pattern="t.*")
    assert options.subscription.topics_of({"t1", "x", "__consumer_offsets"}) == ["t1"]
    assert Subscription(pattern=".*").topics_of({"t", "__consumer_offsets"}) == ["t"]


def test_what_only_steers_a_broker_is_accepted_and_kept_by_name() -> None:
    options = parse(**{"kafka.bootstrap.servers": "h:1", "kafka.sasl.jaas.config": "secret", "groupIdPrefix": "g"})
    assert options.without_effect == ("groupidprefix", "kafka.bootstrap.servers", "kafka.sasl.jaas.config")
    assert "secret" not in repr(options)


def test_what_changes_nothing_is_named_in_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "path": "/d",
        "subscribe": "t",
        "kafka.bootstrap.servers": "h:1",
        "kafka.isolation.level": "read_committed",
    }
    source = SegmentSource(given)
    source.reader(source.schema())
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.endswith("these options have no effect, because no broker is asked: kafka.bootstrap.servers")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bogus": "1"}, "unknown options: bogus"),
        ({"assign": '{"t": [0]}'}, "one of subscribe"),
        ({"directories": "/e"}, "once"),
        ({"path": "/a,,b"}, "an empty name"),
        ({"path": "s3a://b/c"}, "a file system"),
        ({"subscribe": ","}, "names nothing"),
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "cannot be -1"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "cannot be -2"),
        ({"startingOffsets": "soon"}, "no JSON"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "no partition"),
        ({"startingOffsets": '{"t": 1}'}, "looks like"),
        ({"startingTimestamp": "-5"}, "since 1970"),
        ({"startingTimestamp": "noon"}, "milliseconds"),
        ({"startingOffsetsByTimestampStrategy": "never"}, "error or latest"),
        ({"isolation.level": "serializable"}, "read_committed"),
        ({"isolation.level": "read_committed", "kafka.isolation.level": "read_committed"}, "not both"),
        ({"minPartitions": "0"}, "above zero"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
    ],
)
def test_what_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        parse(**given)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(WrongOption, match="subscribePattern"):
        SourceOptions.parse({"path": "/d", "subscribePattern": "("})


@pytest.mark.parametrize(
    "options",
    [
        {"history_options": {"endingOffsets": "latest"}},
        {"tail_options": {"startingTimestamp": "7"}},
        {"tail_options": {"KAFKA.isolation.level": "read_committed"}},
        {"kafka": {"kafka.bootstrap.servers": "localhost:1", "startingOffsets": "earliest"}},
        {"kafka": {"kafka.bootstrap.servers": "localhost:1", "subscribePattern": ".*"}},
    ],
)
def test_no_option_moves_the_boundary_of_history_and_tail(options: dict[str, Any]) -> None:
    spark: Any = None
    with pytest.raises(WrongOption, match="which the call itself decides"):
        history_and_tail(spark, "t", **{"directories": "/d", "kafka": {}, **options})
