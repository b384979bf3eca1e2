"""The clocks that an advance moves: their order, their steps, and nodes that do not take part."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.coordinator.result import Timer, TimerKey
from pykbroker.coordinator.timers import Timers
from pykbroker.runtime.client_clock import wall_clock_ms
from pykbroker.testing.client_time import MOST_STEPS, ClientTime, MovedClock
from pykbroker_log.jumps import NO_JUMPS
from tests.coordinator.fakes import Loop, as_loop


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop on a thread, as a node's broker loop is."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def on(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    async def run() -> None:
        call()

    asyncio.run_coroutine_threadsafe(run(), loop).result(60)


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans(), st.booleans()), max_size=20), st.floats(0, 120))
def test_timers_that_are_due_run_in_their_order(timers: list[tuple[float, bool, bool]], offset: float) -> None:
    loop, shared = Loop(), ClientTime()
    clock = shared.clock_of(as_loop(loop))
    ran: list[float] = []
    for due, repeats, cancelled in timers:
        timer = (clock.repeat_at if repeats else clock.call_at)(due, ran.append, due)
        if cancelled:
            timer.cancel()
    shared.offset_s = offset
    clock.run_due()
    left = sorted(due for due, _, cancelled in timers if not cancelled)
    assert ran == [due for due in left if due <= offset]
    once = [due for due, repeats, cancelled in timers if not cancelled and not repeats and due > offset]
    assert clock.ahead_s() == (min(once) - clock.time() if once else None)
    # The rest runs by itself when its time has come.
    loop.advance(100)
    assert ran == left


def test_a_clock_that_is_not_moved_is_that_of_its_loop() -> None:
    loop, shared = Loop(), ClientTime()
    clock = shared.clock_of(as_loop(loop))
    ran: list[tuple[str, float]] = []
    clock.call_at(5, lambda: ran.append(("five", loop.now)))
    clock.call_at(3, lambda: ran.append(("three", loop.now)))
    clock.call_at(4, lambda: ran.append(("four", loop.now))).cancel()
    loop.advance(10)
    assert ran == [("three", 3), ("five", 5)]
    assert (clock.time(), clock.jumps) == (10, NO_JUMPS)


def test_the_rest_of_a_timer_passes_by_itself_after_a_jump() -> None:
    loop, shared = Loop(), ClientTime()
    clock = shared.clock_of(as_loop(loop))
    ran: list[float] = []
    clock.call_at(45, lambda: ran.append(loop.now))
    shared.offset_s = 40
    clock.run_due()
    loop.advance(4)
    assert ran == []
    loop.advance(2)
    assert ran == [5]


def test_a_timer_that_fails_stops_no_other() -> None:
    with running_loop() as loop:
        failures: list[object] = []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        shared = ClientTime()
        clock = shared.clock_of(loop)
        ran: list[int] = []
        error = ValueError("a bug")

        def fail() -> None:
            raise error

        on(loop, lambda: (clock.call_at(clock.time() + 5, fail), clock.call_at(clock.time() + 6, ran.append, 6)))
        shared.advance(10_000)
        assert (ran, failures) == ([6], [error])


def test_the_timers_of_two_nodes_run_in_the_order_of_their_times() -> None:
    with running_loop() as one, running_loop() as two:
        shared, ran = ClientTime(), list[int]()
        clocks = [shared.clock_of(one, 1), shared.clock_of(two, 2)]
        for loop, clock, dues in ((one, clocks[0], (10, 30, 50)), (two, clocks[1], (20, 40, 70))):
            for due in dues:
                on(loop, lambda clock=clock, due=due: clock.call_at(clock.time() + due, ran.append, due))  # type: ignore[misc]
        shared.advance(60_000)
        assert ran == [10, 20, 30, 40, 50]
        shared.advance(10_000)
        assert ran == [10, 20, 30, 40, 50, 70]


def test_a_timer_that_an_advance_sets_ends_in_it_too() -> None:
    with running_loop() as loop:
        shared, ran = ClientTime(), []
        clock = shared.clock_of(loop)

        def first() -> None:
            ran.append("first")
            clock.call_at(clock.time() + 100, ran.append, "second")
            clock.call_at(clock.time() + 10_000, ran.append, "late")

        on(loop, lambda: clock.call_at(clock.time() + 45, first))
        shared.advance(600_000)
        assert ran == ["first", "second"]


def test_a_timer_that_waits_for_a_member_and_begins_in_an_advance_is_counted_from_its_end() -> None:
    """A member that has lost its session joins again while the advance goes on, and cannot send a heartbeat in time."""
    with running_loop() as loop:
        shared, fired = ClientTime(), list[str]()

        def fire(key: TimerKey, event: object) -> None:
            fired.append(key[-1])
            if key[-1] == "old":
                timers.apply(Timer(("session", "g", "new"), 45_000))
                # A heartbeat.
                timers.apply(Timer(("session", "g", "new"), 45_000))
                timers.apply(Timer(("join", "delay"), 3_000))

        timers = Timers(shared.clock_of(loop), fire)
        on(loop, lambda: timers.apply(Timer(("session", "g", "old"), 45_000)))
        on(loop, lambda: timers.apply(Timer(("session", "g", "old"), 45_000)))
        shared.advance(3_600_000)
        assert fired == ["old", "delay"]
        shared.advance(40_000)
        assert fired == ["old", "delay"]
        shared.advance(6_000)
        assert fired == ["old", "delay", "new"]


@pytest.mark.parametrize("repeats", [False, True])
def test_an_advance_has_few_steps_however_long_it_is(repeats: bool) -> None:
    with running_loop() as loop:
        shared, ran = ClientTime(), []
        clock = shared.clock_of(loop)

        def again() -> None:
            ran.append(clock.time())
            (clock.repeat_at if repeats else clock.call_at)(clock.time() + 0.5, again)

        on(loop, again)
        shared.advance(3_650 * 86_400_000)
        assert 2 <= len(ran) <= MOST_STEPS + 2
        # Repeated work alone makes no step: it is done once, at the end.
        assert (len(ran) == 2) == repeats


def test_what_has_a_timestamp_is_older_after_an_advance_and_what_comes_is_not() -> None:
    shared = ClientTime()
    before = wall_clock_ms()
    shared.advance(7_000)
    after = wall_clock_ms()
    assert shared.jumps.after(before) == 7_000
    assert shared.jumps.after(after) == 0
    shared.advance(500)
    assert shared.jumps.after(before) == 7_500
    assert shared.jumps.after(after) == 500
    assert shared.offset_s == pytest.approx(7.5)
    assert shared.wall_ahead_ms == 0


def test_while_an_advance_goes_on_everything_is_from_before_it() -> None:
    with running_loop() as loop:
        shared, ages = ClientTime(), []
        clock = shared.clock_of(loop)
        look = lambda: ages.append(shared.jumps.age_ms(0, wall_clock_ms()) + wall_clock_ms())  # noqa: E731
        on(loop, lambda: [clock.call_at(clock.time() + due, look) for due in (10, 20)])
        shared.advance(40_000)
        # A step goes on by its grain, a fiftieth of the whole.
        assert ages == [pytest.approx(10_800, abs=100), pytest.approx(21_600, abs=1_000)]


def test_the_wall_clock_follows_if_it_is_asked_to() -> None:
    with running_loop() as loop:
        shared = ClientTime()
        clock = shared.clock_of(loop)
        real = wall_clock_ms()
        shared.advance(3_600_000, wall_clock=True)
        assert 3_600_000 <= clock.now_ms() - real < 3_660_000
        assert shared.jumps.total_ms == 0
        shared.advance(1_000)
        assert shared.jumps.after(clock.now_ms()) == 0
        assert shared.jumps.after(clock.now_ms() - 10_000) == 1_000
        assert shared.wall_ahead_ms == 3_600_000


def test_a_node_that_is_paused_has_the_jump_when_it_goes_on() -> None:
    with running_loop() as loop, running_loop() as other:
        shared, ran = ClientTime(), list[str]()
        clock, second = shared.clock_of(loop, 1), shared.clock_of(other, 2)
        for each, name in ((clock, "one"), (second, "two")):
            on(each.loop, partial(_arm, each, ran, name))
        goes_on = threading.Event()
        loop.call_soon_threadsafe(goes_on.wait)
        shared.advance(45_000, lambda node: node != 1)
        assert ran == ["two"]
        goes_on.set()
        on(loop, lambda: None)
        assert ran == ["two", "one"]


def _arm(clock: MovedClock, ran: list[str], name: str) -> None:
    clock.call_at(clock.time() + 40, ran.append, name)


def test_a_node_that_has_ended_takes_no_part_and_one_that_starts_later_has_all_jumps() -> None:
    shared = ClientTime()
    with running_loop() as loop:
        ended = shared.clock_of(loop)
    shared.advance(45_000)
    assert ended.jumps == shared.jumps
    clock = shared.clock_of(as_loop(Loop()))
    assert clock.time() == pytest.approx(45)
    assert clock.jumps.total_ms == 45_000


@contextmanager
def ending_loop(ends: threading.Event) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop on a thread that stands still until `ends` is set. Then it is closed, and no call that came in the
    meantime is made."""
    loop = asyncio.new_event_loop()
    stands = threading.Event()

    def stand_still() -> None:
        stands.set()
        ends.wait()
        loop.stop()

    def run() -> None:
        loop.call_soon(stand_still)
        loop.run_forever()
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert stands.wait(60)
        yield loop
    finally:
        ends.set()
        thread.join()


