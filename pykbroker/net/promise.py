"""An answer that comes later and is taken at once.

What a connection asks of a future, without the event loop: a future tells in a turn of its own, and makes an object for
the loop each time. For answers of which thousands wait in a second. Not responsible for errors: there is always a
result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Promise:
    """Of one result, to one callback, within the call of `set_result`."""

    __slots__ = ("_callback", "_cancelled", "_done", "_result")

    def __init__(self) -> None:
        self._callback: Callable[[Any], object] | None = None
        self._cancelled = False
        self._done = False
        self._result: Any = None

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """At once if the result is there."""
        if self._done:
            callback(self)
        else:
            self._callback = callback

    def set_result(self, result: Any) -> None:
        """Not twice. For nobody, if it was cancelled."""
        if self._cancelled:
            return
        assert not self._done
        self._done = True
        self._result = result
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(self)

    def result(self) -> Any:
        return self._result

    def exception(self) -> None:
        return None

    def cancel(self) -> None:
        """Nobody waits any more, and nobody is called."""
        self._cancelled = not self._done
        self._callback = None

    def cancelled(self) -> bool:
        return self._cancelled
