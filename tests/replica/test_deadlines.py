"""A deadline is never early, at most a tick late, and shares its timer with its neighbours."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pykbroker.replica.deadlines import TICK_SECONDS, Deadline, Deadlines
from pykbroker_worlds.simulated.loop import VirtualLoop


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
    timers = len(loop._scheduled)
    assert timers <= 2
    loop.call_later(1, loop.stop)
    loop.run_forever()
    loop.close()
    assert sorted(passed) == list(range(100))


class _Forgetful(dict[int, list[Deadline]]):
    """Returns for each tick that it has no timer yet."""

    def get(self, tick: int, default: Any = None) -> Any:
        return default


def test_two_timers_of_one_tick_take_nothing_from_each_other() -> None:
    """The second timer found nothing (a KeyError), and the deadlines of the first one never passed."""
    loop = VirtualLoop()
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    deadlines = Deadlines(loop)
    deadlines._ticks = _Forgetful()
    passed: list[str] = []
    deadlines.after(0.5, lambda: passed.append("first"))
    deadlines.after(0.5, lambda: passed.append("second"))
    loop.call_later(1, loop.stop)
    loop.run_forever()
    loop.close()
    assert sorted(passed) == ["first", "second"]
    assert not errors


def test_a_deadline_that_fails_takes_no_other_with_it() -> None:
    loop = VirtualLoop()
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    deadlines = Deadlines(loop)
    passed: list[str] = []
    bug = RuntimeError("a bug")

    def fail() -> None:
        raise bug

    deadlines.after(0.5, fail)
    deadlines.after(0.5, lambda: passed.append("second"))
    loop.call_later(1, loop.stop)
    loop.run_forever()
    loop.close()
    assert passed == ["second"]
    assert errors == [bug]
