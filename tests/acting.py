"""Which test shows which configuration key's effect: `@acts(topic=("retention.ms",))` on a test function.

tests/config/test_acting.py reads the decorators and compares them with pykbroker/config/acting.py: a key is called
acting
exactly when a test claims it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


def acts(*, broker: tuple[str, ...] = (), topic: tuple[str, ...] = (), group: tuple[str, ...] = ()) -> Callable[[F], F]:
    """The keys, as literals, whose effect the test asserts."""

    def mark(function: F) -> F:
        return function

    return mark
