"""A stored run has every round of every side, also when it was interrupted and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from bench import report
from bench import run as runner
from bench.measurements import Figure, Found, Kind, Measurement
from bench.servers import ApacheKafka, Pykbroker, Server, checkout
from bench.sides import KAFKA_AND_PYKBROKER, Sides

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
    row = cast(dict[str, Any], runner.compared(a_measurement("one"), Figure("throughput", "req/s"), values))
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
    row = runner.compared(a_measurement("one"), figure, values)
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
    rows = [cast(dict[str, Any], runner.compared(killed, figure, values)) for figure in killed.figures]
    assert [(row["kafka"], row["pykbroker"]) for row in rows] == [(1.15, pytest.approx(0.3)), (9.0, 0.9)]
    assert rows[1]["ratio"] == 10.0
    assert runner.beside(killed, values) == {}


SOURCES = Sides("slow source", "quick source")


def a_comparison() -> Measurement:
    """Each round takes the slow source 6 s and 8 s, the quick one 2 s and 4 s."""

    def measure(subject: Told, seconds: float) -> Found:
        subject.start()
        return {SOURCES.others("time"): [6.0, 8.0], "time": [2.0, 4.0], "lost": 3.0, "rows": 5.0}

    figures = (
        Figure("time", "s", more_is_better=False, target=2),
        Figure("lost", "", more_is_better=False, at_most=0),
        Figure("neither side has it", "s"),
    )
    return Measurement("compared", measure, figures, fresh=True, kind=NODE, sides=SOURCES)


def test_a_measurement_with_sides_of_its_own_is_taken_of_pykbroker_alone() -> None:
    comparison = a_comparison()
    STORY.clear()
    values = runner.Bench([ApacheKafka, Pykbroker, checkout(Path("elsewhere"))], 2, 0, 0).measure(comparison)
    assert STORY == ["start node of pykbroker", "stop node of pykbroker"] * 2
    time, lost = (cast(dict[str, Any], runner.compared(comparison, each, values)) for each in comparison.figures[:2])
    assert time["sides"] == ["slow source", "quick source"]
    assert time["slow source_all"] == [6.0, 8.0, 6.0, 8.0]
    assert (time["slow source"], time["quick source"]) == (7.0, 3.0)
    assert time["ratio"] == pytest.approx(7 / 3)
    assert "kafka" not in time
    # A figure with a limit may have only one side.
    assert (lost["quick source"], lost["ratio"]) == (3.0, 0.0)
    assert "slow source" not in lost
    assert runner.compared(comparison, comparison.figures[2], values) is None
    assert runner.beside(comparison, values) == {"rows": {"pykbroker": [5.0, 5.0]}}


def test_a_stored_comparison_is_shown_with_the_names_of_its_sides(capsys: pytest.CaptureFixture[str]) -> None:
    comparison = a_comparison()
    record = a_record()
    runner.run(runner.Bench([ApacheKafka, Pykbroker], 1, 0, 0), [comparison], record, lambda: None)
    assert "slow source          7  quick source          3 s        2.33x  ok (at least 2x)" in capsys.readouterr().out
    table = report.table(record["results"], spread=True)
    assert "| slow source | quick source | quick source is better by | rounds | goal |" in table
    assert "| compared | time | 7 s | 3 s | 2.33x | 2.00x to 3.00x | at least 2x |" in table
    assert "| compared | lost |  | 3 |  | one | at most 0: missed |" in table


def test_the_rows_of_a_part_have_the_same_sides() -> None:
    sides: dict[str, set[Sides]] = {}
    for known in runner.KNOWN:
        sides.setdefault(report.part_of(known.title), set()).add(known.sides)
    assert all(len(found) == 1 for found in sides.values())
    own = {part for part, found in sides.items() if found != {KAFKA_AND_PYKBROKER}}
    assert own == {report.ROLLS, report.SEGMENTS, report.BALANCE}
    # The README compares with Apache Kafka.
    assert not own & report.CHOSEN.keys()


class Told:
    """A subject that records the calls and does nothing."""

    def __init__(self, kind: str, side: type[Server], story: list[str]) -> None:
        self._name = f"{kind} of {side.name}"
        self._story = story

    def start(self) -> None:
        self._story.append(f"start {self._name}")

    def stop(self) -> None:
        self._story.append(f"stop {self._name}")

    def delete_topics(self) -> None:
        self._story.append(f"delete {self._name}")


#: of NODE
STORY: list[str] = []
NODE = Kind("node", lambda side: Told("node", side, STORY), lambda subject, seconds: None)


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
    # A fresh node runs while the others run, a fresh cluster alone.
    assert measure(node, fresh=True) == ["stop node of pykbroker"]
    assert measure(trio) == ["stop node of pykbroker", "start trio of pykbroker", "delete trio of pykbroker"]
    assert measure(trio, fresh=True) == ["stop trio of pykbroker"] * 2
    assert measure(trio) == ["start trio of pykbroker", "delete trio of pykbroker"]
    bench.stop()
    assert story == ["stop trio of pykbroker"]
