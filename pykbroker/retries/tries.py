"""The rests between the tries of one piece of work.

Source: PersisterStateManager and the dead letter writer of Apache Kafka, which have the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

#: The rests after the first failures, in seconds. They are shorter than the first rest of Apache Kafka (2 s), because a
#: coordinator that has just been elected is ready after milliseconds, and so is a topic that has just been created.
QUICK_RESTS: Final = (0.05, 0.1, 0.2, 0.4)
#: Failures until the work is given up, and the base of the rest after the n-th of them, 1 s * 2 ** n. Both are Apache
#: Kafka's. Its greatest rest of 30 s comes after the last try, so it has no place here. The quick rests come before,
#: and their failures are not counted.
MOST_FAILURES: Final = 5
_REST_BASE: Final = 1.0


def rest_factor(chance: Random) -> float:
    """Return a factor for a rest: 20 % up or down, as Apache Kafka's."""
    return 0.8 + 0.4 * chance.random()


@dataclass(slots=True)
class Tries:
    """The failures so far."""

    quick: int = 0
    failures: int = 0

    def rest(self, *, may_be_quick: bool = False) -> float | None:
        """Count a failure, and return the seconds until the next try, None if there is none."""
        if may_be_quick and self.quick < len(QUICK_RESTS):
            self.quick += 1
            return QUICK_RESTS[self.quick - 1]
        self.failures += 1
        if self.failures >= MOST_FAILURES:
            return None
        return float(_REST_BASE * 2**self.failures)
