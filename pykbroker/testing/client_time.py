"""The time that clients feel, as a test moves it: the jumps of a broker or cluster, and the clock of each node.

Responsible for the timers of these clocks, and for moving all of them together in steps. A step ends at the next due
time of any node, and each timer that is due then runs, the earliest first. The repeated work of a broker, such as the
looks of retention, makes no step of its own. It is done at the next step, or at the end of the advance. So an advance
has at most `MOST_STEPS` steps, however long it is. Not responsible for what users call (clock.py), nor for the ages of
records (pykbroker_log/jumps.py).

Clocks of nodes live on their broker loops. The offset and the jumps are values that each loop reads and that only the
thread of an advance replaces, so a node that is paused or starts later has every jump.

Invariants: within one node timers run in the order of their due times. A timestamp from before the end of an advance
is older than its jump, and a timestamp from after it is not. A session that begins during an advance is not shortened
by the rest of it (`MovedClock.time_after_advance`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import heapq
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pykbroker.runtime.client_clock import wall_clock_ms
from pykbroker_log.jumps import NO_JUMPS, Jump, Jumps

#: An advance of any length has no more steps.
MOST_STEPS: Final = 50
#: The turns of a node's loop that a step waits for, so that what its timers began goes on: retention looks at 50 logs
#: in a turn.
_TURNS: Final = 3
_LAST_TURNS: Final = 10
#: An advance that a node does not take part in for this long has failed.
_PATIENCE_SECONDS: Final = 60.0
#: The time after which an advance looks again for nodes that have ended.
_LOOK_SECONDS: Final = 0.05
#: As `Jump.at_ms`: everything that has a timestamp is older than the jump.
_STILL_TO_COME: Final = 1 << 62


class _Timer:
    """A call that a clock makes later."""

    __slots__ = ("args", "callback", "when")

    def __init__(self, when: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.when = when
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def take(self) -> tuple[Callable[..., object], tuple[Any, ...]] | None:
        """Return the call, None if it was cancelled. It can be taken once."""
        callback, args = self.callback, self.args
        self.cancel()
        return None if callback is None else (callback, args)


class _Queue:
    """Timers by their due times. A cancelled timer stays until its time."""

    __slots__ = ("_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, _Timer]] = []
        self._number = 0

    def add(self, timer: _Timer) -> None:
        self._number += 1
        heapq.heappush(self._heap, (timer.when, self._number, timer))

    def next_due(self) -> float | None:
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self) -> _Timer:
        return heapq.heappop(self._heap)[2]


class MovedClock:
    """The clock of one node: that of its loop, and the offset of its `ClientTime`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, shared: ClientTime, node: int | None) -> None:
        self.loop = loop
        self.node = node
        self._shared = shared
        self._once, self._repeated = _Queue(), _Queue()
        self._handle: asyncio.TimerHandle | None = None
        #: the due time and the offset for which the handle was made
        self._armed: tuple[float, float] | None = None

    @property
    def jumps(self) -> Jumps:
        return self._shared.jumps

    def now_ms(self) -> int:
        return self._shared.now_ms()

    def time(self) -> float:
        return self.loop.time() + self._shared.offset_s

    def time_after_advance(self) -> float:
        return self.loop.time() + max(self._shared.offset_s, self._shared.offset_after_s)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> _Timer:
        return self._add(self._once, when, callback, args)

    def repeat_at(self, when: float, callback: Callable[..., object], *args: Any) -> _Timer:
        return self._add(self._repeated, when, callback, args)

    def _add(self, queue: _Queue, when: float, callback: Callable[..., object], args: tuple[Any, ...]) -> _Timer:
        timer = _Timer(when, callback, args)
        queue.add(timer)
        self._arm()
        return timer

    def _next(self) -> tuple[float, _Queue] | None:
        once, repeated = self._once.next_due(), self._repeated.next_due()
        if once is not None and (repeated is None or once <= repeated):
            return once, self._once
        return None if repeated is None else (repeated, self._repeated)

    def _arm(self) -> None:
        """Keep one timer of the loop, for the first timer here."""
        found = self._next()
        wanted = None if found is None else (found[0], self._shared.offset_s)
        if wanted == self._armed and self._handle is not None:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle, self._armed = None, wanted
        if wanted is not None:
            due, offset_s = wanted
            self._handle = self.loop.call_at(due - offset_s, self._fired)

    def _fired(self) -> None:
        self._handle = None
        # A loop may be a moment early, within the resolution of its clock. Then this timer is due for the loop.
        armed = self._armed
        self.run_due(max(self.time(), armed[0] if armed is not None else 0.0))

    def run_due(self, now: float | None = None) -> None:
        """Run the timers that are due, the earliest first."""
        until = self.time() if now is None else now
        while (found := self._next()) is not None and found[0] <= until:
            call = found[1].pop().take()
            assert call is not None
            callback, args = call
            try:
                callback(*args)
            except Exception as error:  # noqa: BLE001  # a bug of this timer alone
                self.loop.call_exception_handler({"message": "A timer failed", "exception": error})
        self._arm()

    def ahead_s(self) -> float | None:
        """Return how far the next timer is, None if there is none but repeated work."""
        due = self._once.next_due()
        return None if due is None else max(0.0, due - self.time())


class Moved(NamedTuple):
    """The jumps that count for the ages of records, and the milliseconds that the wall clock is ahead."""

    jumps: Jumps
    wall_ahead_ms: int


NEVER_MOVED: Final = Moved(NO_JUMPS, 0)


