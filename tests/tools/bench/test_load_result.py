"""Rates, percentiles and their notes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.tools.bench.load_plan import LoadTold
from pykbroker.tools.bench.load_result import PERCENTILES, percentile, summed


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.sampled_from(PERCENTILES))
def test_a_percentile_is_the_least_value_that_covers_so_many(latencies: list[float], of: float) -> None:
    ordered = sorted(latencies)
    found = percentile(ordered, of)
    needed = len(ordered) * of / 100 - 1e-9
    assert sum(one <= found for one in ordered) >= needed
    assert sum(one < found for one in ordered) < needed


def test_percentiles_of_a_hundred() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert [percentile(hundred, of) for of in PERCENTILES] == [50, 95, 99, 100]


def told(records: int, begun: float, ended: float, cpu: float = 0, **more: object) -> LoadTold:
    found = LoadTold(records=records, bytes=records * 100, begun_ns=int(begun * 1e9), ended_ns=int(ended * 1e9))
    found.cpu_seconds = cpu
    for name, value in more.items():
        setattr(found, name, value)
    return found


def test_processes_beside_each_other_are_one_load() -> None:
    first = told(6000, 1, 3, 0.5, latencies_ms=[4.0, 2.0] * 500)
    second = told(4000, 2, 5, 0.5, latencies_ms=[1.0] * 500, failed=2, failure="no room")
    found = summed([first, second], "produce", 10_000)
    assert (found.records, found.failed, found.failure, found.seconds) == (10_000, 2, "no room", 4)
    assert found.records_per_second == 2500
    assert found.megabytes_per_second == 0.25
    assert found.latency_ms == {50.0: 2, 95.0: 4, 99.0: 4, 99.9: 4}
    assert found.mean_ms == pytest.approx(3500 / 1500)
    assert found.greatest_ms == 4
    assert found.clients_busy == pytest.approx(0.2)
    assert found.notes == (
        "latency: from send() to the acknowledgement, the wait in the client's own batches included",
    )


def test_what_a_number_does_not_say_is_said() -> None:
    found = summed([told(900, 0, 10, 9.5, latencies_ms=[1.0] * 900)], "produce", 1000, rate=100)
    assert found.notes == (
        "latency: from the moment a record was due to its acknowledgement, so a late client counts",
        "the clients (kafka-python) were busy for 95% of the time: they, not the cluster, may set the rate",
        "the rate of 100 records/s was not reached",
        "100 of 1000 records are missing",
        "900 records: the 99.9th percentile is the slowest of them",
    )


def test_of_nothing_nothing_is_said() -> None:
    found = summed([LoadTold(begun_ns=5, ended_ns=5)], "consume", 10)
    assert (found.records, found.seconds, found.records_per_second, found.latency_ms) == (0, 0, 0, {})
    assert "10 of 10 records are missing" in found.notes
