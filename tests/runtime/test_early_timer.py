"""The timer that calls at the time of the first of many things, on a clock that a test moves."""

from __future__ import annotations

import pytest

from pykbroker.runtime.early_timer import EarlyTimer
from tests.coordinator.fakes import Loop, as_loop


@pytest.mark.parametrize("per_second", [1, 1000])
def test_an_earlier_time_replaces_a_later_one(per_second: int) -> None:
    loop = Loop()
    fired: list[float] = []
    timer = EarlyTimer(as_loop(loop), lambda: fired.append(loop.time()), per_second=per_second)
    begin = loop.time()
    for seconds in (5, 3, 4):
        timer.set((begin + seconds) * per_second)
    timer.set(None)
    loop.advance(10)
    assert fired == [begin + 3]
    timer.set((begin + 12) * per_second)
    timer.cancel()
    loop.advance(10)
    assert len(fired) == 1
