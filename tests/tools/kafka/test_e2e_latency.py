"""kafka-e2e-latency: Apache Kafka's lines, for records that go through a broker and back."""

from __future__ import annotations

import re

import pytest

from pykbroker.testing import Broker
from pykbroker.tools.kafka import e2e_latency
from pykbroker.tools.kafka.__main__ import main


def test_the_last_lines() -> None:
    assert e2e_latency.summary([1_500_000, 2_900_000, 10_000_000, 3_000_000]) == [
        "Avg latency: 4.3500 ms",
        "Percentiles: 50th = 3, 99th = 10, 99.9th = 10",
    ]


@pytest.mark.slow
def test_each_record_comes_back_with_key_and_headers(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        at = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "rounds"]
        sizes = [
            "--record-size",
            "100",
            "--record-key-size",
            "5",
            "--num-headers",
            "2",
            "--record-header-key-size",
            "3",
        ]
        assert main(["e2e-latency", *at, "--num-records", "3", "--producer-acks", "all", *sizes]) == 0
        made, first, mean, percentiles = capsys.readouterr().out.splitlines()
        assert made.startswith('Topic "rounds" does not exist. Will create topic with 1 partition(s)')
        assert re.fullmatch(r"0\t\d+\.\d+", first)
        assert re.fullmatch(r"Avg latency: \d+\.\d{4} ms", mean)
        assert re.fullmatch(r"Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+", percentiles)
        # The form of before Apache Kafka 4.2.
        assert main(["e2e-latency", broker.bootstrap_servers, "rounds", "1", "1", "10"]) == 0
        assert capsys.readouterr().out.startswith("WARNING: Positional argument usage is deprecated")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--producer-acks", "0"], "Invalid value for --producer-acks."),
        (["--num-records", "0"], "Value for --num-records must be a positive integer."),
        (["--record-size", "-1"], "Value for --record-size must be a non-negative integer."),
    ],
)
def test_what_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"--producer-acks": "1", "--num-records": "1", "--record-size": "1"} | {words[0]: words[1]}
    at = ["--bootstrap-server", "localhost:1", "--topic", "t"]
    with pytest.raises(SystemExit) as ended:
        main(["e2e-latency", *at, *(word for pair in good.items() for word in pair)])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(said)
    assert main(["e2e-latency", "one", "two"]) == 1
    assert capsys.readouterr().err.startswith("Invalid number of arguments. Expected 5 or 6")
