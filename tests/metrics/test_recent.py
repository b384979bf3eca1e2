"""Rates, averages, maxima and percentiles of the last minute."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.metrics.recent import (
    QUANTILES,
    RecentHistogram,
    RecentRate,
    RecentTimes,
    SampleWindows,
    TimeHistogram,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_rate_per_second_is_that_since_an_earlier_reading() -> None:
    clock, total = Clock(), 0
    rate = RecentRate(lambda: total, clock)
    clock.now_s, total = 110.0, 50
    assert rate() == 5
    clock.now_s = 175.0
    assert rate() == 0, "the reading at 110 is more than a minute old, and nothing came since"


def test_frequent_readings_of_a_rate_are_not_kept() -> None:
    clock, total = Clock(), 0
    rate = RecentRate(lambda: total, clock)
    began_s = clock.now_s
    clock.now_s, total = began_s + 10, 50
    for _ in range(10_000):
        assert rate() == pytest.approx(5, rel=0.1)
        clock.now_s += 0.9 / 10_000
    assert len(rate._readings) <= 2
    # It reads five times a second, for two minutes in which the number grows by 20 a second.
    for step in range(600):
        clock.now_s, total = began_s + 20 + step / 5, 100 + 4 * step
        rate()
    assert len(rate._readings) <= 62
    assert rate() == pytest.approx(20)


def test_times_are_forgotten_after_two_windows() -> None:
    clock = Clock()
    times = RecentTimes(clock)
    assert times.average_and_most() is None
    times.record(10)
    times.record(20)
    assert times.average_and_most() == (15, 20)
    clock.now_s += 30
    times.record(60)
    assert times.average_and_most() == (30, 60)
    clock.now_s += 30
    assert times.average_and_most() == (60, 60), "the first window is over"
    clock.now_s += 30
    assert times.average_and_most() is None


def test_a_third_window_takes_the_place_of_the_first() -> None:
    clock = Clock()
    times = RecentTimes(clock)
    for ms in (100, 2, 3):
        times.record(ms)
        clock.now_s += 30
    assert times.average_and_most() == (3, 3)


def test_windows_may_be_configured() -> None:
    clock, total = Clock(), 0
    windows = SampleWindows(count=3, seconds=4.0)
    times, rate = RecentTimes(clock, windows), RecentRate(lambda: total, clock, windows=windows)
    for ms in (100, 2, 3):
        times.record(ms)
        assert times.average_and_most() is not None
        clock.now_s, total = clock.now_s + 4, total + 40
        rate()
    assert times.average_and_most() == (2.5, 3), "the first of three windows is over"
    assert rate() == 10
    clock.now_s += 12
    assert rate() == 0, "the readings of 12 s and earlier do not count"
    assert times.average_and_most() is None


def test_a_rate_over_hours_keeps_few_readings() -> None:
    clock, total = Clock(), 0
    rate = RecentRate(lambda: total, clock, windows=SampleWindows(count=10, seconds=3600.0))
    for _ in range(50_000):
        clock.now_s, total = clock.now_s + 1, total + 5
        rate()
    assert len(rate._readings) <= 62
    assert rate() == pytest.approx(5)


def test_a_histogram_covers_the_time_between_two_readings() -> None:
    clock = Clock()
    histogram = TimeHistogram(clock)
    assert set(histogram.numbers().values()) == {0}
    clock.now_s += 1
    for ms in range(1, 1001):
        histogram.record(ms)
    assert histogram.numbers() == {"p50": 500, "p95": 950, "p99": 990, "p999": 999, "max": 1000}
    histogram.record(7)
    assert histogram.numbers()["max"] == 1000, "this is the same reading, because no second is over"
    clock.now_s += 1
    assert histogram.numbers() == dict.fromkeys(("p50", "p95", "p99", "p999", "max"), 7)
    clock.now_s += 1
    assert set(histogram.numbers().values()) == {0}
    assert histogram.total == 1001


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=300))
def test_a_histogram_stays_small_and_near_the_truth(recorded: list[float]) -> None:
    histogram = TimeHistogram(Clock())
    for ms in recorded:
        histogram.record(ms)
    assert len(histogram._counts) <= 2_000 + (60_000 - 2_000) // 50 + 1
    numbers = histogram.numbers()
    assert list(numbers.values()) == sorted(numbers.values())
    most = min(max(recorded), 60_000)
    assert most * 0.97 - 1 <= numbers["max"] <= most
    half = min(sorted(recorded)[(len(recorded) - 1) // 2], 60_000)
    assert half * 0.97 - 1 <= numbers["p50"] <= half


def test_quantiles_of_a_histogram() -> None:
    histogram = RecentHistogram(Clock())
    assert dict(histogram.quantiles()) == dict.fromkeys((name for name, _ in QUANTILES), 0)
    for value in range(1, 101):
        histogram.record(value)
    found = dict(histogram.quantiles())
    assert found == {"0.50": 50, "0.75": 75, "0.95": 95, "0.98": 98, "0.99": 99, "0.999": 100}
    assert histogram.quantiles() == histogram.quantiles(), "reading changes nothing"
    assert histogram.count == 100


def test_a_histogram_forgets_a_value_after_two_windows() -> None:
    clock = Clock()
    histogram = RecentHistogram(clock)
    histogram.record(7)
    clock.now_s += 200
    histogram.record(9)
    assert dict(histogram.quantiles())["0.999"] == 9
    clock.now_s += 200
    histogram.record(8)
    assert dict(histogram.quantiles())["0.50"] == 8
    clock.now_s += 200
    assert dict(histogram.quantiles())["0.999"] == 8, "the first window is over"
    clock.now_s += 300
    assert dict(histogram.quantiles())["0.999"] == 0
    assert histogram.count == 3
    histogram.record(3)
    assert dict(histogram.quantiles())["0.50"] == 3


@given(st.lists(st.integers(0, 2**63), min_size=1))
def test_a_quantile_is_too_small_by_less_than_two_percent(values: list[int]) -> None:
    histogram = RecentHistogram(Clock())
    for value in values:
        histogram.record(value)
    values.sort()
    for (name, found), (_, part) in zip(histogram.quantiles(), QUANTILES, strict=True):
        exact = values[max(0, math.ceil(part * len(values)) - 1)]
        assert found <= exact, name
        assert found >= exact * 0.98, name
    assert len(histogram._counts) <= 128 + 64 * 57
