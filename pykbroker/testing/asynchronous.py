"""Asynchronous twins of methods that wait: `await broker.create_topic_async("orders")` does not block the running loop.

Responsible for running the method on a thread. A twin that is cancelled ends at once, and its method ends later on its
thread. A method that may wait for long has a coroutine of its own instead of a twin (inspection.py,
faults/rule_set.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


def on_thread(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Return the asynchronous twin of a method. A subclass that overrides the method changes its twin too."""
    name = method.__name__

    async def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: R = await asyncio.to_thread(getattr(self, name), *args, **kwargs)
        return found

    twin.__name__ = f"{name}_async"
    twin.__qualname__ = f"{method.__qualname__}_async"
    twin.__module__ = method.__module__
    twin.__doc__ = f"Do what `{name}` does, without blocking the running loop."
    # `inspect.signature`, help() and the reference show the arguments of the method.
    twin.__wrapped__ = method  # type: ignore[attr-defined]
    return twin
