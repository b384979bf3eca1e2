"""A stored run has every round of every side, also when it was interrupted and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from bench import report
from bench import run as runner
from bench.measurements import Figure, Measurement
from bench.servers import ApacheKafka, Pykbroker, Server, checkout

SPEED = {"Apache Kafka": 100.0, "pykbroker": 200.0, "before": 160.0}


class Brokers(runner.Bench):
    """Sides that are never started."""

    def __init__(self, order: list[str]) -> None:
        super().__init__([ApacheKafka, Pykbroker, checkout(Path("elsewhere"))], 3, 0, 0)
        self._order = order

    def _measure_once(self, measurement: Measurement, side: type[Server]) -> dict[str, float]:
        self._order.append(side.name)
        return {"throughput": SPEED[side.name] + len(self._order) // 4, "CPU": 1.0}


def a_measurement(title: str, *, repeat: bool = True) -> Measurement:
    return Measurement(title, lambda server, seconds: {}, (Figure("throughput", "req/s"),), repeat=repeat)


def a_record() -> dict[str, Any]:
    return {"fsync_ms": 0, "alone": False, "done": [], "results": [], "beside": {}, "whole": False}


def test_each_side_begins_a_round_in_its_turn() -> None:
    order: list[str] = []
    values = Brokers(order).measure(a_measurement("one"))
    assert order == [
        *("Apache Kafka", "pykbroker", "before"),
        *("pykbroker", "before", "Apache Kafka"),
        *("before", "Apache Kafka", "pykbroker"),
    ]
    row = cast(dict[str, Any], runner.compared("one", Figure("throughput", "req/s"), values))
    assert row["kafka_all"] == [100.0, 101.0, 102.0]
    assert row["pykbroker_all"] == [200.0, 201.0, 202.0]
    assert row["before_all"] == [160.0, 161.0, 161.0]
    assert row["ratio"] == 201.0 / 101.0
    assert runner.beside(a_measurement("one"), values)["CPU"]["before"] == [1.0, 1.0, 1.0]


def test_a_resumed_run_measures_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [a_measurement("one"), a_measurement("two"), a_measurement("three", repeat=False)]
    monkeypatch.setattr(runner, "KNOWN", wanted)
    record, stored, order = a_record(), [], list[str]()

    def store() -> None:
        stored.append((list(record["done"]), record["whole"]))
        if record["done"] == ["one"]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(Brokers(order), wanted, record, store)
    assert len(order) == 9
    runner.run(Brokers(order), wanted, record, store)
    assert len(order) == 9 + 9 + 3
    assert stored == [(["one"], False), (["one", "two"], False), (["one", "two", "three"], True)]
    assert [row["measurement"] for row in record["results"]] == ["one", "two", "three"]


def test_a_run_with_a_slow_device_is_not_the_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "KNOWN", [a_measurement("one")])
    record = a_record() | {"fsync_ms": 1.0}
    runner.run(Brokers([]), runner.KNOWN, record, lambda: None)
    assert record["done"] == ["one"]
    assert not record["whole"]


def test_without_apache_kafka_a_row_compares_with_the_checkout_before() -> None:
    figure = Figure("throughput", "req/s", more_is_better=False)
    values = {"pykbroker": {"throughput": [1.0, 2.0, 3.0]}, "before": {"throughput": [4.0]}}
    row = runner.compared("one", figure, values)
    assert row is not None
    assert (row["ratio"], row["before_all"]) == (2.0, [4.0])
    assert "kafka" not in row
    assert "before" in report.format_row(row)
