"""A watch over the event loop that finds turns of more than 100 ms and their causes.

The loop cannot report while it stands still, and uvloop has no hook for a turn. So a separate thread asks for a
callback on the loop, and looks at the stack of the loop's thread if the callback does not come. It asks only while the
loop computes, because waking an idle node would cost more than all its work.

Responsible for finding slow turns and for their reasons. Not responsible for the use of the findings
(node/turn_report.py).

Invariants
* While the loop is busy, each turn of 150 ms or more is found. The first turn after a calm is found from 0.5 s on, and
  one that waits without computing (for a disk) from 1.5 s on. Shorter ones are found by chance, from 100 ms on.
* Time in which the whole process stood still (SIGSTOP, a machine that was paused) is no turn: in that time neither did
  the thread look, nor did the loop's thread compute.
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

#: Seconds. A turn that delays the callback for longer is slow.
SLOW_SECONDS: Final = 0.1
_BUSY_LOOKS_SECONDS: Final = 0.05
_CALM_LOOKS_SECONDS: Final = 0.25
#: The loop is busy if its thread computed for this part of the time since the last look.
_BUSY_PART: Final = 0.25
#: A calm loop is also asked this often, because it may wait for a disk.
_ASK_SECONDS: Final = 1.0
#: The innermost frames of a sampled stack.
_MOST_FRAMES: Final = 12
UNKNOWN: Final = "unknown"
#: With its separator, because pykbroker_log and other packages next to it begin alike.
_PACKAGE: Final = f"{PurePath(__file__).parents[1]}{os.sep}"


class SlowTurn(NamedTuple):
    """`seconds` on the clock and of CPU. `reason`: the API, or the module, that the turn was in when the watch looked;
    UNKNOWN if a call of C held the lock of the interpreter, so that the watch could not look. `stack`: innermost frame
    last."""

    seconds: float
    cpu_seconds: float
    reason: str
    stack: tuple[str, ...]


class TurnWatch:
    """Watches one loop. It is made on the thread of that loop, and may be closed on any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[SlowTurn], None]) -> None:
        """`report` is called on the loop, right after a slow turn."""
        self._loop = loop
        self._report = report
        self._thread = threading.Thread(target=self._look, name="pykbroker-turn-watch", daemon=True)
        self._closed = threading.Event()
        self._loop_thread = threading.get_ident()
        self._cpu_seconds = _cpu_clock(self._loop_thread)
        #: when the thread asked, in seconds of the monotonic clock, and the CPU of the loop's thread then; None if the
        #: loop has answered
        self._asked: tuple[float, float] | None = None
        #: the reason and the stack that the thread has found since it asked
        self._found: tuple[str, tuple[str, ...]] | None = None

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread; it is gone when this returns. May be called again."""
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
                    # A call held the lock of the interpreter against this thread, and the loop's thread computed.
                    self._tell(self._report, SlowTurn(late, used, UNKNOWN, ()))
                if period == _BUSY_LOOKS_SECONDS or looked - asked > _ASK_SECONDS:
                    asked = looked
                    self._asked = looked, cpu
                    self._tell(self._turned)
            # If this thread was late, and the loop's thread did nothing, the process may have stood still.
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
    """Return the CPU time that shows that the loop's thread computed, although it shares the processor. A process that
    stood still has used less: only its work before that, between two looks."""
    return min(late / 2, max(SLOW_SECONDS, late / 10))


def _cpu_clock(thread: int) -> Callable[[], float]:
    """Return a clock of the CPU seconds of a thread, or of the process if the system has none for threads."""
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
    # Lines of source are not looked up, because that would read files.
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_MOST_FRAMES, lookup_lines=False)
    return tuple(f"{each.name} ({_place(each.filename)}:{each.lineno})" for each in summary)[::-1]


def _place(path: str) -> str:
    return "/".join(PurePath(path).parts[-2:])
