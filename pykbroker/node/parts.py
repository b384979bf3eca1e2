"""The stack of started parts: what was started last is closed first.

Responsible only for the order. It does not know the parts, and does not decide when a node ends.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

Close = Callable[[], Awaitable[None] | None]


class StartedParts:
    """Call `add` for each part before it begins to act, so that a part that fails during its start is closed, too."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, Close]] = []

    def add(self, name: str, close: Close) -> None:
        """Add a part. `close` undoes the start that comes now, as far as it got; `name` is for the log."""
        self._parts.append((name, close))

    async def close(self) -> None:
        """Close every part, the last one first. If one fails to close, the others are still closed."""
        while self._parts:
            name, close = self._parts.pop()
            try:
                ending = close()
                if inspect.isawaitable(ending):
                    await ending
            except Exception:
                logger.exception("Stopping the %s failed", name)
