"""The stack of started parts: the part that was started last is closed first.

Responsible only for the order. Not responsible for the parts, nor for the decision to stop a node.
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
        """Add a part that is started next. `close` undoes its start, also if that fails in the middle. `name` is for
        the log."""
        self._parts.append((name, close))

    async def close(self) -> None:
        """Close every part, the last part first. If a part fails to close, the other parts are still closed."""
        while self._parts:
            name, close = self._parts.pop()
            try:
                ending = close()
                if inspect.isawaitable(ending):
                    await ending
            except Exception:
                logger.exception("Stopping the %s failed", name)
