"""A rate over about a minute."""

from __future__ import annotations

import pytest

from pykbroker.replica.fetching.rate import Rate


def test_a_steady_rate_is_that_rate_and_fades_when_nothing_comes() -> None:
    now = 0.0
    rate = Rate(lambda: now)
    for second in range(600):
        now = float(second)
        rate.mark(3)
    now = 600.0
    assert rate.count == 1800
    assert rate.one_minute() == pytest.approx(3, abs=0.01)
    now = 660.0
    assert rate.one_minute() == pytest.approx(3 / 2.718, abs=0.1)
    now = 6000.0
    assert rate.one_minute() < 0.001


def test_the_first_five_seconds_are_the_first_rate() -> None:
    now = 0.0
    rate = Rate(lambda: now)
    rate.mark(10)
    assert rate.one_minute() == 0
    now = 5.0
    assert rate.one_minute() == 2
