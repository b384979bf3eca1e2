"""The cost of one request for a node in the simulated world: CPU, its longest turn, memory and log lines.

Responsible for measuring and for the bounds. Not responsible for requests (many_elements.py, accepted.py).
"""

from __future__ import annotations

import gc
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.nodes.sim import Sim
from testkit.slowness import slowness
from tests.growth import MOST_GROWTH

#: CPU seconds that 4 N elements may cost, whatever N cost, because less is noise.
ENOUGH_SECONDS = 0.02
#: CPU seconds of one turn of a loop, on a quiet machine.
MOST_TURN_SECONDS = 0.2
#: The most that one request may add to the peak memory of the process. 2,000 topics, with their logs on a disk in
#: memory, take 50 MiB.
MOST_KIB = 96 << 10
_TRIES = 5
#: An authorizer writes 100 lines a second for one client, and the machine may have other work in that time.
_MOST_LINES = 500


class Lines(logging.Handler):
    """Counts the lines of the log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


class Cost(NamedTuple):
    """CPU seconds of the thread on which all of the simulated node runs."""

    seconds: float
    longest_turn: float

    def least(self, other: Cost) -> Cost:
        return Cost(min(self.seconds, other.seconds), min(self.longest_turn, other.longest_turn))


class Meter:
    """Measures requests to the node of `sim`."""

    def __init__(self, sim: Sim, lines: Lines, most_lines: int = _MOST_LINES) -> None:
        self._sim, self._lines, self._most_lines = sim, lines, most_lines
        self._turned = self._longest = 0.0

    def _turn(self) -> None:
        now = time.thread_time()
        self._longest = max(self._longest, now - self._turned)
        self._turned = now

    async def of(self, what: str, ask: Callable[[], Awaitable[Any]]) -> Cost:
        """Return the cost of `ask`, which sends one request and waits for its response. Raises AssertionError if it
        takes too much memory, or writes too many lines."""
        self._lines.count = 0
        before = _peak_kib(reset=True)
        start = self._turned = time.thread_time()
        self._longest = 0.0
        self._sim.world.after_event.append(self._turn)
        try:
            await ask()
        finally:
            self._sim.world.after_event.remove(self._turn)
        seconds = time.thread_time() - start
        grown = _peak_kib() - before
        assert grown <= MOST_KIB, f"{what}: {grown} KiB"
        assert self._lines.count <= self._most_lines, f"{what}: {self._lines.count} lines"
        return Cost(seconds, self._longest)

    async def judge(
        self, what: str, prepare: Callable[[int], Awaitable[Callable[[], Awaitable[Any]]]], few: int
    ) -> None:
        """Raises AssertionError if four times as many elements cost more than six times the CPU, or one turn takes too
        long, in each of five tries. The growth counts within a try, because the machine is slower from one moment to
        the next, and so does the growth of the least of all tries. `prepare` returns the call for a number of elements,
        and is not measured."""
        many = less = Cost(math.inf, math.inf)
        for _ in range(_TRIES):
            many_now = await self.of(what, await prepare(4 * few))
            many = many.least(many_now)
            if is_short(many.seconds, ENOUGH_SECONDS):
                return
            less_now = await self.of(what, await prepare(few))
            less = less.least(less_now)
            grows = min(many_now.seconds / less_now.seconds, many.seconds / less.seconds)
            if grows <= MOST_GROWTH and is_short(many.longest_turn, MOST_TURN_SECONDS):
                return
        raise AssertionError(f"{what}: {less} for {few}, {many} for {4 * few}")

    async def is_served(self) -> None:
        """Check that another client gets a response."""
        answer = await self._sim.call(MetadataRequest(topics=[]))
        assert len(answer.brokers) == 1


def is_short(seconds: float, most: float) -> bool:
    """Return True if work that just took so many CPU seconds takes at most `most` on a quiet machine."""
    return seconds <= most or seconds <= most * slowness()


def _peak_kib(*, reset: bool = False) -> int:
    """Return the most memory that was resident since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@contextmanager
def counted_lines() -> Iterator[Lines]:
    """Count the log lines at INFO; and collect no garbage, which would count as work of a request."""
    root, handler = logging.getLogger(), Lines()
    before = root.level
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    gc.disable()
    try:
        yield handler
    finally:
        gc.enable()
        root.removeHandler(handler)
        root.setLevel(before)
