"""Items by the time at which they are due, compared with a plain list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykbroker.retries.due_times import DueTimes


@given(st.lists(st.tuples(st.sampled_from(["set", "withdraw", "take"]), st.integers(0, 9), st.integers(0, 20))))
def test_it_is_like_a_list(steps: list[tuple[str, int, int]]) -> None:
    times: DueTimes[int] = DueTimes()
    model: dict[int, float] = {}
    now = 0.0
    for step, item, delay in steps:
        if step == "set" and item not in model:
            model[item] = now + delay
            times.set(item, now + delay)
        elif step == "withdraw":
            model.pop(item, None)
            times.withdraw(item)
        elif step == "take":
            now += delay / 2
            # A sort keeps the order of items that are due together.
            due = sorted((each for each, at in model.items() if at <= now), key=lambda each: model[each])
            most = item or None
            taken = times.take(now, most)
            assert taken == due[:most]
            model = {each: at for each, at in model.items() if each not in taken}
        assert times.items() == list(model)
        assert times.next_due() == min(model.values(), default=None)
        assert (item in times, len(times)) == (item in model, len(model))


def test_withdrawing_leaves_nothing_but_the_time() -> None:
    """A write sets and withdraws its deadline in milliseconds, and thousands have the same deadline."""
    times: DueTimes[int] = DueTimes()
    for item in range(10_000):
        times.set(item, 30.0)
        times.withdraw(item)
    assert len(times._heap) == 1
    assert times.next_due() is None
    assert times._heap == []
