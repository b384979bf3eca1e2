"""java.util.Random as a Python Random: the same seed gives the same numbers to Apache Kafka's code and to ours."""

from __future__ import annotations

import random
from collections.abc import MutableSequence
from typing import Any

_MASK = (1 << 48) - 1


class JavaRandom(random.Random):
    """Only the calls that placement needs: `randrange(n)` is nextInt(n), `shuffle` is Collections.shuffle."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._state = (seed ^ 0x5DEECE66D) & _MASK

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert stop is None, "only draws below a bound"
        bound = start
        bits = self._next()
        if bound & (bound - 1) == 0:
            return (bound * bits) >> 31
        # A number from the last, incomplete round of the bound is drawn again.
        while bits - bits % bound + bound - 1 >= 1 << 31:
            bits = self._next()
        return bits % bound

    def shuffle(self, x: MutableSequence[Any]) -> None:
        for last in range(len(x) - 1, 0, -1):
            other = self.randrange(last + 1)
            x[last], x[other] = x[other], x[last]

    def _next(self) -> int:
        """Return 31 bits."""
        self._state = (self._state * 0x5DEECE66D + 0xB) & _MASK
        return self._state >> 17
