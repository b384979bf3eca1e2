"""The events of a world that can be left out: the faults that its seed has drawn, and the steps of the test itself.

Responsible for their labels: a drawn fault is "0", "1" and so on, a step "s1", "s2" and so on. A failure is shrunk by
running its world again with a part of the labels (checking/shrink.py), so each event takes its label whether it happens
or not.
"""

from __future__ import annotations

from collections.abc import Collection

from pykbroker_worlds.simulated.world import SimWorld


class Selection:
    """Decides which events of one world happen."""

    def __init__(self, world: SimWorld, kept: Collection[str] | None) -> None:
        """`kept`: the labels of the events that happen, None for all."""
        #: the labels of the events that were kept, in order
        self.labels: list[str] = []
        self._world = world
        self._kept = kept
        self._steps = 0

    @property
    def some_are_left_out(self) -> bool:
        """True if the test may find something other than it expects, for example a broker that it did not kill."""
        return self._kept is not None

    def keep(self, label: str) -> bool:
        """Return True if the event happens."""
        is_kept = self._kept is None or label in self._kept
        if is_kept:
            self.labels.append(label)
        return is_kept

    def step(self, part: str, text: str) -> bool:
        """Return True if the next step of the test happens, which is then told: the part to which it happens, the
        text."""
        self._steps += 1
        label = f"s{self._steps}"
        if not self.keep(label):
            return False
        self._world.tell(part, f"step {label}: {text}")
        return True
