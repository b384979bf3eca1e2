"""The intervals of load reports follow each other without a gap."""

from __future__ import annotations

from pykbroker.load_reports.interval_clock import IntervalClock, MeasuredInterval


def test_each_interval_begins_where_the_last_one_ended() -> None:
    now, cpu_ms = 10.0, 500
    clock = IntervalClock(lambda: now, lambda: cpu_ms)
    now, cpu_ms = 15.0, 700
    assert clock.end() == MeasuredInterval(0, 5000, 200)
    now, cpu_ms = 18.0, 750
    assert clock.end() == MeasuredInterval(1, 3000, 50)


def test_what_was_before_the_begin_does_not_count() -> None:
    now, cpu_ms = 10.0, 500
    clock = IntervalClock(lambda: now, lambda: cpu_ms)
    now, cpu_ms = 60.0, 900
    clock.begin()
    # An interval is never empty, because rates are divided by its length.
    assert clock.end() == MeasuredInterval(0, 1, 0)
