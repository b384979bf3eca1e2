"""Long work on a loop, in short turns between which the loop does other work.

Responsible for the length of a turn. The work is an iterator that yields wherever it may pause; what it works on may
change in a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from itertools import islice
from typing import Final

from pykbroker.runtime.later import Later

#: A turn ends after this time.
_TURN_SECONDS: Final = 0.002
#: The clock is read once for this many steps, each of which takes some microseconds.
_STEPS_AT_ONCE: Final = 64


def in_turns(loop: asyncio.AbstractEventLoop, work: Generator[None]) -> Later[None]:
    """Run the work to its end. Returns None if one turn was enough, else a future. An exception of the work is raised
    here, or is that of the future. When the future is cancelled, the work is closed."""
    if _is_done(loop, work):
        return None
    done: asyncio.Future[None] = loop.create_future()

    def turn() -> None:
        if done.done():
            # The work may note its end.
            work.close()
            return
        try:
            is_done = _is_done(loop, work)
        except Exception as bug:  # noqa: BLE001  # the caller that waits for the work gets it
            done.set_exception(bug)
            return
        if is_done:
            done.set_result(None)
        else:
            loop.call_soon(turn)

    loop.call_soon(turn)
    return done


def _is_done(loop: asyncio.AbstractEventLoop, work: Generator[None]) -> bool:
    """Run one turn, and return True if the work is done."""
    until_s = loop.time() + _TURN_SECONDS
    while True:
        if sum(1 for _ in islice(work, _STEPS_AT_ONCE)) < _STEPS_AT_ONCE:
            return True
        if loop.time() >= until_s:
            return False
