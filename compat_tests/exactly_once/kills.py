"""Rounds of kills with SIGKILL, in which a seed chooses each victim. A round begins after progress since the last one.

A failing test prints the seed and all victims. The times depend on the machine, so the same seed gives the same victims
in the same order and no more than that.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence

from compat_tests.exactly_once.hanging import wait_with_mending
from compat_tests.node import Node
from testkit.clients import PATIENCE_S
from testkit.programs import Slot


class Kills:
    def __init__(self, node: Node, slots: Sequence[Slot], *, broker_share: float = 0.4) -> None:
        self.seed = int(os.environ.get("PYKBROKER_KILLS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
        self._random = random.Random(self.seed)
        self._node = node
        self._slots = list(slots)
        self._broker_share = broker_share
        self._began = time.monotonic()
        self.done: list[str] = []

    def tend(self) -> None:
        for slot in self._slots:
            slot.tend()

    def run(self, rounds: int, progress: Callable[[], int], *, least: int = 1, timeout_s: float = PATIENCE_S) -> None:
        """In each round, wait until `progress` grew by `least` records, then kill a victim that is restarted."""
        try:
            for _ in range(rounds):
                self._await(progress, least, timeout_s)
                # Not always just after a commit, so that the next transaction has sometimes begun.
                time.sleep(self._random.uniform(0, 0.05))
                self._kill()
            self._await(progress, least, timeout_s)
        finally:
            took = time.monotonic() - self._began
            print(f"seed {self.seed}, {len(self.done)} kills in {took:.1f} s: {' '.join(self.done)}")

    def _await(self, progress: Callable[[], int], least: int, timeout_s: float) -> None:
        before = progress()

        def grew() -> bool:
            self.tend()
            return progress() - before >= least

        why = f"{least} more after {before} (seed {self.seed}, killed: {' '.join(self.done)})"
        wait_with_mending(self._node, grew, why, timeout_s=timeout_s)

    def _note(self, victim: str) -> None:
        self.done.append(f"{victim}@{time.monotonic() - self._began:.1f}s")

    def _kill(self) -> None:
        if self._random.random() < self._broker_share:
            self._note("broker")
            self._node.kill()
            self._node.start()
        else:
            slot = self._random.choice(self._slots)
            self._note(slot.name)
            slot.kill()