def test_an_advance_fails_at_once_if_its_node_ends_meanwhile() -> None:
    ends = threading.Event()
    with ending_loop(ends) as loop:
        shared = ClientTime()
        clock = shared.clock_of(loop)

        def is_asked(node: int | None) -> bool:
            # The loop has got the call.
            ends.set()
            return True

        with pytest.raises(RuntimeError, match="every node has ended"):
            shared.advance(45_000, is_asked)
        assert loop.is_closed()
        assert clock.jumps == shared.jumps


def test_an_advance_goes_on_without_a_node_that_ends_meanwhile() -> None:
    ends = threading.Event()
    with ending_loop(ends) as ending, running_loop() as loop:
        shared, ran = ClientTime(), list[str]()
        clock, ended = shared.clock_of(loop, 1), shared.clock_of(ending, 2)
        on(loop, partial(_arm, clock, ran, "one"))

        def is_asked(node: int | None) -> bool:
            if node == ended.node:
                ends.set()
            return True

        shared.advance(45_000, is_asked)
        assert ran == ["one"]


def test_the_clock_goes_back_after_an_advance_that_is_interrupted() -> None:
    ends, is_back = threading.Event(), threading.Event()
    with ending_loop(ends) as loop:
        shared = ClientTime()
        clock = shared.clock_of(loop)
        before = shared.moved()

        def go_back() -> None:
            shared.go_back(before)
            is_back.set()

        going_back = threading.Thread(target=go_back)

        def is_asked(node: int | None) -> bool:
            going_back.start()
            ends.set()
            return True

        with pytest.raises(RuntimeError, match="every node has ended"):
            shared.advance(45_000, is_asked)
        assert is_back.wait(60)
        going_back.join()
        assert clock.jumps == NO_JUMPS
