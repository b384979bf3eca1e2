"""kafka-producer-perf-test and kafka-consumer-perf-test: Apache Kafka's lines from what a load has measured."""

from __future__ import annotations

import re

import pytest

from pykbroker.kafka_tools import consumer_perf_test, producer_perf_test
from pykbroker.kafka_tools.__main__ import main
from pykbroker.load.load_plan import LoadTold
from pykbroker.testing import Broker

TOLD = LoadTold(
    records=4, bytes=4 << 20, begun_ns=0, ended_ns=2_000_000_000, cpu_seconds=0.1, latencies_ms=[1.4, 2.4, 3.4, 10.0]
)


def test_the_line_of_the_producer() -> None:
    assert producer_perf_test.summary(TOLD) == (
        "4 records sent, 2.000000 records/sec (2.00 MB/sec), 4.30 ms avg latency, 10.00 ms max latency, "
        "2 ms 50th, 10 ms 95th, 10 ms 99th, 10 ms 99.9th."
    )


def test_the_row_of_the_consumer() -> None:
    cells = consumer_perf_test.row_of(TOLD, 1_700_000_000.25).split(", ")
    assert cells[2:] == ["4.0000", "2.0000", "4", "2.0000", "0", "2000", "2.0000", "2.0000"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:250", cell) for cell in cells[:2])


def test_what_one_sends_the_other_reads(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        at = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "load"]
        words = ["--num-records", "50", "--record-size", "20", "--throughput", "-1", "--producer-props", "acks=1",
                 f"bootstrap.servers={broker.bootstrap_servers}"]  # fmt: skip
        assert main(["producer-perf-test", "--topic", "load", *words]) == 0
        assert capsys.readouterr().out.startswith("50 records sent, ")
        assert main(["consumer-perf-test", *at, "--messages", "50"]) == 0
        header, row = capsys.readouterr().out.splitlines()
        assert header.startswith("start.time, end.time, data.consumed.in.MB, ")
        assert row.split(", ")[4] == "50"
        assert main(["consumer-perf-test", *at, "--num-records", "51", "--timeout", "1", "--hide-header"]) == 0
        warning, row = capsys.readouterr().out.splitlines()
        assert warning.startswith("WARNING: Exiting before consuming the expected number of records: timeout (1 ms)")


@pytest.mark.parametrize("words", [["--payload-monotonic"], ["--transactional-id", "t"]])
def test_an_option_that_is_not_served_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    usual = ["--topic", "t", "--num-records", "1", "--record-size", "1", "--throughput", "-1"]
    with pytest.raises(SystemExit):
        main(["producer-perf-test", *usual, "--bootstrap-server", "localhost:1", *words])
    assert f"{words[0]} is not supported by pykbroker" in capsys.readouterr().err
