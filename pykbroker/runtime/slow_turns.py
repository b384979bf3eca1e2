"""A watch over the event loop that finds turns of more than 100 ms and their causes.

The loop cannot report while it stands still, and uvloop has no hook for a turn. So a separate thread schedules a
callback on the loop, and reads the stack of the loop's thread if the callback does not run. It schedules callbacks
often only while the loop computes, because waking an idle node would cost more than all its other work.

Responsible for finding slow turns and for their reasons. Not responsible for the use of the findings
(node/turn_report.py).

Invariants
* While the loop is busy, each turn of 150 ms or more is found. The first long turn after a calm period is found if it
  takes 0.5 s or more. A turn that waits without computing (for a disk) is found if it takes 1.5 s or more. Shorter
  turns of at least 100 ms are found by chance.
* Time in which the whole process stood still (SIGSTOP, a machine that was paused) does not count as a turn. The watch
  detects it, because in that time the watch's thread was late too, and the loop's thread did not compute.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import PurePath
from types import FrameType
from typing import Final, NamedTuple

#: In seconds. A turn that delays the callback for longer is slow.
SLOW_SECONDS: Final = 0.1
_BUSY_LOOKS_SECONDS: Final = 0.05
_CALM_LOOKS_SECONDS: Final = 0.25
#: The loop counts as busy if its thread computed for at least this part of the time since the last check.
_BUSY_PART: Final = 0.25
#: On a calm loop a callback is scheduled at this interval, because the loop may wait for a disk.
_ASK_SECONDS: Final = 1.0
#: The number of innermost frames that are kept of a stack.
_MOST_FRAMES: Final = 12
UNKNOWN: Final = "unknown"
#: The folder of this package. It ends with a separator, because pykbroker_log and other packages begin with the same
#: name.
_PACKAGE: Final = f"{PurePath(__file__).parents[1]}{os.sep}"


class SlowTurn(NamedTuple):
    """A slow turn, with its seconds on the clock and of CPU. `reason`: the API or the module whose code the turn ran
    when the watch read its stack. It is UNKNOWN if a call of C held the interpreter lock, so that the watch could not
    read the stack. `stack`: the frames, innermost last."""

    seconds: float
    cpu_seconds: float
    reason: str
    stack: tuple[str, ...]


class TurnWatch:
    """Watches one loop. Make it on the thread of that loop; it may be closed on any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[SlowTurn], None]) -> None:
        """`report` is called on the loop, right after a slow turn."""
        self._loop = loop
        self._report = report
        self._thread = threading.Thread(target=self._look, name="pykbroker-turn-watch", daemon=True)
        self._closed = threading.Event()
        self._loop_thread = threading.get_ident()
        self._cpu_seconds = _cpu_clock(self._loop_thread)
        #: when the callback was scheduled, in seconds of the monotonic clock, and the CPU seconds of the loop's thread
        #: at that time; None if the callback has run
        self._asked: tuple[float, float] | None = None
        #: the reason and the stack that the thread has found since the callback was scheduled
        self._found: tuple[str, tuple[str, ...]] | None = None

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread. It has ended when this returns. This may be called again."""
        self._closed.set()
        self._thread.join()

    # -- on the loop

    def _turned(self) -> None:
        assert self._asked is not None
        asked, cpu_before = self._asked
        late, found = time.monotonic() - asked, self._found
        if late > SLOW_SECONDS and not self._closed.is_set():
            cpu = self._cpu_seconds() - cpu_before
            if found is not None or cpu > _computed(late):
                self._report(SlowTurn(late, cpu, *(found or (UNKNOWN, ()))))
        self._found = None
        self._asked = None

    # -- on the thread

    def _look(self) -> None:
        looked, cpu = time.monotonic(), self._cpu_seconds()
        asked = looked
        period = _CALM_LOOKS_SECONDS
        while not self._closed.wait(period):
            before, looked = looked, time.monotonic()
            cpu_before, cpu = cpu, self._cpu_seconds()
            used, late = cpu - cpu_before, looked - before - period
            period = _BUSY_LOOKS_SECONDS if used > _BUSY_PART * (looked - before) else _CALM_LOOKS_SECONDS
            if self._asked is None:
                if late > SLOW_SECONDS and used > _computed(late):
                    # A call on the loop's thread computed and held the interpreter lock, so that this thread could not
                    # run.
                    self._tell(self._report, SlowTurn(late, used, UNKNOWN, ()))
                if period == _BUSY_LOOKS_SECONDS or looked - asked > _ASK_SECONDS:
                    asked = looked
                    self._asked = looked, cpu
                    self._tell(self._turned)
            # If this thread was late and the loop's thread did not compute, the whole process may have stood still.
            elif looked - asked > SLOW_SECONDS and self._found is None and (late < SLOW_SECONDS or used > late / 10):
                frame = sys._current_frames().get(self._loop_thread)
                if frame is not None:
                    self._found = _reason(frame), _stack(frame)

    def _tell(self, callback: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            self._closed.set()  # the loop was closed


def _computed(late: float) -> float:
    """Return the least CPU time that proves that the loop's thread computed, even if it shares the processor. A process
    that stood still has used less, because it computed only between the last check and the stop."""
    return min(late / 2, max(SLOW_SECONDS, late / 10))


def _cpu_clock(thread: int) -> Callable[[], float]:
    """Return a clock of the CPU seconds of a thread, or of the process if the system has no such clock for threads."""
    try:
        clock = time.pthread_getcpuclockid(thread)
    except (AttributeError, OSError):
        return time.process_time
    return lambda: time.clock_gettime(clock)


def _reason(frame: FrameType | None) -> str:
    """Return the API whose module is on the stack, or else the innermost module of this package."""
    innermost = UNKNOWN
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_PACKAGE):
            room, module = PurePath(path).parent.name, PurePath(path).stem
            if room == "api":
                return "".join(word.capitalize() for word in module.split("_"))
            if innermost == UNKNOWN:
                innermost = f"{room}/{module}"
        frame = frame.f_back
    return innermost


def _stack(frame: FrameType) -> tuple[str, ...]:
    # The lines of source are left out, because reading them would open files.
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_MOST_FRAMES, lookup_lines=False)
    return tuple(f"{each.name} ({_place(each.filename)}:{each.lineno})" for each in summary)[::-1]


def _place(path: str) -> str:
    return "/".join(PurePath(path).parts[-2:])
