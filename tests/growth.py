"""Check how the CPU time of a call grows with its input, for tests that send N, 2 N and 4 N of something.

Wall-clock time is not measured, because the machine has other work. The least of three runs counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

#: A call that takes less CPU than this with 4 N is not judged, because the result would be noise.
NOISE_SECONDS: Final = 0.03
#: 4 N may take this many times as long as N. Work that grows with the square takes 16 times as long.
MOST_GROWTH: Final = 6
_RUNS: Final = 3
#: Other work on the machine can slow down all runs of one size. Too fast a growth shows each time.
_TRIES: Final = 3


def least_seconds(prepare: Callable[[], Callable[[], object]], runs: int = _RUNS) -> float:
    """CPU seconds of what `prepare` returns; preparing it does not count."""
    found = []
    for _ in range(runs):
        call = prepare()
        gc.disable()
        try:
            start = time.process_time()
            call()
            found.append(time.process_time() - start)
        finally:
            gc.enable()
    return min(found)


def assert_grows_no_faster(make: Callable[[int], Callable[[], object]], count: int) -> None:
    """`make` returns the call for a number of things. AssertionError if it takes too long for four times as many."""
    seconds: dict[int, float] = {}
    for _ in range(_TRIES):
        seconds = _too_fast(make, count)
        if not seconds:
            return
    raise AssertionError({number: round(each, 4) for number, each in seconds.items()})


def _too_fast(make: Callable[[int], Callable[[], object]], count: int) -> dict[int, float]:
    """Return the seconds of each number of things if they grow too fast, else an empty dict."""
    first = least_seconds(lambda: make(count))
    seconds = {count: first}
    for factor in (2, 4):
        seconds[factor * count] = least_seconds(lambda factor=factor: make(factor * count))  # type: ignore[misc]
        # Work that grows with the square shows early: 4 N of it would only take longer.
        if seconds[factor * count] > max(MOST_GROWTH / 4 * factor * first, NOISE_SECONDS):
            return seconds
    return {}
