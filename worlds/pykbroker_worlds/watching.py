"""A watch for callbacks that do not end, which would be a hang of the whole world.

Responsible for finding one within two real seconds and for naming its place.
"""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pykbroker_worlds.debugging import is_debugging
from pykbroker_worlds.simulated.loop import OWNER, VirtualLoop
from pykbroker_worlds.simulated.world import SimRuntime

#: A callback that does not end is named within so many real seconds. Time in which the thread could have run, but other
#: processes had the processor, does not count.
STUCK_SECONDS = 2.0
_LOOK_SECONDS = 0.4
_MOST_CALLBACKS = 300_000


class Stuck(BaseException):
    """A callback did not end: it spins, blocks the loop, or waits for a thread. It is no `Exception`, so that the code
    that is stuck does not catch it."""


def _undelayed_seconds() -> float:
    """Return real time without that in which this thread waited for a processor, where Linux tells it. Imports nothing,
    because it is called in the middle of whatever runs, also of an import."""
    try:
        delayed_ns = int(Path("/proc/thread-self/schedstat").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        delayed_ns = 0
    return time.clock_gettime(time.CLOCK_MONOTONIC) - delayed_ns / 1e9


@contextmanager
def watched(loop: VirtualLoop) -> Iterator[None]:
    """Raise Stuck in a callback that does not end. Only the main thread has signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen, since, looks = -1, 0.0, 0
    #: the callbacks before the present virtual second
    second, before = -1, 0
    found: list[Stuck] = []

    def look(number: int, frame: FrameType | None) -> None:
        nonlocal seen, since, looks, second, before
        if is_debugging(frame):
            # A person thinks: that is no time of the test.
            seen, since = loop.callbacks, _undelayed_seconds()
            return
        looks += 1
        if limit and looks * _LOOK_SECONDS >= limit and callable(handler):
            handler(number, frame)
        now = _undelayed_seconds()
        if int(loop.time()) != second:
            second, before = int(loop.time()), loop.callbacks
        text = ""
        if loop.callbacks - before > _MOST_CALLBACKS:
            text = f"runs with {_MOST_CALLBACKS} others in one virtual second: a task waits with asyncio.sleep(0)"
        elif loop.callbacks != seen:
            seen, since = loop.callbacks, now
        elif now - since >= STUCK_SECONDS - 2 * _LOOK_SECONDS:
            text = f"has not ended for {now - since:.1f} s of real time"
        if text:
            owner = OWNER.get()
            name = owner.name if isinstance(owner, SimRuntime) else "the world"
            where = "".join(traceback.format_stack(frame)[-3:])
            found.append(Stuck(f"a callback of {name} {text}:\n{where}"))
            raise found[0]

    handler = signal.signal(signal.SIGALRM, look)
    # A limit of the test itself, such as that of pytest-timeout, uses the same timer.
    limit, _ = signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
    try:
        yield
    except Exception as error:
        if found:
            raise found[0] from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, max(limit - looks * _LOOK_SECONDS, 0.01) if limit else 0)
        signal.signal(signal.SIGALRM, handler)
    if found:
        # asyncio keeps the exception in the task, or logs it, when nobody waits for the task.
        raise found[0]
