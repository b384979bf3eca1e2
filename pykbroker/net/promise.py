"""A result that comes later; its callback is called as soon as the result is set.

A connection uses it like a future, but without the event loop: a future calls its callback in a separate turn of the
loop, and creates an object for the loop each time. It is for responses that wait, of which there are thousands per
second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Promise:
    """One result or one error, for one callback, within the call of `set_result` or `set_exception`."""

    __slots__ = ("_callback", "_cancelled", "_done", "_error", "_result", "_when_cancelled")

    def __init__(self) -> None:
        self._callback: Callable[[Any], object] | None = None
        self._when_cancelled: Callable[[], None] | None = None
        self._cancelled = False
        self._done = False
        self._error: BaseException | None = None
        self._result: Any = None

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Set the callback; call it at once if the result is there."""
        if self._done:
            callback(self)
        else:
            self._callback = callback

    def when_cancelled(self, callback: Callable[[], None]) -> None:
        """Set a callback for the case that the waiter cancels before the result comes. Call it at once if the promise
        is cancelled."""
        if self._cancelled:
            callback()
        else:
            self._when_cancelled = callback

    def set_result(self, result: Any) -> None:
        """Set the result, once. It is dropped if the promise was cancelled."""
        if self._cancelled:
            return
        assert not self._done
        self._result = result
        self._tell()

    def set_exception(self, error: BaseException) -> None:
        """Set an error instead, once. It is dropped if the promise was cancelled."""
        if self._cancelled:
            return
        assert not self._done
        self._error = error
        self._tell()

    def _tell(self) -> None:
        self._done = True
        # The callback usually refers to a waiter that holds this promise. Such a circle would stay in memory until the
        # garbage collector runs.
        self._when_cancelled = None
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(self)

    def done(self) -> bool:
        """Return True if the result or the error is there, or if it was cancelled."""
        return self._done or self._cancelled

    def result(self) -> Any:
        """Return the result, or raise the error."""
        if self._error is not None:
            raise self._error
        return self._result

    def exception(self) -> BaseException | None:
        return self._error

    def cancel(self) -> None:
        """Cancel the wait, so that the callback is not called."""
        if self._done or self._cancelled:
            return
        self._cancelled = True
        self._callback = None
        callback, self._when_cancelled = self._when_cancelled, None
        if callback is not None:
            callback()

    def cancelled(self) -> bool:
        return self._cancelled
