"""A limit for log lines that a client, or a state that lasts, could cause again and again: one line a minute for each
subject.

Decides if a line is due, and counts the lines that were left out. It writes nothing. Pure; its owner passes a clock in.
"""

from __future__ import annotations

from collections.abc import Callable

EVERY_SECONDS = 60.0
#: The most subjects in memory. If there are more subjects within a minute, the new subjects share one limit.
MOST_SUBJECTS = 1_000


class LineLimit:
    """Call `take` before each line."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns the seconds of a clock that does not jump."""
        self._now = now
        # subject -> the time of its last line, and the number of lines left out since. The oldest line is first.
        self._lines: dict[str, tuple[float, int]] = {}

    def is_due(self, subject: str) -> bool:
        """Return True if `take` would allow the line now."""
        last = self._lines.get(subject)
        return last is None or self._now() - last[0] >= EVERY_SECONDS

    def take(self, subject: str) -> str | None:
        """Return None if the line must be left out, else the text to append to it: the number of lines that were left
        out before."""
        now = self._now()
        subject = self._remembered(subject, now)
        last = self._lines.get(subject)
        if last is not None and now - last[0] < EVERY_SECONDS:
            self._lines[subject] = last[0], last[1] + 1
            return None
        self._lines.pop(subject, None)
        self._lines[subject] = now, 0
        return "" if last is None or not last[1] else f" ({last[1]} more lines like it were left out)"

    def _remembered(self, subject: str, now: float) -> str:
        if subject in self._lines or subject == "" or len(self._lines) < MOST_SUBJECTS:
            return subject
        oldest = next(iter(self._lines))
        if now - self._lines[oldest][0] < EVERY_SECONDS:
            return ""
        del self._lines[oldest]
        return subject
