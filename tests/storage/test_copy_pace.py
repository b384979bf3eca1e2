"""The throttle of moves: how long the next stretch waits."""

from __future__ import annotations

from pykbroker.storage.copy_pace import CopyPace


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_bytes_that_were_copied_make_the_next_stretch_wait() -> None:
    clock = Clock()
    pace = CopyPace(clock)
    assert pace.change(1000)
    pace.spend(500)
    pace.spend(1000)
    assert pace.wait_seconds == 1.5
    clock.now += 1
    assert pace.wait_seconds == 0.5
    clock.now += 9
    assert pace.wait_seconds == 0
    # Time without a copy is not saved up.
    pace.spend(1000)
    assert pace.wait_seconds == 1


def test_another_rate_counts_for_bytes_that_are_copied_already() -> None:
    pace = CopyPace(Clock())
    pace.change(1000)
    pace.spend(4000)
    assert pace.change(2000)
    assert pace.wait_seconds == 2
    assert not pace.change(2000)


def test_without_a_throttle_nothing_waits() -> None:
    pace = CopyPace(Clock())
    pace.spend(1 << 40)
    assert round(pace.wait_seconds) == 0
