"""A stored run has every round of every side, also when it was interrupted and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from bench import report
from bench import run as runner
from bench.measurements import Figure, Found, Kind, Measurement
from bench.servers import ApacheKafka, Pykbroker, Server, checkout

SPEED = {"Apache Kafka": 100.0, "pykbroker": 200.0, "before": 160.0}


class Brokers(runner.Bench):
    """Sides that are never started."""

    def __init__(self, order: list[str]) -> None:
        super().__init__([ApacheKafka, Pykbroker, checkout(Path("elsewhere"))], 3, 0, 0)
        self._order = order

    def _measure_once(self, measurement: Measurement, side: type[Server]) -> Found:
        self._order.append(side.name)
        return {"throughput": SPEED[side.name] + len(self._order) // 4, "CPU": 1.0}


def a_measurement(title: str, most_rounds: int | None = None) -> Measurement:
    return Measurement(title, lambda server, seconds: {}, (Figure("throughput", "req/s"),), most_rounds=most_rounds)


def a_record() -> dict[str, Any]:
    return {"fsync_ms": 0, "alone": False, "done": [], "results": [], "beside": {}, "whole": []}


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
    wanted = [a_measurement("one"), a_measurement("two"), a_measurement("three", 1)]
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
    assert stored == [(["one"], []), (["one", "two"], []), (["one", "two", "three"], [report.ONE_NODE])]
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


def test_a_run_of_the_clusters_rows_is_whole_for_their_part(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = [a_measurement("three nodes, idle"), a_measurement("three nodes, killed")]
    monkeypatch.setattr(runner, "KNOWN", [a_measurement("start"), *clusters])
    record, stored = a_record(), []
    runner.run(Brokers([]), clusters, record, lambda: stored.append(record["whole"]))
    assert stored == [[], [report.THREE_NODES]]


def test_every_measurement_of_a_cluster_stands_in_its_part() -> None:
    for known in runner.KNOWN:
        assert report.part_of(known.title) == known.kind.name, known.title
    rows = {(known.title, figure.name) for known in runner.KNOWN for figure in known.figures}
    assert not {key for chosen in report.CHOSEN.values() for key in chosen} - rows


def test_a_round_may_have_several_values_and_the_worst_may_count() -> None:
    kills = iter([[0.1, 0.3], [0.2, 0.9], [0.2, 0.4], [2.0, 9.0]])

    class Killing(runner.Bench):
        def _measure_once(self, measurement: Measurement, side: type[Server]) -> Found:
            return {"pause": next(kills)}

    median = Figure("pause", "s", more_is_better=False)
    worst = Figure("pause, worst", "s", more_is_better=False, of="pause", worst=True)
    killed = Measurement("killed", lambda cluster, seconds: {}, (median, worst), most_rounds=2)
    values = Killing([ApacheKafka, Pykbroker], 3, 0, 0).measure(killed)
    assert values == {"Apache Kafka": {"pause": [0.1, 0.3, 2.0, 9.0]}, "pykbroker": {"pause": [0.2, 0.9, 0.2, 0.4]}}
    rows = [cast(dict[str, Any], runner.compared("killed", figure, values)) for figure in killed.figures]
    assert [(row["kafka"], row["pykbroker"]) for row in rows] == [(1.15, pytest.approx(0.3)), (9.0, 0.9)]
    assert rows[1]["ratio"] == 10.0
    assert runner.beside(killed, values) == {}


class Told:
    """A subject that is only told what to do."""

    def __init__(self, kind: str, side: type[Server], story: list[str]) -> None:
        self._name = f"{kind} of {side.name}"
        self._story = story

    def start(self) -> None:
        self._story.append(f"start {self._name}")

    def stop(self) -> None:
        self._story.append(f"stop {self._name}")

    def delete_topics(self) -> None:
        self._story.append(f"delete {self._name}")


def test_what_runs_of_one_kind_ends_before_another_begins() -> None:
    story: list[str] = []
    node = Kind("node", lambda side: Told("node", side, story), lambda subject, seconds: None)
    trio = Kind("trio", lambda side: Told("trio", side, story), lambda subject, seconds: None, alone=True)

    def measure(kind: Kind[Told], *, fresh: bool = False) -> list[str]:
        bench.measure(Measurement("", lambda subject, seconds: {}, (), fresh=fresh, kind=kind))
        told = list(story)
        story.clear()
        return told

    bench = runner.Bench([Pykbroker], 1, 0, 0)
    assert measure(node) == ["start node of pykbroker", "delete node of pykbroker"]
    assert measure(node) == ["delete node of pykbroker"]
    # A fresh node runs beside the others, a fresh cluster alone.
    assert measure(node, fresh=True) == ["stop node of pykbroker"]
    assert measure(trio) == ["stop node of pykbroker", "start trio of pykbroker", "delete trio of pykbroker"]
    assert measure(trio, fresh=True) == ["stop trio of pykbroker"] * 2
    assert measure(trio) == ["start trio of pykbroker", "delete trio of pykbroker"]
    bench.stop()
    assert story == ["stop trio of pykbroker"]
