"""The stack of started parts: what was started last is closed first.

Responsible for the order alone. Knows no part, and does not decide when a node ends.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

Close = Callable[[], Awaitable[None] | None]


class StartedParts:
    """`add` each part before it begins to act: one that fails half-way through its start is closed, too."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, Close]] = []

    def add(self, name: str, close: Close) -> None:
        """`close` undoes the start that comes now, as far as it got; `name` is for the log."""
        self._parts.append((name, close))

    async def close(self) -> None:
        """Close every part, the last one first. A part that fails to close keeps no other from being closed."""
        while self._parts:
            name, close = self._parts.pop()
            try:
                ending = close()
                if inspect.isawaitable(ending):
                    await ending
            except Exception:
                logger.exception("Stopping the %s failed", name)