class ClientTime:
    """The time that clients of one broker or cluster feel. `clock_of` makes the clocks of its nodes."""

    def __init__(self) -> None:
        #: seconds that all clocks are ahead of their loops
        self.offset_s = 0.0
        #: the same at the end of the advance that is being made
        self.offset_after_s = 0.0
        self.jumps = NO_JUMPS
        #: milliseconds that the wall clock of the broker loops is ahead of the machine's
        self.wall_ahead_ms = 0
        self._clocks: weakref.WeakSet[MovedClock] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._advancing = threading.Lock()

    def clock_of(self, loop: asyncio.AbstractEventLoop, node: int | None = None) -> MovedClock:
        """Return a clock for a loop that begins to run. `node`: None if it is the only one."""
        clock = MovedClock(loop, self, node)
        with self._lock:
            self._clocks.add(clock)
        return clock

    def now_ms(self) -> int:
        """Return the wall-clock time of the broker loops."""
        return wall_clock_ms() + self.wall_ahead_ms

    def moved(self) -> Moved:
        """Return how time has moved so far, for `go_back`."""
        return Moved(self.jumps, self.wall_ahead_ms)

    def go_back(self, moved: Moved) -> None:
        """Forget the jumps since `moved` was returned. Call it while no node runs: its data are those of that time. An
        advance that the end of the nodes has interrupted is over when this returns."""
        with self._advancing:
            self.jumps, self.wall_ahead_ms = moved

    def advance(
        self, by_ms: int, is_asked: Callable[[int | None], bool] = lambda node: True, *, wall_clock: bool = False
    ) -> None:
        """Move the clocks of all nodes. `is_asked` returns False for a node that does not take part, because it is
        paused: it gets the whole jump when it goes on. `wall_clock`: let the wall clock of the broker loops follow,
        and with it the timestamps that brokers write; then the ages of records need no jump. Raises RuntimeError if
        every node ends before the clocks have moved, TimeoutError."""
        with self._advancing:
            self._move(by_ms, is_asked, wall_clock)

    def _move(self, by_ms: int, is_asked: Callable[[int | None], bool], wall_clock: bool) -> None:
        before, wall_before_ms, begun_s = self.jumps, self.wall_ahead_ms, self.offset_s
        clocks = self._open()

        def note(at_ms: int) -> None:
            moved_ms = round((self.offset_s - begun_s) * 1000)
            if wall_clock:
                self.wall_ahead_ms = wall_before_ms + moved_ms
            else:
                self.jumps = before.with_jump(Jump(at_ms, moved_ms))

        end_s = self.offset_after_s = begun_s + by_ms / 1000
        grain_s = by_ms / 1000 / MOST_STEPS
        try:
            while self.offset_s < end_s:
                ahead = [found for found in self._each(is_asked, _look, 0) if found is not None]
                # Timers within the grain of a step run in that step, in their order.
                self.offset_s = min([end_s, *(self.offset_s + found + grain_s for found in ahead)])
                note(_STILL_TO_COME)
                self._each(is_asked, MovedClock.run_due, _TURNS if self.offset_s < end_s else _LAST_TURNS)
        finally:
            # Where the advance has failed, the clocks stay where they are.
            self.offset_after_s = self.offset_s
            # A timestamp of this millisecond is from before the end, so the next one has to begin.
            at_ms = self.now_ms() + 1
            note(at_ms)
            while self.now_ms() < at_ms:
                time.sleep(0.0005)
        if clocks and all(clock.loop.is_closed() for clock in clocks):
            raise RuntimeError("every node has ended before the clock had moved")

    def _open(self) -> list[MovedClock]:
        """Return the clocks of the nodes that have not ended. The loop of a node that has ended is closed."""
        with self._lock:
            return [clock for clock in self._clocks if not clock.loop.is_closed()]

    def _each(self, is_asked: Callable[[int | None], bool], call: Callable[[MovedClock], Any], turns: int) -> list[Any]:
        """Call a function with each clock on its loop, and return the results when so many turns of the loops have
        passed. A node that ends before that takes no part. Raises TimeoutError."""
        called = {clock: answer for clock in self._open() if (answer := _called(clock, call, turns)) is not None}
        waiting = {answer: clock for clock, answer in called.items() if is_asked(clock.node)}
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (late := concurrent.futures.wait(waiting, _LOOK_SECONDS).not_done) and time.monotonic() < deadline:
            for answer in late:
                if waiting[answer].loop.is_closed():
                    del waiting[answer]
        if late:
            nodes = [waiting[answer].node for answer in late]
            raise TimeoutError(f"the clocks of nodes {nodes} did not move within {_PATIENCE_SECONDS:g} s")
        return [answer.result() for answer in waiting]


def _look(clock: MovedClock) -> float | None:
    return clock.ahead_s()


def _called(clock: MovedClock, call: Callable[[MovedClock], Any], turns: int) -> concurrent.futures.Future[Any] | None:
    """Have `call(clock)` called on the loop of the clock. Return None if the loop is closed."""
    answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def wait(result: Any, left: int) -> None:
        if left:
            clock.loop.call_soon(wait, result, left - 1)
        else:
            answer.set_result(result)

    def run() -> None:
        try:
            result = call(clock)
        except Exception as error:  # noqa: BLE001  # raised in the thread that waits for the answer
            answer.set_exception(error)
            return
        wait(result, turns)

    try:
        clock.loop.call_soon_threadsafe(run)
    except RuntimeError:
        return None
    return answer
