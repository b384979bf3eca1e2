"""Tells how slow this machine is at the moment, for tests that bound the CPU seconds of a piece of work.

CPU seconds grow too when the cores are shared with other machines: the same work took twice to three times as many from
one hour to the next.
"""

from __future__ import annotations

import time
from typing import Final

_ENTRIES: Final = 20_000
#: CPU seconds that the same work takes on a quiet machine, on which the bounds of the tests were chosen.
_QUIET_SECONDS: Final = 0.0045


def slowness() -> float:
    """Return how many times slower than a quiet machine this one just made a dict of 20,000 entries, 1 at the least."""
    start = time.thread_time()
    entries = {str(number): (number, number) for number in range(_ENTRIES)}
    seconds = time.thread_time() - start
    assert len(entries) == _ENTRIES
    return max(1.0, seconds / _QUIET_SECONDS)
