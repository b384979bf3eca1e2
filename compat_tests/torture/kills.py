"""Ends a node at moments that are drawn from a seed, while it works, while it starts, or while it stops in order.

The same seed draws the same moments; what the machine does between them is random.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from compat_tests.node import Pykbroker
from testkit.clients import wait_until
from testkit.torture.clients import ANSWER_S


class Kills:
    """`watch` raises what has gone wrong so far; it is called often."""

    def __init__(self, node: Pykbroker, seed: int, watch: Callable[[], None]) -> None:
        self.node = node
        self.watch = watch
        self.done: list[str] = []
        self._rng = random.Random(seed)

    def round(self) -> int:
        """End the running node in one way, and wait until it is back. Return how often it was killed."""
        kind = self._rng.choices(["running", "starting", "stopping", "clean"], [10, 4, 3, 1])[0]
        self._for(self._rng.uniform(0.05, 1.5))
        kills = 1
        match kind:
            case "running":
                self._note("running")
                self.node.kill()
            case "starting":
                self._note("running")
                self.node.kill()
                for _ in range(self._rng.randrange(1, 3)):
                    self.node.launch()
                    # An interpreter needs about 0.3 s to begin; after 0.8 s it usually serves.
                    self._for(self._rng.uniform(0.2, 0.8))
                    self._note("starting")
                    self.node.kill()
                    kills += 1
            case "stopping":
                self.node.ask_to_stop()
                self._for(self._rng.uniform(0.0, 0.25))
                self._note("stopping")
                self.node.kill()
            case _:
                self._note("stopped")
                self.node.stop()
                kills = 0
        self.node.launch()
        wait_until(self._is_back, f"the node is back after {self.done[-1]}", timeout_s=ANSWER_S)
        return kills

    def _is_back(self) -> bool:
        self.watch()
        return self.node.is_ready()

    def _for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.watch()
            time.sleep(min(left, 0.1))

    def _note(self, how: str) -> None:
        self.done.append(how)
