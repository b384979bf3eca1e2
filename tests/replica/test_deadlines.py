"""A deadline is never early, at most a tick late, and shares its timer with its neighbours."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykbroker.replica.deadlines import TICK_SECONDS, Deadlines
from tests.simulation.world import VirtualLoop


@given(st.lists(st.tuples(st.floats(0, 0.05), st.floats(0, 2), st.booleans()), max_size=40))
def test_never_early_and_at_most_a_tick_late(plan: list[tuple[float, float, bool]]) -> None:
    loop = VirtualLoop()
    deadlines = Deadlines(loop)
    passed: dict[int, float] = {}
    due: dict[int, float] = {}

    def begin(number: int, seconds: float, cancelled: bool) -> None:
        due[number] = loop.time() + seconds
        deadline = deadlines.after(seconds, lambda: passed.setdefault(number, loop.time()))
        if cancelled:
            deadline.cancel()

    for number, (start, seconds, cancelled) in enumerate(plan):
        loop.call_later(start, begin, number, seconds, cancelled)
    loop.call_later(3, loop.stop)
    loop.run_forever()
    loop.close()
    assert set(passed) == {number for number, (_, _, cancelled) in enumerate(plan) if not cancelled}
    for number, moment in passed.items():
        assert due[number] - 1e-9 <= moment <= due[number] + TICK_SECONDS + 1e-9


def test_neighbours_share_a_timer() -> None:
    loop = VirtualLoop()
    deadlines = Deadlines(loop)
    passed: list[int] = []
    for number in range(100):
        deadlines.after(0.5 + number / 1_000_000, lambda number=number: passed.append(number))  # type: ignore[misc]
    timers = len(loop._scheduled)  # type: ignore[attr-defined]
    assert timers <= 2
    loop.call_later(1, loop.stop)
    loop.run_forever()
    loop.close()
    assert sorted(passed) == list(range(100))
